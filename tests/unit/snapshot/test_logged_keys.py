"""A sequencer hears of keys once it is known what became of their transaction."""

from __future__ import annotations

import numpy as np
import pytest

from ray_canal.errors import TableMetaMismatch
from ray_canal.log.snapshot_sequencer import Placed, ReadRange
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import EntryPosition
from ray_canal.snapshot import logged_keys
from ray_canal.snapshot.changes import TouchedKeys
from ray_canal.snapshot.key_numbers import Keys
from ray_canal.snapshot.logged_keys import LoggedKeys, Sequencer
from ray_canal.snapshot.marks import PlaceLow, Stretch

TABLE, OTHER = ("d", "t"), ("d", "u")
HIGH = EntryPosition("b", 50)


class Log:
    """A log next to which rows of TABLE were read, when it ended at 50."""

    def __init__(self) -> None:
        self.sequencer = Sequencer()
        self.logged = LoggedKeys(self.sequencer)
        self.end = 10
        self.sequencer.begin(0)
        self.sequencer.read(ReadRange(0, TABLE, PlaceLow(EntryPosition("b", self.end)), HIGH))

    def grow(self, *found: TouchedKeys) -> None:
        self.end += 10
        self.logged.add(Stretch(GtidSet(), EntryPosition("b", self.end)), found)

    def due(self) -> list[Placed[Keys]]:
        return self.logged.due(HIGH)


def keys_of(*ids: int) -> Keys:
    return np.array([ids], np.uint64)


def ids_in(placed: Placed[Keys]) -> list[int]:
    return [int(key) for keys in placed.touched for key in keys[0]]


def test_the_end_says_what_became_of_all_parts_of_a_transaction() -> None:
    for end, expected in (("committed", [1, 2]), ("rollback_prepared", [])):
        log = Log()
        log.grow(TouchedKeys({TABLE: keys_of(1)}, ""))
        assert log.logged.is_inside
        log.grow(TouchedKeys({TABLE: keys_of(2)}, ""))
        assert sum(keys.size for keys in log.logged.kept) == 2
        if end != "committed":
            log.grow(TouchedKeys({}, "prepared", "x"))
            assert log.due() == []
            log.grow(TouchedKeys({TABLE: keys_of(3)}, "committed"), TouchedKeys({}, end, "other"))
            assert log.due() == []
            expected = [3]
        log.grow(TouchedKeys({}, end, "x" if end != "committed" else ""))
        assert not log.logged.is_inside
        [placed] = log.due()
        assert ids_in(placed) == expected
        assert not placed.is_unsure


def test_an_id_that_is_used_again_is_another_transaction() -> None:
    log = Log()
    log.grow(TouchedKeys({TABLE: keys_of(1)}, "prepared", "x"))
    log.grow(TouchedKeys({}, "commit_prepared", "x"))
    log.grow(TouchedKeys({TABLE: keys_of(2)}, "prepared", "x"))
    assert log.due() == []
    log.grow(TouchedKeys({}, "rollback_prepared", "x"))
    [placed] = log.due()
    assert ids_in(placed) == [1]


def test_what_is_undone_makes_rows_of_its_tables_unsure() -> None:
    for table, is_unsure in ((TABLE, True), (OTHER, False)):
        log = Log()
        log.grow(TouchedKeys({table: keys_of(1)}, "rolled_back"))
        [placed] = log.due()
        assert placed.is_unsure == is_unsure


def test_a_doubt_about_another_table_holds_nothing_up() -> None:
    log = Log()
    log.grow(TouchedKeys({OTHER: keys_of(1)}, "prepared", "x"))
    assert [placed.touched for placed in log.due()] == [()]
    assert log.sequencer.has_doubts
    log.grow(TouchedKeys({}, "commit_prepared", "x"))
    assert not log.sequencer.has_doubts


@pytest.mark.parametrize("end", ["commit_prepared", "rollback_prepared"])
def test_rows_in_doubt_are_left_out_where_they_hold_up_a_chunk_for_long(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logged_keys, "PATIENCE_S", 0.0)
    log = Log()
    assert not log.sequencer.is_held_up(HIGH)
    log.grow(TouchedKeys({TABLE: keys_of(1)}, "committed"))
    log.grow(TouchedKeys({TABLE: keys_of(2)}, "prepared", "x"))
    assert log.sequencer.is_held_up(HIGH)
    assert not log.sequencer.is_held_up(EntryPosition("b", 49))
    [placed] = log.due() or log.due()
    assert ids_in(placed) == [1, 2]
    assert placed.doubts == {"x"}
    log.logged.dropped(TABLE, placed.doubts)
    assert log.logged.lacks_rows
    log.grow(TouchedKeys({}, end, "other"))
    assert log.logged.lacks_rows
    if end == "commit_prepared":
        log.grow(TouchedKeys({}, end, "x"))
        assert not log.logged.undone
    else:
        with pytest.raises(TableMetaMismatch, match=r"d\.t: XA transactions .* read it again"):
            log.grow(TouchedKeys({}, end, "x"))
        assert log.logged.undone == {TABLE}
    assert not log.logged.lacks_rows
