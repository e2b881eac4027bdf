"""Calls of actors, and of the controller, that come to an end where nobody answers: a process that
is stopped, or whose machine sleeps, keeps its connections, and Ray waits for it."""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayTaskError

from ray_canal.actors import registry
from ray_canal.actors.answers import ACTOR_AWAY, raised_by_actor
from ray_canal.errors import InstanceNotRunning

BUSY_S = 60.0
"""A controller that works answers within it, however busy; one whose node sleeps does not."""
BEGIN_S = 120.0
"""One that is just being made has its process within it."""
_WHAT_TO_DO = (
    "its process on the head node (`ray::Controller`) is stopped, or has no CPU or memory; wait "
    "until it runs, or end that process: Ray begins it again, and destinations go on meanwhile"
)


def answer(reference: Any, timeout: float | None = None) -> Any:
    """Return the answer to a call. Raises what the call raised; InstanceNotRunning: the actor has
    ended, or does not answer in time."""
    try:
        return _get(reference, timeout)
    except GetTimeoutError:
        raise InstanceNotRunning("its process does not answer; try again") from None


def _get(reference: Any, timeout: float | None) -> Any:
    """Return the same. Raises GetTimeoutError, too."""
    try:
        return ray.get(reference, timeout=timeout)
    except RayTaskError as error:
        raise raised_by_actor(error) from None
    except ACTOR_AWAY as error:
        raise InstanceNotRunning(f"the actor went away during the call: {error}") from error


def running_controller(namespace: str) -> Any:
    """Return the controller's handle. Raises InstanceNotRunning: there is none."""
    found = registry.find_actor(registry.CONTROLLER_NAME, namespace)
    if found is None:
        raise InstanceNotRunning(
            f"no controller runs in namespace {namespace!r}; "
            "start one with `ray-canal start CONFIG`"
        )
    return found


def ask_controller(controller: Any, method: str, *arguments: Any, first_s: float = 0.0) -> Any:
    """Return the controller's answer to a call, which takes as long as it takes while the
    controller works: starting a destination over may wait for its source.

    Raises what the call raised; InstanceNotRunning: the controller does not answer for `first_s`
    (BUSY_S), and nothing was asked of it, or it has ceased to answer."""
    limit_s = first_s or BUSY_S
    _refuse_asleep(controller, limit_s, f"for {limit_s:.0f} s, and nothing was changed")
    reply = getattr(controller, method).remote(*arguments)
    while True:
        try:
            return _get(reply, BUSY_S)
        except GetTimeoutError:
            _refuse_asleep(controller, BUSY_S, "any more; it may still do what it was asked for")


def _refuse_asleep(controller: Any, limit_s: float, how: str) -> None:
    """Raises InstanceNotRunning: the controller does not answer within the limit."""
    try:
        _get(controller.standing.remote(), limit_s)
    except GetTimeoutError:
        raise InstanceNotRunning(f"the controller does not answer {how}: {_WHAT_TO_DO}") from None
