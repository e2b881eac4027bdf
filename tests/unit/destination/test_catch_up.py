"""Subscribers of a real destination with purged or old cursors: nobody else suffers."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from ray_canal.demo import binlog_files
from ray_canal.destination import expiry
from ray_canal.errors import NotSubscribed, PositionNotFound, SubscriberReplaced
from ray_canal.model.subscription import Subscription, new_client_id
from tests.local_destination import (
    ALL,
    drain,
    follow_each_other,
    instance,
    lose_source,
    new_destination,
    run,
    running,
    take,
    until,
)

SMALL_LOG = {"buffer_size": 64, "memunit_bytes": 1024}


def copied(folder: Path) -> list[Path]:
    return [Path(shutil.copy(path, folder)) for path in binlog_files()]


def test_a_cursor_that_is_gone_fails_its_subscriber_alone(tmp_path: Path) -> None:
    """b2: one purged cursor takes nobody else down, in no generation; its calls say what to do."""

    async def story() -> None:
        files = copied(tmp_path)
        async with running(tmp_path, instance(files, store=SMALL_LOG)) as store:
            await store.subscribe(7, ALL, wishes=Subscription(policy="detach"))
            await store.subscribe(8, ALL)
            assert await take(store, 7)
            done = await drain(store, 8)
            assert done[-1].end is not None
            assert done[-1].end.journal_name != files[0].name
        files.pop(0).unlink()
        async with running(tmp_path, instance(files, store=SMALL_LOG)) as store:
            for _ in range(2):
                for _ in range(3):
                    with pytest.raises(PositionNotFound, match="ray-canal unsubscribe x") as told:
                        await store.get_without_ack(7, 4, 0.1)
                    assert "subscriber 7: no binlog file" in str(told.value)
                found = {each["client_id"]: each for each in await store.subscribers()}
                assert "PositionNotFound" in found[7]["failure"]
                assert found[8]["failure"] is None
                await take(store, 8)
                before = store.generations
                if store.state.log.pipeline is not None and not store.state.log.pipeline.ended:
                    lose_source(store)
                    await until(lambda n=before: store.generations > n)
            await store.unsubscribe(7)
            await store.subscribe(7, ALL)
            await take(store, 7)

    run(story())


def test_somebody_new_comes_in_where_all_cursors_are_gone(tmp_path: Path) -> None:
    """b2: a destination whose only cursor is purged tells so, and is not closed to others."""

    async def story() -> None:
        files = copied(tmp_path)
        async with running(tmp_path, instance(files)) as store:
            await store.subscribe(7, ALL)
            assert await take(store, 7)
        files.pop(0).unlink()
        store = new_destination(tmp_path, instance(files))
        try:
            with pytest.raises(PositionNotFound, match="subscriber 7"):
                await store.wait_running(30)
            with pytest.raises(PositionNotFound):
                await store.subscribe(7, ALL)
            await store.subscribe(8, ALL)
            first = await take(store, 8)
            assert first is not None
            with pytest.raises(PositionNotFound):
                await store.subscribe(7, ALL)
            lose_source(store)
            await until(lambda: store.generations == 2)
            second = await take(store, 8, seconds=10)
            assert second is not None
            assert follow_each_other([first, second])
        finally:
            await store.stop()

    run(story())


def test_who_is_refused_for_its_cursor_may_remove_it(tmp_path: Path) -> None:
    """b2: a client that comes back as another connector and finds its cursor purged was told that
    yet another one had subscribed, and could only ask an operator."""

    async def story() -> None:
        files = copied(tmp_path)
        async with running(tmp_path, instance(files)) as store:
            await store.subscribe(7, ALL, holder="before")
            assert await take(store, 7, holder="before")
        files.pop(0).unlink()
        store = new_destination(tmp_path, instance(files))
        try:
            with pytest.raises(PositionNotFound):
                await store.subscribe(7, ALL, holder="now")
            with pytest.raises(SubscriberReplaced):
                await store.unsubscribe(7, "before")
            assert await store.unsubscribe(7, "now")
            await store.subscribe(7, ALL, holder="now")
            assert await take(store, 7, holder="now", seconds=10)
        finally:
            await store.stop()

    run(story())


def test_nobody_reads_again_for_one_who_is_far_behind(tmp_path: Path) -> None:
    """b16: a new life begins at the newest cursors; who is more than a log behind catches up by a
    stream of its own, misses nothing, and comes back."""

    async def story() -> None:
        config = instance(binlog_files()[:1], store=SMALL_LOG)
        async with running(tmp_path, config) as store:
            await store.subscribe(8, ALL)
            start = store.state.subscribers.known[8].cursor
            assert start is not None
            heads = [head for _ in range(120) if (head := await take(store, 8, 1)) is not None]
            late = heads[-1].ack
            assert late is not None
            assert late.position - start.position.position > 2 * 64 * 1024
            await store.subscribe(7, ALL, wishes=Subscription(start=start.position))
            first = await take(store, 7)
            assert first is not None
        async with running(tmp_path, config) as store:
            assert store.state.log.start == late
            following = await take(store, 8)
            assert following is not None
            assert follow_each_other([heads[-1], following])
            assert (await store.status())["store"]["subscribers"]["7"]["detached"]
            rest = await drain(store, 7)
            while await drain(store, 8) and (more := await drain(store, 7)):
                rest += more
            assert follow_each_other([first, *rest])
            cursors = {each["client_id"]: each["cursor"] for each in await store.subscribers()}
            assert cursors[7] == cursors[8]
            assert "detached" not in (await store.status())["store"]["subscribers"]["7"]

    run(story())


def test_who_does_not_call_any_more_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B5: subscriber_expire_hours: the log does not wait for who is gone; it is shown, also after a
    restart, and who comes back all the same misses nothing."""

    async def story() -> None:
        config = instance(store={**SMALL_LOG, "subscriber_expire_hours": 2 / 3600})
        async with running(tmp_path, config) as store:
            for client_id in (7, 8):
                await store.subscribe(client_id, ALL)
            first = await take(store, 7)
            assert first is not None
            while not store.state.subscribers.known[7].expired:
                await take(store, 8)
            assert store.state.log.pipeline is not None
            assert store.state.log.pipeline.store.held_by() in ([], [8])
            assert "subscriber 7 goes by a dump of its own: it made no call" in caplog.text
            done = await drain(store, 8)
            assert done[-1].end is not None
        async with running(tmp_path, config) as store:
            found = {each["client_id"]: each for each in await store.subscribers()}
            assert found[7]["expired_at"]
            assert not found[8]["expired_at"]
            assert store.state.log.start == store.state.subscribers.known[8].position
            await store.subscribe(7, ALL)
            assert not store.state.subscribers.known[7].expired
            rest = await drain(store, 7)
            assert follow_each_other([first, *rest])
            assert rest[-1].end == done[-1].end

    run(story())


