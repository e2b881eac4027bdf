"""Subscribers of a real destination that are removed: durably first, and whatever its state."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from ray_canal.demo import binlog_files
from ray_canal.errors import (
    CanalError,
    ConfigError,
    MetaUnavailable,
    PositionNotFound,
    PositionPurged,
    SubscriberReplaced,
    TransactionsMissing,
)
from ray_canal.meta.manager import MetaManager
from tests.local_destination import (
    ALL,
    SlowOpening,
    drain,
    follow_each_other,
    instance,
    meta_away,
    new_destination,
    run,
    running,
    take,
    until,
)

SMALL_LOG = {"buffer_size": 64, "memunit_bytes": 1024}


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
            assert 7 not in await store.state.records.cursors.load()

    run(story())


@pytest.mark.parametrize("error", [TransactionsMissing, PositionNotFound, PositionPurged])
def test_one_that_took_what_the_server_has_lost_leaves_a_timeline(
    error: type[CanalError], tmp_path: Path
) -> None:
    """A6: with another subscription of the same client id rows of a snapshot, which lie where the
    log ends now, had lower ids than what was lost. A purged log is the same one."""

    async def story() -> None:
        async with running(tmp_path, instance(store=SMALL_LOG)) as store:
            for client_id in (7, 8):
                await store.subscribe(client_id, ALL)
            timeline = store.state.records.timeline
            before = timeline.number
            await store.unsubscribe(8)
            assert timeline.number == before
            store.api._catch_ups.set_apart({7: error("it has lost that")})
            await store.unsubscribe(7)
            assert (timeline.number > before) == (error is not PositionPurged)
            await store.subscribe(7, ALL)
            head = await take(store, 7)
            assert head is not None
            assert head.timeline == timeline.number

    run(story())


def test_an_unsubscribe_whose_caller_goes_meanwhile_is_made_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is killed as it leaves: the log would wait for a subscriber that nobody has."""
    began, disk, remove = threading.Event(), threading.Event(), MetaManager.remove

    def slow(*arguments: Any) -> None:
        began.set()
        assert disk.wait(60)
        remove(*arguments)

    async def story() -> None:
        async with running(tmp_path, instance(store=SMALL_LOG)) as store:
            for client_id in (7, 8):
                await store.subscribe(client_id, ALL)
            monkeypatch.setattr(MetaManager, "remove", slow)
            leaving = asyncio.create_task(store.unsubscribe(7))
            await until(began.is_set)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            disk.set()
            await until(lambda: 7 not in store.state.subscribers.known)
            pipeline = store.state.log.pipeline
            assert pipeline is not None
            await until(lambda: list(pipeline.store.stats()["subscribers"]) == ["8"])
            while (await store.status())["state"] != "finished":
                await drain(store, 8)

    run(story())


def test_a_subscriber_is_removed_while_the_destination_has_failed(tmp_path: Path) -> None:
    """b2: what keeps the destination from its start can be seen and removed without a log."""

    async def story() -> None:
        files = [Path(shutil.copy(path, tmp_path)) for path in binlog_files()]
        async with running(tmp_path, instance(files)) as store:
            await store.subscribe(7, ALL, holder="a connector")
            assert await take(store, 7, holder="a connector")
        store = new_destination(tmp_path, instance(files[1:]))
        try:
            with pytest.raises(PositionNotFound):
                await store.wait_running(30)
            (found,) = await store.subscribers()
            assert (found["client_id"], found["held_by"]) == (7, "ray")
            assert found["cursor"].startswith(files[0].name)
            with pytest.raises(SubscriberReplaced):
                await store.unsubscribe(7, "somebody else")
            assert await store.unsubscribe(7)
            assert not await store.unsubscribe(7)
            await until(lambda: store.state.supervisor.state == "running")
            assert await store.subscribers() == []
        finally:
            await store.stop()

    run(story())


def test_a_subscriber_is_removed_while_the_destination_starts(tmp_path: Path) -> None:
    """b2: an upstream that takes minutes to open holds up no list and no removal."""

    async def story() -> None:
        async with running(tmp_path) as store:
            for client_id in (7, 8):
                await store.subscribe(client_id, ALL)
        with SlowOpening() as opening:
            store = new_destination(tmp_path)
            try:
                await opening.began.wait()
                assert [found["client_id"] for found in await store.subscribers()] == [7, 8]
                assert await store.unsubscribe(7)
                assert [found["client_id"] for found in await store.subscribers()] == [8]
                opening.go.set()
                await store.wait_running(30)
                assert list((await store.status())["store"]["subscribers"]) == ["8"]
            finally:
                await store.stop()

    run(story())


def test_a_damaged_record_is_removed(tmp_path: Path) -> None:
    """b2: the error names the command, and the command works."""

    async def story() -> None:
        async with running(tmp_path) as store:
            for client_id in (7, 8):
                await store.subscribe(client_id, ALL)
        with sqlite3.connect(tmp_path / "meta.db") as database:
            database.execute("update subscriber set record = '{}' where client_id = 7")
        store = new_destination(tmp_path)
        try:
            with pytest.raises(ConfigError, match="ray-canal unsubscribe x 7"):
                await store.wait_running(30)
            assert await store.unsubscribe(7)
            await until(lambda: store.state.supervisor.state == "running")
            assert [found["client_id"] for found in await store.subscribers()] == [8]
        finally:
            await store.stop()

    run(story())


def test_a_cursor_that_moves_while_its_subscriber_expires_is_not_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the log begins is written first, and takes its time; what was known of the subscriber
    before that was written over what came meanwhile."""

    async def story() -> None:
        async with running(tmp_path, instance(store=SMALL_LOG, runs="always")) as store:
            await store.subscribe(7, ALL)
            table, cursors = store.state.subscribers, store.state.records.cursors
            go = asyncio.Event()
            keep, was = cursors.keep, table.get(7).cursor
            assert was is not None
            there = dataclasses.replace(was.position, position=was.position.position + 9)
            now = dataclasses.replace(was, position=there)

            async def slow(*args: Any) -> None:
                await go.wait()
                await keep(*args)

            monkeypatch.setattr(cursors, "keep", slow)
            expiring = asyncio.create_task(store.operate(7, "expire"))
            await asyncio.sleep(0.05)
            await table.move_cursor(7, was, now)
            go.set()
            await expiring
            assert (await cursors.load())[7].cursor == table.get(7).cursor == now
            assert table.get(7).expired

    run(story())
