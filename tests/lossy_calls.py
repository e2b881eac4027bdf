"""Calls of a destination in this process as if by Ray, over a connection that loses some.

`fates` says what happens to the next calls of a method: what Ray's ActorUnavailableError may stand
for, as the actor lives on. Whoever does not wait for an answer any more does not end the call.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
import ray
from ray.exceptions import ActorUnavailableError, RayTaskError

from ray_canal.actors import calls
from ray_canal.errors import CanalError
from tests.local_destination import LocalDestination

Call = Callable[[], Coroutine[Any, Any, Any]]
DELIVERED, ANSWER_LOST, REQUEST_LOST, LATE = "delivered", "answer lost", "request lost", "late"


class Reply:
    """A reference to an answer."""

    def __init__(self, answer: Future[Any]) -> None:
        self._answer = answer

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.shield(asyncio.wrap_future(self._answer)).__await__()

    def result(self) -> Any:
        return self._answer.result(60)

    def cancel(self) -> None:
        self._answer.cancel()


class LossyCalls:
    """The handle of a destination that runs on an event loop of its own."""

    def __init__(self, destination: LocalDestination, loop: asyncio.AbstractEventLoop) -> None:
        self.destination = destination
        self._loop = loop
        self.fates: dict[str, deque[str]] = defaultdict(deque)
        self.late: list[Call] = []

    def begin(self, method: Callable[..., Any], *arguments: Any) -> Reply:
        return self.submit(method, *arguments)

    def submit(self, method: Callable[..., Any], *arguments: Any) -> Reply:
        name = method.__name__
        fate = self.fates[name].popleft() if self.fates[name] else DELIVERED
        call = partial(getattr(self.destination.api, name), *arguments)
        if fate == DELIVERED:
            return Reply(self._begin(call))
        if fate == ANSWER_LOST:
            self._begin(call).exception(60)
        elif fate == LATE:
            self.late.append(call)
        lost: Future[Any] = Future()
        lost.set_exception(ActorUnavailableError(f"the {fate}", None))
        return Reply(lost)

    def let_late_ones_come(self) -> None:
        while self.late:
            self._begin(self.late.pop()).exception(60)

    def _begin(self, call: Call) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(_wrapped(call), self._loop)

    def ask(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """What the destination itself says."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def outstanding(self, client_id: int) -> list[int]:
        ids: list[int] = self.ask(self.destination.list_batch_ids(client_id))
        return ids

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Who looks the destination up finds this."""
        patch.setattr(calls, "find_store", lambda *_: self)
        patch.setattr(calls, "_RETRY_PAUSE_S", 0.001)
        patch.setattr(ray, "is_initialized", lambda: True)
        patch.setattr(ray, "get", got)
        patch.setattr(ray, "cancel", lambda reply: reply.cancel())


_ray_get = ray.get


def got(what: Any, timeout: float | None = None) -> Any:
    """ray.get: of a reply, of Ray's own references, or of none."""
    if isinstance(what, Reply):
        return what.result()
    return _ray_get(what, timeout=timeout) if what else []


async def _wrapped(call: Call) -> Any:
    """Errors as Ray wraps them."""
    try:
        return await call()
    except CanalError as error:
        raise RayTaskError("call", "", error) from error
