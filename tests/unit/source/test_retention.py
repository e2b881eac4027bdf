"""The distance to what is purged next: bytes, seconds, and when to warn."""

from __future__ import annotations

import pytest

from ray_canal.errors import LostRange
from ray_canal.model.position import EntryPosition
from ray_canal.source.retention import PurgeDistance, describe_lost, purge_distance

BINLOGS = [("b.000009", 100), ("b.000010", 200), ("b.000011", 50)]
NOW = 1_000_000.0
DAY = 86_400


@pytest.mark.parametrize(
    ("name", "age_s", "retention_s", "bytes_", "seconds", "warning"),
    [
        ("b.000010", 600, DAY, 110, DAY - 600, ""),
        ("b.000010", DAY - 1800, DAY, 110, 1800, "in about 0.5 h"),
        ("b.000010", 2 * DAY, DAY, 110, -DAY, "in about 0.0 h"),
        ("b.000010", 600, 0, 110, None, ""),  # nothing expires
        ("b.000011", 2 * DAY, DAY, 310, None, ""),  # being written
        ("b.000009", 600, DAY, 10, DAY - 600, ""),  # not before tomorrow
        ("b.000009", 600, 0, 10, None, "next file to be purged"),
        ("b.000008", 600, DAY, None, None, "purged already"),
        ("c.000001", 600, DAY, None, None, ""),
    ],
)
def test_distance(
    name: str,
    age_s: float,
    retention_s: float,
    bytes_: int | None,
    seconds: float | None,
    warning: str,
) -> None:
    cursor = EntryPosition(name, 10, timestamp=int(NOW - age_s))
    found = purge_distance(BINLOGS, retention_s, cursor, NOW, 3600)
    assert (found.bytes, found.seconds) == (bytes_, seconds)
    assert warning in found.warning
    assert bool(warning) == bool(found.warning)


def test_nothing_known() -> None:
    assert purge_distance([], 0, EntryPosition("b.000009"), NOW, 1) == PurgeDistance()
    unknown_time = purge_distance(BINLOGS, DAY, EntryPosition("b.000010"), NOW, 1)
    assert unknown_time.seconds is None


def test_a_lost_range_says_what_is_known() -> None:
    assert describe_lost(LostRange("", "a.000002:4")) == "everything … a.000002:4"
    lost = LostRange("a.000001:9", "a.000002:4", "u:1-3", 86_400)
    told = "a.000001:9 … a.000002:4, transactions u:1-3, 1970-01-02 00:00:00Z … now"
    assert describe_lost(lost) == told