def test_who_holds_a_full_log_is_named(tmp_path: Path) -> None:
    """B5: status says who keeps the log from going on, for how long, and when it last called."""

    async def story() -> None:
        config = instance(binlog_files()[:1], store=SMALL_LOG)
        async with running(tmp_path, config) as store:
            for client_id in (7, 8):
                await store.subscribe(client_id, ALL)
            await drain(store, 8)
            log = (await store.status())["store"]
            assert log["held_by"] == [7]
            assert log["full_s"] > 0.2
            assert log["subscribers"]["7"]["last_call_s"] > log["subscribers"]["8"]["last_call_s"]
            while await drain(store, 7) + await drain(store, 8):
                continue
            log = (await store.status())["store"]
            assert (log["held_by"], log["full_s"]) == ([], 0.0)

    run(story())


def test_an_ephemeral_subscriber_that_is_silent_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1: who only looks on holds up nobody, and is removed when its client is gone."""

    async def story() -> None:
        monkeypatch.setattr(expiry, "TICK_S", 0.1)
        monkeypatch.setattr(expiry, "EPHEMERAL_S", 1.0)
        async with running(tmp_path, instance(binlog_files()[:1], store=SMALL_LOG)) as store:
            await store.subscribe(8, ALL)
            guest, wishes = new_client_id(), Subscription(policy="detach", ephemeral=True)
            await store.subscribe(guest, ALL, wishes=wishes, holder="a guest")
            assert await take(store, guest, holder="a guest")
            for _ in range(20):
                await asyncio.sleep(0.1)
                await store.touch(guest, "a guest")
            assert {each["client_id"] for each in await store.subscribers()} == {8, guest}
            await until(lambda: guest not in store.state.subscribers.known)
            assert set(await store.state.records.cursors.load()) == {8}
            with pytest.raises(NotSubscribed, match="should subscribe first"):
                await store.get_without_ack(guest, 1, None, "a guest")
            with pytest.raises(NotSubscribed, match="ephemeral"):
                await store.touch(guest, "a guest")
            assert await take(store, 8)

    run(story())
