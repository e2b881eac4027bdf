"""A line over binlog files: which chunks a message waits for."""

from __future__ import annotations

import asyncio
import itertools
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ray_canal.config import InstanceConfig
from ray_canal.demo import binlog_files
from ray_canal.destination import fetcher, fetcher_thread
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.wakeup import Wakeup
from ray_canal.errors import InstanceNotRunning, MetaUnavailable
from ray_canal.filter import TableFilter
from ray_canal.log.subscriber import Terms
from ray_canal.log.transaction_buffer import LogChunk
from tests.local_destination import instance
from tests.local_runtime import LocalRuntime
from tests.unit.destination.pumping import Made, MadeRuntime, noted, nothing
from tests.unit.log.filled import filled, transactions

EVERYTHING = Terms(TableFilter())


def pipeline_of(changed: Wakeup, folder: str = "", **store: Any) -> LogPipeline:
    source = {"files": [str(binlog_files()[0])], "start": "earliest"}
    instance = {
        "destination": "x",
        "source": source,
        "chunk_bytes": 4096,
        "decoders": 0,
        "store": store,
        "tsdb": {"enable": False},
    }
    config = InstanceConfig.model_validate(instance)
    return LogPipeline(config, folder, changed, None, LocalRuntime())


@pytest.mark.parametrize("mode", ["MEMSIZE", "ITEMSIZE"])
def test_a_message_takes_what_is_being_decoded_if_it_fits(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(fetcher_thread, "_DECODER_BYTES", 0)
    held, numbers, really = threading.Event(), itertools.count(), fetcher.decoded

    def decoded(*chunk: Any) -> Any:
        if next(numbers) == 1:
            assert held.wait(60)
        return really(*chunk)

    monkeypatch.setattr(fetcher, "decoded", decoded)
    asyncio.run(asyncio.wait_for(taken(mode, held), 120))


async def taken(mode: str, held: threading.Event) -> None:
    changed = Wakeup()
    pipeline = pipeline_of(changed, batch_mode=mode)
    start, _, _ = await pipeline.open((), ())
    store = pipeline.begin(start.position, 1)
    store.subscribe(1, EVERYTHING, None)

    running = asyncio.create_task(pipeline.run(nothing, noted))
    while not store.ready(1, 1, count_all=True):
        await changed.wait()
    while not pipeline.pump.decoding_bytes:
        await asyncio.sleep(0.001)
    assert pipeline.may_grow(1, 1 << 10) == (mode == "MEMSIZE")
    assert not pipeline.may_grow(1, 1)  # there is no room for it beside the first one
    held.set()
    while pipeline.may_grow(1, 1 << 20):
        await changed.wait()
    await running
    assert pipeline.pump.decoding_bytes == 0
    batch = store.get(1, 1 << 20)
    assert batch is not None
    assert len(batch.parts) > 10
    await pipeline.close()


def test_two_full_logs_rest() -> None:
    """A destination's log and that of a catch-up that are both full wait for their subscribers.
    They woke each other without end, so that a process was busy with nothing."""
    asyncio.run(asyncio.wait_for(full(), 60))


async def full() -> None:
    changed, wakes = Wakeup(), 0
    really = changed.wake

    async def counted() -> None:
        nonlocal wakes
        wakes += 1
        await really()

    changed.wake = counted  # type: ignore[method-assign]
    running = []
    for _ in range(2):
        pipeline = pipeline_of(changed, buffer_size=2, memunit_bytes=4096)
        start, _, _ = await pipeline.open((), ())
        store = pipeline.begin(start.position, 1)
        store.subscribe(1, EVERYTHING, None)
        running.append((pipeline, asyncio.create_task(pipeline.run(nothing, noted))))
    while any(pipeline.store.has_room(4096) for pipeline, _ in running):
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)  # what is under way ends
    before, _ = wakes, await asyncio.sleep(0.3)
    assert wakes - before < 20
    for pipeline, task in running:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await pipeline.close()


def test_a_full_log_rests_though_its_disk_has_failed_before() -> None:
    """B2: a write to disk had failed, and now a subscriber that must not spill keeps the log full:
    waiting for the disk's next try, which is over, the log went round without end, and nothing
    else in its process went on."""
    asyncio.run(asyncio.wait_for(full_of_one(), 120))


async def full_of_one() -> None:
    changed, looks = Wakeup(), 0
    pipeline = pipeline_of(changed, buffer_size=4, memunit_bytes=1024)
    start, _, _ = await pipeline.open((), ())
    store = pipeline.begin(start.position, 1)
    store.subscribe(1, EVERYTHING, None)
    really = store.has_room

    def has_room(size_bytes: int) -> bool:
        nonlocal looks
        looks += 1
        if looks > 1000:
            raise AssertionError("it looks for room again and again")
        return really(size_bytes)

    store.has_room = has_room  # type: ignore[method-assign]
    pipeline._disk.failed("No space left on device")
    pipeline._disk.try_at = 0.0

    running = asyncio.create_task(pipeline.run(nothing, noted))
    while not pipeline.full_s and not running.done():
        await asyncio.sleep(0.01)
    while not running.done():
        if (batch := store.get(1, 1 << 20)) is not None:
            store.ack(1, batch.id)
        await changed.wake()
        await asyncio.sleep(0.001)
    await running
    await pipeline.close()


