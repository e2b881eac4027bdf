"""A pump over an upstream without a source: order, room, ends, and processes that are silent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import pytest

from ray_canal.config import InstanceConfig
from ray_canal.demo import binlog_files
from ray_canal.destination import pump
from ray_canal.destination.ports import Fetched, Upstream
from ray_canal.destination.pump import Pump
from ray_canal.destination.status.stages import FetchReport
from ray_canal.errors import InstanceNotRunning
from ray_canal.log.transaction_buffer import LogChunk, TransactionBuffer
from ray_canal.model.position import BINLOG_START, EntryPosition, SourceIdentity
from ray_canal.model.start import Start
from ray_canal.offline import decode_chunks
from tests.local_destination import instance
from tests.local_runtime import LocalRuntime
from tests.unit.destination.pumping import pumped


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


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


async def room(chunks: int) -> None:
    """There is always some."""


async def opened(upstream: Made) -> Pump:
    made = Pump(instance(), MadeRuntime(upstream))
    await made.open((), ())
    return made


def test_chunks_come_in_order_until_the_source_ends() -> None:
    async def story() -> None:
        upstream = Made()
        expected = [info.head.position for info, _ in upstream.waiting]
        found, asked_for = [], []

        def append(chunk: LogChunk) -> None:
            assert upstream.appended_count == len(found)
            found.append(chunk.info.head.position)

        async def counted(chunks: int) -> None:
            asked_for.append(chunks)

        made = await opened(upstream)
        await pumped(made, append, counted)
        assert found == expected
        assert len(expected) > 2
        assert upstream.appended_count == len(expected)
        assert max(asked_for) <= 2 * Made.calls_ahead + 1
        await made.close()
        assert upstream.closed

    run(story())


def test_an_append_that_fails_ends_it() -> None:
    async def story() -> None:
        def append(chunk: LogChunk) -> None:
            raise MemoryError("no room")

        made = await opened(Made())
        with pytest.raises(MemoryError):
            await pumped(made, append, room)

    run(story())


def test_a_process_that_does_not_answer_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """B1: it was stopped, or its machine thrashes; a new generation does without it."""

    async def story() -> None:
        upstream = Made()

        async def never() -> None:
            await asyncio.sleep(3600)

        upstream.asked = {"parser": never}
        config = instance()
        source = config.source.model_copy(update={"read_timeout_s": 0.05})
        made = Pump(config.model_copy(update={"source": source}), MadeRuntime(upstream))
        monkeypatch.setattr(pump, "_START_LIMIT_S", 0.05)
        await made.open((), ())

        async def full(chunks: int) -> None:
            await asyncio.sleep(3600)

        def append(chunk: LogChunk) -> None:
            raise AssertionError("there is no room")

        with pytest.raises(InstanceNotRunning, match="the parser has not answered"):
            await pumped(made, append, full)

    run(story())


def test_a_status_that_takes_long_is_not_waited_for() -> None:
    async def story() -> None:
        made = await opened(Made())
        assert await made.source_status() is None

    run(story())
