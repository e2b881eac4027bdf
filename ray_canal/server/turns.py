"""One call at a time for each subscriber, whatever connections it comes over.

Canal's clients open a new connection when the old one is dead, and the server may not have noticed:
an old, waiting get must not take a batch that nobody will read. So whoever connects (which is a
rollback, a subscription) ends the get that waits for the same subscriber; a get waits for its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ray_canal.canal.session import Identity

T = TypeVar("T")


class Superseded(Exception):
    """A get was ended by another connection of the same subscriber."""


class Turns:
    """The connection that is being served, by subscriber."""

    def __init__(self) -> None:
        self._serving: dict[Identity, asyncio.Task[Any]] = {}
        self._gets: set[asyncio.Task[Any]] = set()

    async def get(self, identity: Identity, call: Coroutine[Any, Any, T]) -> T:
        """Run a get when nothing else runs for the subscriber. Raises Superseded."""
        return await self._run(identity, call, is_get=True)

    async def connect(self, identity: Identity, call: Coroutine[Any, Any, T]) -> T:
        """Run anything else, ending a get that waits."""
        return await self._run(identity, call, is_get=False)

    async def _run(self, identity: Identity, call: Coroutine[Any, Any, T], is_get: bool) -> T:
        try:
            while (other := self._serving.get(identity)) is not None:
                if not is_get and other in self._gets:
                    other.cancel()
                await asyncio.wait({other})
        except asyncio.CancelledError:
            call.close()
            raise
        task = asyncio.ensure_future(call)
        self._serving[identity] = task
        if is_get:
            self._gets.add(task)
        task.add_done_callback(lambda done: self._end(identity, done))
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # seen: nobody waits for it any more
            raise
        if task.cancelled():
            raise Superseded
        return task.result()

    def _end(self, identity: Identity, task: asyncio.Task[Any]) -> None:
        self._gets.discard(task)
        if self._serving.get(identity) is task:
            del self._serving[identity]
