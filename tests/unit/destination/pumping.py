"""What a log pipeline does with a pump, without a log, and an upstream without a source."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ray_canal.config import InstanceConfig
from ray_canal.demo import binlog_files
from ray_canal.destination.ports import Fetched, Upstream
from ray_canal.destination.pump import Pump, WaitForRoom
from ray_canal.destination.status.stages import FetchReport
from ray_canal.log.transaction_buffer import LogChunk, TransactionBuffer
from ray_canal.model.position import BINLOG_START, EntryPosition, SourceIdentity
from ray_canal.model.start import Start
from ray_canal.offline import decode_chunks
from tests.local_destination import instance
from tests.local_runtime import LocalRuntime


class Made:
    """An upstream of chunks that are decoded already; then its source is at its end."""

    calls_ahead = 2
    decoding_bytes = 0

    def __init__(self) -> None:
        self.waiting = deque(decode_chunks(binlog_files()))
        self.start = EntryPosition(self.waiting[0][0].head.journal_name, BINLOG_START)
        self.buffer = TransactionBuffer.configured(instance(), self.start, "")
        self.asked: dict[str, Callable[[], Awaitable[Any]]] = {}
        self.appended_count = 0
        self.closed = False

    async def open(self, *_: Any) -> Any:
        return Start(self.start, "as made"), SourceIdentity(""), ()

    def next(self) -> Callable[[], Awaitable[Fetched]]:
        taken = self.waiting.popleft() if self.waiting else None

        async def fetched() -> Fetched:
            await asyncio.sleep(0)
            if taken is None:
                return Fetched(report=FetchReport(False, True, 0.0, 0.0))
            info, chunk = taken
            return Fetched(info=info, payload=chunk)

        return fetched

    async def add(self, info: Any) -> LogChunk:
        return self.buffer.add(info)

    def appended(self) -> None:
        self.appended_count += 1

    def hurry(self) -> None:
        """Chunks are there as they come."""

    def processes(self) -> Mapping[str, Callable[[], Awaitable[Any]]]:
        return self.asked

    async def status(self, oldest: EntryPosition | None) -> Any:
        await asyncio.sleep(3600)

    async def close(self) -> None:
        self.closed = True


class MadeRuntime(LocalRuntime):
    """Its one upstream is given."""

    def __init__(self, upstream: Made) -> None:
        self._upstream = upstream

    async def upstream(self, config: InstanceConfig) -> Upstream:
        return self._upstream


async def pumped(pump: Pump, append: Callable[[LogChunk], None], room: WaitForRoom) -> None:
    """Pump until the source ends. Raises what a stage or `append` raises."""

    async def fill() -> None:
        while (pulled := await pump.next()) is not None:
            append(pulled[0])
            pump.appended(pulled[0])

    tasks: list[asyncio.Task[Any]] = [
        asyncio.create_task(pump.run(room)),
        asyncio.create_task(fill()),
    ]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def nothing(chunk: LogChunk, payload: Any) -> None:
    """Nothing has to be durable before a chunk is in a log."""


def noted(chunk: LogChunk) -> None:
    """Nobody counts chunks."""
