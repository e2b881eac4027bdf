"""New and returning subscribers of a real destination: nothing is left out in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ray_canal.demo import binlog_files
from ray_canal.errors import (
    ConfigError,
    Fenced,
    MetaUnavailable,
    SubscriberReplaced,
)
from ray_canal.meta.manager import MetaManager
from ray_canal.model.subscription import TCP_HOLDER, Subscription
from tests.local_destination import (
    ALL,
    NAME,
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
    """A3: a subscriber that is new while the upstream is being opened again gets no hole."""

    async def story() -> None:
        config = instance(binlog_files()[2:], chunk_bytes=32 << 10, store=SMALL_LOG)
        async with running(tmp_path, config) as store:
            await store.subscribe(1, ALL)
            for _ in range(6):
                assert await take(store, 1, 4, seconds=30)
            before = store.generations
            with SlowOpening() as opening:
                lose_source(store)
                await opening.began.wait()
                await store.subscribe(2, ALL)
                first = await take(store, 2, 2)
                assert first is not None
                opening.go.set()
                await until(lambda: store.generations > before)
            rest = await drain(store, 2, 4)
            assert follow_each_other([first, *rest])
            assert len(rest) > 5

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


def test_a_filter_that_cannot_be_saved_is_not_used(tmp_path: Path) -> None:
    """A4: change_filter, too, is durable first."""

    async def story() -> None:
        async with running(tmp_path) as store:
            await store.subscribe(7, ALL)
            with meta_away("save"), pytest.raises(MetaUnavailable):
                await store.change_filter(7, r"nobody\.here")
            assert store.state.subscribers.known[7].filter == ALL
            assert await take(store, 7)

    run(story())


def test_a_list_is_no_filter(tmp_path: Path) -> None:
    given: Any = ["shop.orders"]

    async def story() -> None:
        async with running(tmp_path) as store:
            with pytest.raises(ConfigError, match=r"\['shop.orders'\] is no text"):
                await store.subscribe(7, given)

    run(story())


def test_a_cursor_before_the_log_goes_by_a_catch_up(tmp_path: Path) -> None:
    """A3: wherever such a cursor comes from, its subscriber misses nothing."""

    async def story() -> None:
        async with running(tmp_path, instance(store=SMALL_LOG)) as store:
            for client_id in (7, 8):
                await store.subscribe(client_id, ALL)
            first = await take(store, 7)
            assert first is not None
            assert store.state.log.pipeline is not None
            store.state.log.pipeline.store.unsubscribe(7)  # as if the log had never heard of it
            await drain(store, 8)
            await store.subscribe(7, ALL)
            rest = await drain(store, 7)
            assert follow_each_other([first, *rest])
            assert rest[-1].end == (store.state.subscribers.known[8].position)

    run(story())


def test_who_was_replaced_changes_nothing_of_its_successor(tmp_path: Path) -> None:
    """C4: every call names its holder, unsubscribe, list_batch_ids and change_filter, too."""

    async def story() -> None:
        async with running(tmp_path) as store:
            for holder in ("first", "second"):
                await store.subscribe(7, ALL, holder=holder)
            out = await take(store, 7, ack=False, holder="second")
            assert out is not None
            for call in (
                lambda holder: store.unsubscribe(7, holder),
                lambda holder: store.list_batch_ids(7, holder),
                        lambda holder: store.get_without_ack(7, 1, None, holder),
                lambda holder: store.poll(7, 1, 0.1, (out.id, out.epoch), holder),
                lambda holder: store.get(7, 1, None, holder),
                lambda holder: store.ack(7, out.id, out.epoch, holder),
                lambda holder: store.rollback(7, None, None, holder),
            ):
                for holder in ("first", TCP_HOLDER + "1", TCP_HOLDER):
                    with pytest.raises(SubscriberReplaced):
                        await call(holder)
            assert await store.list_batch_ids(7, "second") == [out.id]
            assert (await store.state.records.cursors.load())[7].filter == ALL
            await store.unsubscribe(7, "second")
            assert await store.state.records.cursors.load() == {}

    run(story())


def test_an_owner_that_was_replaced_blames_no_client(tmp_path: Path) -> None:
    """It told a client that had subscribed again at its successor that another one had."""

    async def story() -> None:
        async with running(tmp_path) as old:
            await old.subscribe(7, ALL, holder="first")
            async with running(tmp_path) as new:
                for client_id in (7, 8):
                    await new.subscribe(client_id, ALL, holder="second")
                with pytest.raises(Fenced):
                    await old.get_without_ack(7, 1, None, "second")
                with pytest.raises(Fenced):
                    await old.list_batch_ids(8, "second")

    run(story())


def test_the_record_of_the_instances_filter_is_nobodys_subscription(tmp_path: Path) -> None:
    """C4: no call takes a client id below 0."""

    async def story() -> None:
        async with running(tmp_path) as store:
            await store.change_instance_filter({"black_tables": r"shop\.secrets"})
            await store.wait_running(60)
            for call in (
                store.unsubscribe(-1),
                store.change_filter(-1, ALL),
                store.subscribe(-1, ALL),
                store.get_without_ack(-1, 1, None),
                store.list_batch_ids(-1),
            ):
                with pytest.raises(ConfigError, match="ids begin at 0"):
                    await call
            with pytest.raises(ConfigError, match="ids begin at 0"):
                await store.state.records.cursors.remove(store.state.guard.epoch, -1)
            assert await store.state.records.cursors.run(MetaManager.load_filter, NAME)
        async with running(tmp_path) as store:
            assert store.state.config.now.filter.black_tables == r"shop\.secrets"

    run(story())


def test_a_filter_by_which_nothing_comes_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """a2: who subscribes to what the destination leaves out is told, not given nothing."""

    async def story() -> None:
        config = instance(filter={"tables": r"shop\.customers"})
        async with running(tmp_path, config) as store:
            with pytest.raises(ConfigError, match=r"would show nothing.*subscribers = .replace"):
                await store.subscribe(7, r"shop\.orders")
            await store.subscribe(7, r"shop\.orders,shop\.customers")
            assert r"subscribes in part to nothing: what shop\.orders admits" in caplog.text
            with pytest.raises(ConfigError, match="would show nothing"):
                await store.change_filter(7, r"crm\..*")
            assert await store.filter_of(7) == r"shop\.orders,shop\.customers"

    run(story())


def test_a_filter_takes_the_place_of_the_destinations(tmp_path: Path) -> None:
    """a2: where the configuration says so, as in Canal; without one, the destination's counts."""

    async def story() -> None:
        where = {"tables": r"shop\.customers", "black_tables": "", "subscribers": "replace"}
        async with running(tmp_path, instance(filter=where)) as store:
            found = {}
            lists = {1: "", 2: r"shop\.orders", 3: ALL}
            for client_id, text in lists.items():
                await store.subscribe(client_id, text)
            for client_id in lists:
                heads = await drain(store, client_id, 1 << 20)
                found[client_id] = sum(head.row_count for head in heads)
            assert 0 < found[1] < found[3]
            assert 0 < found[2] < found[3]

    run(story())
