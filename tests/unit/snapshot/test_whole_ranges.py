"""A border moves once all ranges up to it are in the log."""

from __future__ import annotations

from ray_canal.snapshot.plan import PlannedRange
from ray_canal.snapshot.row_reader import RangeOrder
from ray_canal.snapshot.tables import SnapshotTable
from ray_canal.snapshot.whole_ranges import WholeRanges
from tests.unit.snapshot.test_result import META


def planned(number: int, table: int = 0) -> PlannedRange:
    described = SnapshotTable(META, ("id",), "PRIMARY", 5, 100, True)
    return PlannedRange(table, (str(number),), RangeOrder(number, described, ""))


def test_a_range_that_is_there_waits_for_those_before_it() -> None:
    ranges = [planned(1), planned(2), planned(3), planned(4, table=1)]
    whole = WholeRanges()
    for one in ranges:
        whole.begin(one)
    whole.add(ranges[1])
    assert whole.take(0) is None
    whole.add(ranges[3])
    whole.add(ranges[0])
    assert whole.take(0) == ("2",)
    assert whole.take(0) is None
    whole.add(ranges[2])
    assert whole.take_all() == {0: ("3",), 1: ("4",)}
    assert whole.take_all() == {}
