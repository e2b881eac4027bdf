"""A pump over an upstream without a source: order, room, ends, and processes that are silent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ray_canal.destination import pump
from ray_canal.destination.pump import Pump
from ray_canal.errors import InstanceNotRunning
from ray_canal.log.transaction_buffer import LogChunk
from tests.local_destination import instance
from tests.unit.destination.pumping import Made, MadeRuntime, pumped


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


async def room(chunks: int, queued: Callable[[], int]) -> None:
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

        async def counted(chunks: int, queued: Callable[[], int]) -> None:
            asked_for.append(chunks + queued())

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

        async def full(chunks: int, queued: Callable[[], int]) -> None:
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
