"""New, leaving and returning subscribers of a real Store: nothing is left out in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.demo import binlog_files
from ray_canal.errors import MetaUnavailable
from ray_canal.protocol.subscription import Subscription
from tests.real_store import (
    ALL,
    SlowOpening,
    drain,
    follow_each_other,
    instance,
    lose_source,
    meta_away,
    run,
    running,
    take,
    until,
)

SMALL_LOG = {"buffer_size": 64, "memunit_bytes": 1024}


def test_who_subscribes_while_the_upstream_is_opened_gets_no_hole(tmp_path: Path) -> None:
    """A3: a subscriber that is new while the upstream is being opened anew gets no hole."""

    async def story() -> None:
        config = instance(binlog_files()[2:], chunk_bytes=32 << 10, store=SMALL_LOG)
        async with running(tmp_path, config) as store:
            await store.subscribe(1, ALL)
            for _ in range(6):
                assert await take(store, 1, 4, seconds=30)
            before = store._generations
            with SlowOpening() as opening:
                lose_source(store)
                await opening.began.wait()
                await store.subscribe(2, ALL)
                first = await take(store, 2, 2)
                assert first is not None
                opening.go.set()
                await until(lambda: store._generations > before)
            rest = await drain(store, 2, 4)
            assert follow_each_other([first, *rest])
            assert len(rest) > 5

    run(story())


def test_unsubscribe_that_fails_leaves_the_subscriber(tmp_path: Path) -> None:
    """A4: durable first, memory second: what an unsubscribe could not remove is still kept for."""

    async def story() -> None:
        async with running(tmp_path, instance(store=SMALL_LOG)) as store:
            for client_id in (7, 8):
                await store.subscribe(client_id, ALL)
            first = await take(store, 7)
            assert first is not None
            with meta_away("remove"), pytest.raises(MetaUnavailable):
                await store.unsubscribe(7)
            await drain(store, 8)
            await store.subscribe(7, ALL)
            second = await take(store, 7)
            assert second is not None
            assert follow_each_other([first, second])
            await store.unsubscribe(7)
            assert 7 not in await store._cursors.load()

    run(story())


def test_a_subscription_that_cannot_be_saved_leaves_nothing(tmp_path: Path) -> None:
    """A4: also where a replication stream of its own was opened for it already."""

    async def story() -> None:
        async with running(tmp_path, instance(store=SMALL_LOG)) as store:
            await store.subscribe(8, ALL)
            head = await take(store, 8)
            assert head is not None
            assert head.ack is not None
            start = head.ack.boundary
            with meta_away("save"), pytest.raises(MetaUnavailable):
                await store.subscribe(7, ALL, wishes=Subscription(start=start))
            status = await store.status()
            assert list(status["store"]["subscribers"]) == ["8"]
            await store.subscribe(7, ALL, wishes=Subscription(start=start))
            assert await take(store, 7)

    run(story())


def test_a_get_whose_ack_cannot_be_saved_comes_again(tmp_path: Path) -> None:
    """A4: get acks at once; where that fails, nobody has the batch, so it does not stay out."""

    async def story() -> None:
        async with running(tmp_path) as store:
            await store.subscribe(7, ALL)
            with meta_away("save"), pytest.raises(MetaUnavailable):
                await store.get(7, 4, 5.0)
            assert await store.list_batch_ids(7) == []
            head = await store.get(7, 4, 5.0)
            assert head.start is not None
            assert head.start.position < 1000

    run(story())


def test_a_filter_that_cannot_be_saved_is_not_used(tmp_path: Path) -> None:
    """A4: change_filter, too, is durable first."""

    async def story() -> None:
        async with running(tmp_path) as store:
            await store.subscribe(7, ALL)
            with meta_away("save"), pytest.raises(MetaUnavailable):
                await store.change_filter(7, r"nobody\.here")
            assert store._subscribers[7].filter == ALL
            assert await take(store, 7)

    run(story())


def test_a_cursor_before_the_log_goes_by_a_catch_up(tmp_path: Path) -> None:
    """A3: wherever such a cursor comes from, its subscriber misses nothing."""

    async def story() -> None:
        async with running(tmp_path, instance(store=SMALL_LOG)) as store:
            for client_id in (7, 8):
                await store.subscribe(client_id, ALL)
            first = await take(store, 7)
            assert first is not None
            assert store._line is not None
            store._line.store.unsubscribe(7)  # as if the log had never heard of it
            await drain(store, 8)
            await store.subscribe(7, ALL)
            rest = await drain(store, 7)
            assert follow_each_other([first, *rest])
            assert rest[-1].end == (store._subscribers[8].position)

    run(story())