def test_what_a_block_subscriber_passes_over_goes_to_disk(tmp_path: Path) -> None:
    """A full log waits for a `block` subscriber; what that one passes over, as nothing of it is for
    it, makes the log no shorter where a `spill` one still needs it, yet it may go to disk now. The
    log was not woken for that, and stood still (796499 of the simulated lives)."""

    async def passed_over() -> None:
        changed = Wakeup()
        pipeline = pipeline_of(changed, str(tmp_path), buffer_size=2, spill_bytes=1 << 30)
        start, _, _ = await pipeline.open((), ())
        store = pipeline.begin(start.position, 1)
        store.subscribe(1, Terms(TableFilter(), "spill"), None)
        store.subscribe(2, Terms(TableFilter("nothing\\.of_it"), "block"), None)
        running = asyncio.create_task(pipeline.run(nothing, noted))
        while not running.done():
            if pipeline.full_s:
                await pipeline.read_back(2, 1)
                if store.ready(2, 1, count_all=True):  # databases are for everyone
                    batch = store.get(2, 1)
                    assert batch is not None
                    store.ack(2, batch.id)
                    await changed.wake()
            await asyncio.sleep(0.001)
        await running
        assert store.stats()["bytes_on_disk"] > 0
        assert not store.ready(2, 1)
        await pipeline.close()

    asyncio.run(asyncio.wait_for(passed_over(), 60))


def test_what_is_on_disk_is_not_read_from_a_log_that_was_closed() -> None:
    """A get that waited while a generation ended met an AttributeError."""

    async def closed() -> None:
        pipeline = pipeline_of(Wakeup())
        start, _, _ = await pipeline.open((), ())
        store = pipeline.begin(start.position, 1)
        await pipeline.close()
        slot = SimpleNamespace(first=0, payload="segment")
        store.missing = lambda *_: slot  # type: ignore[method-assign, assignment, return-value]
        with pytest.raises(InstanceNotRunning, match="closed"):
            await pipeline.read_back(1, 1)

    asyncio.run(asyncio.wait_for(closed(), 60))


def test_a_message_says_how_its_batch_is_read_and_acked(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(answered(monkeypatch))


async def answered(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = filled(transactions(4), cuts=(3, 6), batch_mode="ITEMSIZE").get(1, 8)
    assert batch is not None
    config = instance(time_zone="Asia/Tokyo", filter={"black_fields": "shop.item:secret"})
    runtime = LocalRuntime()
    monkeypatch.setattr(runtime, "untracked", lambda payload: ("untracked", payload))
    pipeline = LogPipeline(config, "", Wakeup(), None, runtime)
    head = pipeline.message(batch, 7, 9, untracked=True)
    assert [part.payload for part in head.parts] == [("untracked", each) for each in range(3)]
    assert [(part.first, part.last) for part in head.parts] == [(0, 3), (0, 3), (0, 2)]
    assert (head.id, head.epoch, head.timeline, head.untracked) == (batch.id, 7, 9, True)
    assert (head.entry_count, head.row_count) == (8, 3)
    range_ = batch.range
    assert (head.start, head.end, head.ack) == (range_.start, range_.end, range_.ack)
    assert (head.time_zone, head.black_fields) == ("Asia/Tokyo", "shop.item:secret")
    assert not head.finished
    assert [part.payload for part in pipeline.message(batch, 7, 9).parts] == [0, 1, 2]


def test_what_comes_before_a_chunk_is_done_when_it_is_in_the_log() -> None:
    """Schemas and timelines are durable before anybody can ack what needs them."""
    asyncio.run(asyncio.wait_for(in_order(), 60))


async def in_order() -> None:
    pipeline = pipeline_of(Wakeup())
    start, _, _ = await pipeline.open((), ())
    store = pipeline.begin(start.position, 1)
    told: list[tuple[str, int]] = []

    async def before(chunk: LogChunk, payload: Any) -> None:
        assert store.last_position.position <= chunk.info.head.position
        told.append(("before", chunk.info.head.position))
        await asyncio.sleep(0)
        if len(told) > 6:
            raise MetaUnavailable("it cannot be written")

    def after(chunk: LogChunk) -> None:
        assert store.last_position == chunk.after
        told.append(("after", chunk.info.head.position))

    with pytest.raises(MetaUnavailable):
        await pipeline.run(before, after)
    places = [place for _, place in told]
    assert [what for what, _ in told] == ["before", "after"] * 3 + ["before"]
    assert places[0:6:2] == places[1:6:2] == sorted(places[0:6:2])
    assert store.last_position.position <= places[-1]  # what failed is not in the log
    await pipeline.close()


def test_chunks_that_queue_up_take_the_room_that_they_need() -> None:
    """Five small chunks that were decoded side by side stood for five of `chunk_bytes` until the
    log was empty: with six decoders and the defaults, one `block` subscriber that did not read
    stopped a log of which nearly nothing was used, and one of policy `detach` lost its place."""
    asyncio.run(asyncio.wait_for(queued_up(), 60))


async def queued_up() -> None:
    changed, decoded, upstream = Wakeup(), asyncio.Event(), Made()
    upstream.calls_ahead, added = 1, upstream.add

    async def add(info: Any) -> LogChunk:
        if upstream.appended_count:
            await decoded.wait()
        return await added(info)

    upstream.add = add  # type: ignore[method-assign]
    config = instance(decoders=6, chunk_bytes=1 << 20, store={"buffer_size": 4096})
    detached: list[int] = []
    pipeline = LogPipeline(config, "", changed, detached.extend, MadeRuntime(upstream))
    pipeline.pump.window.size = 6
    start, _, _ = await pipeline.open((), ())
    store = pipeline.begin(start.position, 1)
    store.subscribe(1, EVERYTHING, None)
    store.subscribe(2, Terms(TableFilter(), "detach"), None)
    running = asyncio.create_task(pipeline.run(nothing, noted))
    before = -1
    while before != len(upstream.waiting):  # until it calls for no more
        before, _ = len(upstream.waiting), await asyncio.sleep(0.1)
    decoded.set()
    await running
    assert not upstream.waiting
    assert not detached
    assert 0 < store.stats()["fill"] < 0.5
    await pipeline.close()
