"""Subscribers whose cursors are purged or far behind: nobody else suffers."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ray_canal.demo import binlog_files
from ray_canal.errors import ConnectionLost, PositionNotFound, SubscriberReplaced
from ray_canal.model.position import EntryPosition
from ray_canal.model.schema_record import SchemaRecord
from ray_canal.model.subscription import Subscription
from tests.local_destination import (
    ALL,
    OtherServers,
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


async def one_left_behind(folder: Path) -> list[Path]:
    """The files of a log that subscriber 8 has read beyond the first, where 7 still is."""
    files = copied(folder)
    async with running(folder, instance(files, store=SMALL_LOG)) as store:
        await store.subscribe(7, ALL, wishes=Subscription(policy="detach"))
        await store.subscribe(8, ALL)
        assert await take(store, 7)
        done = await drain(store, 8)
        assert done[-1].end is not None
        assert done[-1].end.journal_name != files[0].name
    return files


def test_a_cursor_that_is_gone_fails_its_subscriber_alone(tmp_path: Path) -> None:
    """b2: one purged cursor takes nobody else down, in no generation; its calls say what to do."""

    async def story() -> None:
        files = await one_left_behind(tmp_path)
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


@pytest.mark.parametrize("action", ["expire", "remove"])
def test_no_two_batches_have_one_id_whoever_ends_a_catch_up(tmp_path: Path, action: str) -> None:
    """An ack of the first one that came late was taken for the second one's: rows were lost."""

    async def story() -> None:
        files = await one_left_behind(tmp_path)
        begin = Subscription(start=EntryPosition(files[0].name, 4))
        async with running(tmp_path, instance(files, store=SMALL_LOG)) as store:
            await store.subscribe(9, ALL, wishes=begin)
            before = await take(store, 9, seconds=30)
            await store.operate(9, action)
            await store.subscribe(9, ALL, wishes=begin)
            after = await take(store, 9, seconds=30)
            assert before is not None
            assert after is not None
            assert before.id < after.id

    run(story())


@pytest.mark.parametrize("action", ["copy", "rename"])
def test_a_copy_of_who_cannot_be_served_cannot_be_served(tmp_path: Path, action: str) -> None:
    """A cursor behind the end of a log that began again: the copy was given what comes behind it
    one day, and nothing of what comes before."""

    async def story() -> None:
        files = copied(tmp_path)
        async with running(tmp_path, instance(files)) as store:
            for client_id in (7, 8):
                await store.subscribe(client_id, ALL)
            assert await take(store, 8)
            await drain(store, 7)
        for path in files[1:]:
            path.unlink()
        async with running(tmp_path, instance(files[:1])) as store:
            await store.operate(7, action, 9)
            with pytest.raises(PositionNotFound, match="subscriber 9"):
                await store.get_without_ack(9, 4, 0.1)

    run(story())


@pytest.mark.parametrize("action", ["copy", "rename"])
def test_a_copy_that_is_made_during_a_failover_is_looked_for_at_the_next_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """Its cursor was taken for a place of the log that had begun before it was written."""

    async def story() -> None:
        with OtherServers() as servers:
            async with running(tmp_path, instance(binlog_files()[:1])) as store:
                await store.subscribe(7, ALL)
                assert await take(store, 7)
                records = store.state.records
                append, began, go = records.schemas.append, asyncio.Event(), asyncio.Event()

                async def slow(kept: Sequence[SchemaRecord]) -> None:
                    began.set()
                    await go.wait()
                    await append(kept)

                async def answered_late(*arguments: Any) -> None:
                    await save(*arguments)
                    if arguments[1].client_id == 9:
                        go.set()
                        await until(lambda: store.generations > 1)

                monkeypatch.setattr(records.schemas, "append", slow)
                save = records.cursors.save
                monkeypatch.setattr(records.cursors, "save", answered_late)
                failing_over = asyncio.create_task(servers.fail_over(store))
                await began.wait()
                await store.operate(7, action, 9)
                await failing_over
                await store.get_without_ack(9, 4, 10)
                cursor = store.state.subscribers.get(9).cursor
                assert cursor is not None
                assert cursor.identity == servers.now

    run(story())


def test_what_one_server_has_purged_is_looked_for_at_the_next(tmp_path: Path) -> None:
    """The first call after a failover was told what the server before had said."""

    async def story() -> None:
        files = await one_left_behind(tmp_path)
        purged = files.pop(0)
        kept = purged.rename(purged.with_suffix(".away"))
        async with running(tmp_path, instance(files, store=SMALL_LOG)) as store:
            with pytest.raises(PositionNotFound):
                await store.get_without_ack(7, 4, 0.1)
            kept.rename(purged)
            with OtherServers() as servers:
                await servers.fail_over(store)
                found = {each["client_id"]: each for each in await store.subscribers()}
                assert found[7]["failure"] is None

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


def test_who_begins_elsewhere_during_a_failover_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream would read the one server, and its cursor be one of the other."""

    async def story() -> None:
        files = binlog_files()
        config = instance(files, store=SMALL_LOG)
        place = EntryPosition(files[0].name, 4)
        with OtherServers() as servers:
            async with running(tmp_path, config) as store:
                await store.subscribe(1, ALL)
                schemas = store.state.records.schemas
                append, began, go = schemas.append, asyncio.Event(), asyncio.Event()

                async def slow(records: Sequence[SchemaRecord]) -> None:
                    if not began.is_set():
                        began.set()
                        await go.wait()
                    await append(records)

                monkeypatch.setattr(schemas, "append", slow)
                wishes = Subscription(start=place)
                subscribing = asyncio.create_task(store.subscribe(8, ALL, wishes=wishes))
                await began.wait()
                await servers.fail_over(store)
                go.set()
                with pytest.raises(ConnectionLost, match="try again"):
                    await subscribing
                assert [one["client_id"] for one in await store.subscribers()] == [1]
                await store.subscribe(8, ALL, wishes=wishes)
                head = await take(store, 8, seconds=10)
                assert head is not None
                assert head.start is not None
                assert head.start.journal_name == place.journal_name

    run(story())


def test_a_place_of_a_file_that_is_another_one_now_is_refused(tmp_path: Path) -> None:
    """A sink's new subscriber began in the midst of a log that was reset: rows were lost."""

    async def story() -> None:
        files = binlog_files()
        async with running(tmp_path, instance(files, store=SMALL_LOG)) as store:
            await store.subscribe(1, ALL)
            head = await take(store, 1)
            assert head is not None
            assert head.ack is not None
            assert head.ack.created_s
            place = EntryPosition(files[0].name, 4, created_s=head.ack.created_s)
            await store.subscribe(8, ALL, wishes=Subscription(start=place))
            other = replace(place, created_s=place.created_s + 1)
            with pytest.raises(PositionNotFound, match="is another file"):
                await store.subscribe(9, ALL, wishes=Subscription(start=other))
            assert [*store.state.subscribers.known] == [1, 8]

    run(story())
