"""Answers of actors: waited for with a limit, and failures without Ray's wrapping."""

from __future__ import annotations

import asyncio
from typing import Any

from ray.exceptions import ActorUnschedulableError, RayActorError, RayError, RayTaskError

from ray_canal.actors.store_calls import CallFailed
from ray_canal.destination.wakeup import wait_with_timeout
from ray_canal.errors import CanalError, InstanceNotRunning

ANSWER_S = 15.0
"""Limit of waiting for a process's answer about its state: one that stands still gives none."""
ACTOR_AWAY = (RayActorError, ActorUnschedulableError)
"""Errors of a call whose actor has ended; the second one's with its node."""


async def answered(limit_s: float, reply: Any) -> Any:
    """Return the answer to a call of an actor, of which `reply` is the reference. Raises
    asyncio.TimeoutError, and what the call raised."""
    return await wait_with_timeout(limit_s, asyncio.wrap_future(reply.future()))


def unwrap_ray_error(error: Exception) -> Exception:
    """Return what happened, without Ray's wrapping; a lost actor, worker or object becomes a
    retryable InstanceNotRunning."""
    inner: BaseException = error.cause if isinstance(error, CallFailed) else error
    # A task whose input failed wraps that failure, and so on down the stages.
    while isinstance(inner, RayTaskError) and isinstance(inner.cause, Exception):
        inner = inner.cause
    if isinstance(inner, CanalError):
        return inner
    if isinstance(inner, RayError) and not isinstance(inner, RayTaskError):
        return InstanceNotRunning(f"a stage of the pipeline died: {type(inner).__name__}")
    return error


def raised_by_actor(error: Exception) -> Exception:
    """Return the CanalError that an actor raised, or the error of its call if it was none of
    ours."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, CanalError) else error
