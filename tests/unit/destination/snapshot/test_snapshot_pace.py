"""What keeps a snapshot from reading more, and how fast it is."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from ray_canal.config import SnapshotConfig
from ray_canal.destination.snapshot.snapshot_pace import Pace
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import EntryPosition
from ray_canal.snapshot.governor import LoadReading
from ray_canal.snapshot.key_ranges import FIRST_ROWS
from ray_canal.snapshot.marks import ExecutedLow
from ray_canal.snapshot.row_reader import RangeRead

READ = RangeRead(1, 1000, 9000, ExecutedLow(GtidSet()), EntryPosition("x.1", 4), 0.1)


def test_nothing_refuses_by_default() -> None:
    pace = Pace(SnapshotConfig())
    pace.read(READ)
    assert pace.refuses(0) == ""


def test_the_rate_makes_the_next_range_wait() -> None:
    pace = Pace(SnapshotConfig(rows_per_s=100_000))
    pace.read(READ)
    assert "100,000 rows/s" in pace.refuses(0)
    time.sleep(0.011)
    assert pace.refuses(0) == ""


def test_a_server_with_too_much_to_do_is_let_alone() -> None:
    pace = Pace(SnapshotConfig(readers=2))
    pace.governor.observe(LoadReading(99), 1.0)
    assert pace.refuses(0) == ""
    assert "99 threads" in pace.refuses(1)


def test_a_chunk_is_as_large_as_a_second_allows() -> None:
    pace = Pace(SnapshotConfig())
    assert pace.rows_of(900_000, 18) == FIRST_ROWS
    assert pace.rows_of(900_000, 9000) == 100
    pace.read(READ)  # 10,000 rows a second, of 9 bytes
    assert pace.rows_of(900_000, 18) == 10_000
    assert pace.rows_of(45_000, 18) == 5_000
    pace.read(replace(READ, seconds=10.0))
    assert pace.rows_of(900_000, 18) == 100_000 // 16
    pace.begin_table(1)
    assert pace.rows_of(900_000, 18) == FIRST_ROWS
    pace.read(replace(READ, size_bytes=1000), table=0)  # the last range of the table before
    assert pace.rows_of(900_000, 18) == FIRST_ROWS
    pace.read(READ, table=1)
    assert pace.rows_of(900_000, 18) == 10_000


def test_estimates_are_corrected_by_what_came() -> None:
    pace = Pace(SnapshotConfig())
    pace.read(READ, estimate=2000)  # twice as many
    assert pace.rows_of(45_000, 18) == 2 * 5_000
    pace.read(READ, estimate=100_000)
    assert pace.rows_of(45_000, 18) == 4 * 5_000
    pace.read(replace(READ, rows=3), estimate=1)  # of a gap: it says nothing
    assert pace.rows_of(45_000, 18) == 4 * 5_000


def test_it_says_how_much_slower_a_row_is_than_at_first() -> None:
    pace = Pace(SnapshotConfig())
    for _ in range(8):
        assert pace.take_slower() is None
        pace.read(READ)
    assert pace.take_slower() == pytest.approx(1.0)
    for _ in range(3):
        assert pace.take_slower() is None  # it counts once
        pace.read(replace(READ, seconds=0.4))
    assert pace.take_slower() == pytest.approx(4.0)
    pace.begin_table(1)
    pace.read(READ, table=1)
    assert pace.take_slower() is None


@pytest.mark.parametrize(
    ("hours", "clock", "open_"),
    [
        ("22:00-06:00", (23, 0), True), ("22:00-06:00", (5, 59), True),
        ("22:00-06:00", (6, 0), False), ("09:00-17:30", (17, 29), True),
        ("09:00-17:30", (8, 59), False),
    ],
)  # fmt: skip
def test_hours(
    hours: str, clock: tuple[int, int], open_: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = time.struct_time((2026, 1, 1, *clock, 0, 3, 1, 0))
    monkeypatch.setattr(time, "gmtime", lambda: at)
    assert (Pace(SnapshotConfig(hours=hours)).refuses(0) == "") is open_


def test_the_rate_of_the_last_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    pace, now_s = Pace(SnapshotConfig()), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    assert pace.rows_per_s == 0.0
    for second in range(30):
        now_s[0] = 100.0 + second
        pace.acked(500 * second)
    assert pace.rows_per_s == pytest.approx(500, rel=0.1)
    now_s[0] += 60
    assert pace.rows_per_s == 0.0
