"""How a caller waits for answers of actors: on its event loop, or by blocking its thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import ray

from ray_canal.actors.answers import answered
from ray_canal.actors.local_calls import LocalCall


class ActorWaiting(Protocol):
    """The ways in which a call waits."""

    async def answer(self, reply: Any, limit_s: float | None = None) -> Any:
        """Return the answer of which `reply` is the reference, or a LocalCall. Raises what the call
        raised, and a timeout after `limit_s` (of a reference)."""

    async def objects(self, references: Sequence[Any]) -> list[Any]:
        """Return the objects that are referred to."""

    async def pause(self, seconds: float) -> None:
        """Return after so long."""

    async def run(self, step: Callable[[], None]) -> None:
        """Run what may take long."""

    async def look_up(self, step: Callable[[], None]) -> None:
        """Run a look-up, once for all calls that wait for it."""


class AnswersOnLoop:
    """Waits on the event loop."""

    def __init__(self) -> None:
        self._looking: asyncio.Task[None] | None = None

    async def answer(self, reply: Any, limit_s: float | None = None) -> Any:
        if isinstance(reply, LocalCall):
            return await reply.wait()
        return await (reply if limit_s is None else answered(limit_s, reply))

    async def objects(self, references: Sequence[Any]) -> list[Any]:
        return list(await asyncio.gather(*map(_awaited, references)))

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def run(self, step: Callable[[], None]) -> None:
        await asyncio.to_thread(step)

    async def look_up(self, step: Callable[[], None]) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self.run(step))
        await asyncio.wait({self._looking})


class AnswersInThread:
    """Blocks the thread; see `complete` (destination/blocking.py)."""

    async def answer(self, reply: Any, limit_s: float | None = None) -> Any:
        return reply.result() if isinstance(reply, LocalCall) else ray.get(reply, timeout=limit_s)

    async def objects(self, references: Sequence[Any]) -> list[Any]:
        return ray.get(list(references))  # type: ignore[no-any-return]

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    async def run(self, step: Callable[[], None]) -> None:
        step()

    async def look_up(self, step: Callable[[], None]) -> None:
        step()


async def _awaited(reference: Any) -> Any:
    return await reference
