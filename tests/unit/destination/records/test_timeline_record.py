"""The timeline that is kept with the cursors: written once for each log, by the owner alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest import mock

import pytest

from ray_canal.config import MetaConfig
from ray_canal.destination.ownership import Claim, Ownership
from ray_canal.destination.records.timeline_record import TimelineRecord
from ray_canal.errors import Fenced, MetaUnavailable
from ray_canal.meta.manager import MetaManager
from ray_canal.meta.sqlite import SqliteBackend
from ray_canal.model.position import SourceIdentity
from ray_canal.model.timeline import NO_FILE, LogFile, Timeline

A, B = SourceIdentity("a:3306", "uuid-a"), SourceIdentity("b:3306", "uuid-b")


async def entered(folder: Path) -> tuple[Ownership, int, TimelineRecord]:
    """An owner's cursors and epoch, and its timeline in server A's log."""
    cursors = Ownership("d", MetaConfig(path=str(folder / "meta.db")), Claim())
    await cursors.open()
    epoch, timeline = await cursors.acquire(), TimelineRecord("d")
    await cursors.run(timeline.enter, epoch, A, False)
    return cursors, epoch, timeline


def test_a_new_process_goes_on_in_the_timeline_of_its_log(tmp_path: Path) -> None:
    """A6, b4: a restart is no change of the log; a failover, and the way back, are."""
    numbers = []
    for identity, same_log in ((A, False), (A, True), (A, True), (B, False), (B, True), (A, False)):
        meta = MetaManager(SqliteBackend(str(tmp_path / "meta.db")))
        epoch = meta.acquire("d")
        timeline = TimelineRecord("d")
        timeline.enter(meta, epoch, identity, same_log)
        assert meta.load_timeline("d") is not None
        numbers.append(timeline.number)
        meta.close()
    assert numbers[0] == numbers[1] == numbers[2] < numbers[3] == numbers[4] < numbers[5]


def test_a_timeline_of_a_catch_up_knows_what_the_log_beside_it_reached(tmp_path: Path) -> None:
    """The destination's own log goes on until it is opened again, and is of the new timeline until
    then: rows of a log that began again came below its rows."""
    meta = MetaManager(SqliteBackend(str(tmp_path / "meta.db")))
    epoch, file = meta.acquire("d"), LogFile("bin.000003", 5)
    timeline = TimelineRecord("d")
    timeline.enter(meta, epoch, A, False)
    first = timeline.number
    timeline.enter(meta, epoch, A, False, file)
    assert timeline.number > first
    assert timeline.reached == timeline.newest(meta) == file
    timeline.enter(meta, epoch, A, True, NO_FILE)
    assert timeline.reached == file
    meta.close()


def test_an_owner_that_was_replaced_begins_no_timeline(tmp_path: Path) -> None:
    meta = MetaManager(SqliteBackend(str(tmp_path / "meta.db")))
    old = meta.acquire("d")
    TimelineRecord("d").enter(meta, old, A, False)
    known = meta.load_timeline("d")
    meta.acquire("d")
    timeline = TimelineRecord("d")
    with pytest.raises(Fenced):
        timeline.enter(meta, old, B, False)
    assert (timeline.number, meta.load_timeline("d")) == (0, known)
    meta.close()


def test_a_record_that_was_put_back_from_a_copy_gives_no_lower_one(tmp_path: Path) -> None:
    """A6: as long as the process lives that knows of a higher one."""
    meta = MetaManager(SqliteBackend(str(tmp_path / "meta.db")))
    epoch = meta.acquire("d")
    timeline = TimelineRecord("d")
    timeline.enter(meta, epoch, A, False)
    old = meta.load_timeline("d")
    assert old is not None
    timeline.enter(meta, epoch, B, False)
    timeline.enter(meta, epoch, A, False)
    highest = timeline.number
    meta.save_timeline("d", epoch, old)
    timeline.enter(meta, epoch, A, True)
    assert timeline.number > highest
    meta.close()


def test_the_newest_file_is_noted_once_and_while_the_backend_is_away(tmp_path: Path) -> None:
    """A1, A6: before anything of it is handed out; a new timeline forgets it."""

    async def story() -> None:
        cursors, epoch, timeline = await entered(tmp_path)
        saved: list[LogFile] = []
        problems: list[str] = []
        away = iter([True, True])
        save = MetaManager.save_timeline

        def slow(self: MetaManager, destination: str, epoch: int, now: Timeline) -> None:
            problems.append(timeline.problem)
            if next(away, False):
                raise MetaUnavailable("away")
            saved.append(now.newest)
            save(self, destination, epoch, now)

        with mock.patch.object(MetaManager, "save_timeline", slow):
            for number, created_s in ((3, 7), (3, 7), (2, 6), (4, 0), (4, 8), (4, 8)):
                await timeline.reach(cursors, epoch, LogFile(f"bin.{number:06}", created_s))
        assert saved == [("bin.000003", 7), ("bin.000004", 8)]
        assert problems == ["", "away", "away", ""]
        assert timeline.problem == ""
        assert await cursors.run(TimelineRecord("d").newest) == ("bin.000004", 8)
        await cursors.run(timeline.enter, epoch, A, True)
        assert await cursors.run(timeline.newest) == ("bin.000004", 8)
        await cursors.run(timeline.enter, epoch, A, False)
        assert await cursors.run(timeline.newest) == NO_FILE
        await cursors.close()

    asyncio.run(story())


def test_the_newest_file_may_be_a_catch_ups(tmp_path: Path) -> None:
    """A6: who begins at the log's end is ahead of the destination's own log. A server that was put
    back to an older copy gave the ids of those rows to other ones, in the same timeline."""

    async def story() -> None:
        cursors, epoch, timeline = await entered(tmp_path)

        async def reach(name: str, is_own: bool) -> LogFile:
            await timeline.reach(cursors, epoch, LogFile(name, 7), is_own=is_own)
            return timeline.reached

        assert await reach("bin.000002", False) == ("bin.000002", 7)
        at_once = reach("bin.000003", True), reach("bin.000006", False), reach("bin.000004", True)
        await asyncio.gather(*at_once)
        assert timeline.reached == ("bin.000006", 7)
        assert await reach("bin.000005", True) == ("bin.000006", 7)
        assert await reach("old.000009", False) == ("bin.000006", 7)  # before log_bin was changed
        assert await reach("new.000001", True) == ("new.000001", 7)
        await cursors.close()

    asyncio.run(story())
