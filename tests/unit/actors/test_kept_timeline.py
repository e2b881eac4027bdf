"""The timeline that is kept with the cursors: written once for each log, by the owner alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.actors.kept_timeline import KeptTimeline
from ray_canal.errors import Fenced
from ray_canal.meta.manager import MetaManager
from ray_canal.meta.sqlite import SqliteBackend
from ray_canal.protocol.position import SourceIdentity

A, B = SourceIdentity("a:3306", "uuid-a"), SourceIdentity("b:3306", "uuid-b")


def test_a_new_process_goes_on_in_the_timeline_of_its_log(tmp_path: Path) -> None:
    """A6, b4: a restart is no change of the log; a failover, and the way back, are."""
    numbers = []
    for identity, same_log in ((A, False), (A, True), (A, True), (B, False), (B, True), (A, False)):
        meta = MetaManager(SqliteBackend(str(tmp_path / "meta.db")))
        epoch = meta.acquire("d")
        timeline = KeptTimeline("d")
        timeline.enter(meta, epoch, identity, same_log)
        assert meta.load_timeline("d") is not None
        numbers.append(timeline.number)
        meta.close()
    assert numbers[0] == numbers[1] == numbers[2] < numbers[3] == numbers[4] < numbers[5]


def test_an_owner_that_was_replaced_begins_no_timeline(tmp_path: Path) -> None:
    meta = MetaManager(SqliteBackend(str(tmp_path / "meta.db")))
    old = meta.acquire("d")
    KeptTimeline("d").enter(meta, old, A, False)
    known = meta.load_timeline("d")
    meta.acquire("d")
    timeline = KeptTimeline("d")
    with pytest.raises(Fenced):
        timeline.enter(meta, old, B, False)
    assert (timeline.number, meta.load_timeline("d")) == (0, known)
    meta.close()


def test_a_record_that_was_put_back_from_a_copy_gives_no_lower_one(tmp_path: Path) -> None:
    """A6: as long as the process lives that knows of a higher one."""
    meta = MetaManager(SqliteBackend(str(tmp_path / "meta.db")))
    epoch = meta.acquire("d")
    timeline = KeptTimeline("d")
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
