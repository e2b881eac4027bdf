"""A sequencer hears of keys once it is known what became of their transaction."""

from __future__ import annotations

import numpy as np
import pytest

from ray_canal.log.snapshot_sequencer import Placed, ReadRange
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import EntryPosition
from ray_canal.model.savepoints import SavepointStatement
from ray_canal.schema.names import Name
from ray_canal.snapshot.changes import TouchedKeys
from ray_canal.snapshot.key_numbers import Keys
from ray_canal.snapshot.logged_keys import LoggedKeys, Sequencer
from ray_canal.snapshot.marks import PlaceLow, Stretch

TABLE, OTHER = ("d", "t"), ("d", "u")
HIGH = EntryPosition("b", 50)
UNDONE = "rollback_prepared"


class Log:
    """A log next to which rows of TABLE were read, when it ended at 50."""

    def __init__(self, transactional: tuple[Name, ...] = ()) -> None:
        self.sequencer = Sequencer()
        self.logged = LoggedKeys(self.sequencer, transactional)
        self.end = 10
        self.sequencer.begin(0)
        self.sequencer.read(ReadRange(0, TABLE, PlaceLow(EntryPosition("b", self.end)), HIGH))

    def grow(self, *found: TouchedKeys) -> None:
        self.end += 10
        self.logged.add(Stretch(GtidSet(), EntryPosition("b", self.end)), found)

    def due(self) -> list[Placed[Keys]]:
        return self.sequencer.due(HIGH)


def keys_of(*ids: int) -> Keys:
    return np.array([ids], np.uint64)


def ids_in(placed: Placed[Keys]) -> list[int]:
    return ids_of(placed.touched)


def ids_of(runs: tuple[Keys, ...]) -> list[int]:
    return [int(key) for keys in runs for key in keys[0]]


def test_the_end_says_what_became_of_all_parts_of_a_transaction() -> None:
    for end, expected in (("committed", [1, 2]), ("rollback_prepared", [])):
        log = Log()
        log.grow(TouchedKeys({TABLE: keys_of(1)}, ""))
        assert log.logged.is_inside
        log.grow(TouchedKeys({TABLE: keys_of(2)}, ""))
        assert sum(keys.size for keys in log.logged.kept) == 2
        if end != "committed":
            log.grow(TouchedKeys({}, "prepared", "x"))
            [placed] = log.due()
            assert (ids_in(placed), ids_of(placed.doubted)) == ([], [1, 2])
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
    [placed] = log.due()
    assert (ids_in(placed), ids_of(placed.doubted)) == ([1], [2])
    log.grow(TouchedKeys({}, UNDONE, "x"))
    [placed] = log.due()
    assert ids_in(placed) == [1]


@pytest.mark.parametrize(
    ("table", "transactional", "is_unsure"),
    [(TABLE, (), True), (TABLE, (TABLE,), False), (OTHER, (), False)],
)
def test_what_is_undone_touches_tables_without_transactions_alone(
    table: Name, transactional: tuple[Name, ...], is_unsure: bool
) -> None:
    log = Log(transactional)
    log.grow(TouchedKeys({table: keys_of(1)}, "rolled_back"))
    log.grow(TouchedKeys({table: keys_of(2)}, "committed"))
    [placed] = log.due()
    assert placed.is_unsure == is_unsure
    assert is_unsure or ids_in(placed) == ([2] if table == TABLE else [])


def savepoint(name: str, *, undoes: bool = False) -> TouchedKeys:
    return TouchedKeys({}, "", savepoint=SavepointStatement(0, 0, 0, name, undoes))


def test_what_a_savepoint_undoes_is_not_touched() -> None:
    log = Log((TABLE,))
    log.grow(TouchedKeys({TABLE: keys_of(1)}, ""), savepoint("a"))
    log.grow(TouchedKeys({TABLE: keys_of(2)}, ""), savepoint("b"))
    log.grow(TouchedKeys({TABLE: keys_of(3)}, ""), savepoint("a", undoes=True))
    log.grow(TouchedKeys({TABLE: keys_of(4)}, ""), TouchedKeys({}, "committed"))
    [placed] = log.due()
    assert (ids_in(placed), placed.is_unsure) == ([1, 4], False)


def test_a_savepoint_from_before_the_reading_undoes_all_that_is_kept() -> None:
    log = Log((TABLE,))
    log.grow(TouchedKeys({TABLE: keys_of(1)}, ""), savepoint("old", undoes=True))
    log.grow(TouchedKeys({TABLE: keys_of(2)}, "committed"))
    [placed] = log.due()
    assert ids_in(placed) == [2]


def test_what_a_savepoint_undoes_in_a_table_without_transactions_is_unsure() -> None:
    log = Log()
    log.grow(savepoint("a"), TouchedKeys({TABLE: keys_of(1)}, ""), savepoint("a", undoes=True))
    log.grow(TouchedKeys({}, "committed"))
    [placed] = log.due()
    assert placed.is_unsure


def test_a_doubt_about_another_table_holds_nothing_up() -> None:
    log = Log()
    log.grow(TouchedKeys({OTHER: keys_of(1)}, "prepared", "x"))
    assert [placed.touched for placed in log.due()] == [()]
    assert log.sequencer.has_doubts
    log.grow(TouchedKeys({}, "commit_prepared", "x"))
    assert not log.sequencer.has_doubts


@pytest.mark.parametrize(("end", "left"), [("commit_prepared", [1, 2, 3]), (UNDONE, [1, 3])])
def test_rows_in_doubt_wait_for_their_own_transactions(end: str, left: list[int]) -> None:
    log = Log()
    log.grow(TouchedKeys({TABLE: keys_of(1)}, "committed"))
    log.grow(TouchedKeys({TABLE: keys_of(2)}, "prepared", "x"))
    [placed] = log.due()
    assert (ids_in(placed), ids_of(placed.doubted)) == ([1], [2])
    assert log.due() == []
    assert log.sequencer.waiting == 1
    log.grow(TouchedKeys({}, end, "other"), TouchedKeys({TABLE: keys_of(3)}, "prepared", "y"))
    log.sequencer.seen(PlaceLow(EntryPosition("b", log.end)))
    assert log.due() == []
    log.grow(TouchedKeys({}, end, "x"))
    [placed] = log.due()
    assert (ids_in(placed), ids_of(placed.doubted)) == ([k for k in left if k != 3], [3])
    log.grow(TouchedKeys({}, "commit_prepared", "y"))
    [placed] = log.due()
    assert (ids_in(placed), placed.doubted) == (left, ())
    assert log.sequencer.waiting == 0


def test_a_chunk_without_rows_in_doubt_waits_for_nothing() -> None:
    log = Log()
    log.grow(TouchedKeys({TABLE: keys_of(2)}, "prepared", "x"))
    [placed] = log.due()
    log.sequencer.done(placed.number)
    assert log.sequencer.waiting == 0
    log.grow(TouchedKeys({}, UNDONE, "x"))
    assert log.due() == []
