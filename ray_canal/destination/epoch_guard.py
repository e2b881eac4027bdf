"""The epoch under which a destination writes, and what follows when it is not the newest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from ray_canal.destination.current_log import CurrentLog
from ray_canal.destination.ownership import Ownership
from ray_canal.destination.supervisor import Supervisor
from ray_canal.errors import EpochLost, Fenced, MetaDamaged

T = TypeVar("T")


class EpochGuard:
    """`epoch` is 0 until the first one was taken. One that was lost to another owner ends the life
    of the destination."""

    def __init__(self, cursors: Ownership, supervisor: Supervisor, log: CurrentLog) -> None:
        self._cursors = cursors
        self._supervisor = supervisor
        self._log = log
        self.epoch = 0
        self._taking = asyncio.Lock()  # two that take one at once would fence each other

    async def take_new(self) -> int:
        """Take and return the next epoch. Raises Fenced: another owner has the destination."""
        async with self._taking:
            return await self._take()

    async def for_writing(self) -> int:
        """Return this owner's epoch, also before it was at its source. Raises Fenced."""
        async with self._taking:
            return self.epoch or await self._take()

    async def _take(self) -> int:
        self.epoch = await self._cursors.acquire()
        return self.epoch

    async def confirm(self) -> None:
        """Return if this owner has the newest epoch, or has taken none yet. Raises Fenced,
        MetaUnavailable, InstanceRestarted."""
        if self.epoch:
            await self.run(self._cursors.confirm(self.epoch, time.monotonic()))

    async def run(self, work: Awaitable[T]) -> T:
        """Await a write under the epoch. Raises what it raised: after Fenced the destination has
        failed for good, after a forgotten epoch or a damaged record a new generation begins."""
        try:
            return await work
        except (EpochLost, MetaDamaged) as error:
            self._log.fail(error)
            raise
        except Fenced as error:
            await self._supervisor.give_up(error)
            raise
