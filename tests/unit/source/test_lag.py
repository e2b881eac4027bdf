"""Bytes behind: the rest of this file and all of the later ones, by number, not by name."""

from __future__ import annotations

import pytest

from ray_canal.config import SourceConfig
from ray_canal.demo import binlog_files
from ray_canal.model.position import EntryPosition
from ray_canal.source.lag import LagMeter, behind_bytes

BINLOGS = [("b.000009", 100), ("b.000010", 200), ("b.000011", 50)]


def test_bytes_behind() -> None:
    assert behind_bytes(BINLOGS, "b.000009", 40) == 60 + 200 + 50
    assert behind_bytes(BINLOGS, "b.000011", 50) == 0
    assert behind_bytes(BINLOGS, "b.000010", 260) == 50  # a size that is already out of date
    assert behind_bytes(BINLOGS, "b.000001", 4) is None


def test_a_file_that_was_seen_written_is_purged_no_sooner_than_its_retention_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also for a cursor without a time: of a subscriber that has acked nothing yet."""
    meter = LagMeter(SourceConfig(address="127.0.0.1:1"))
    now = [1000.0]
    monkeypatch.setattr("ray_canal.source.lag.time.time", lambda: now[0])
    monkeypatch.setattr("ray_canal.source.lag._ASK_EVERY_S", -1.0)
    monkeypatch.setattr(meter, "_list", lambda: BINLOGS[: 2 if now[0] < 1060 else 3])
    monkeypatch.setattr(meter, "_retention_s", 3600.0)
    cursor = EntryPosition("b.000010", 10)
    current = meter.purge_distance(cursor)
    assert current is not None
    assert current.seconds is None  # it is being written
    now[0] = 1060.0
    rotated = meter.purge_distance(cursor)
    assert rotated is not None
    assert rotated.seconds == 1000.0 + 3600.0 - 1060.0
    before = meter.purge_distance(EntryPosition("b.000009", 10))
    assert before is not None
    assert before.seconds is None  # it was never seen


def test_files() -> None:
    files = binlog_files()
    meter = LagMeter(SourceConfig(files=tuple(str(path) for path in files)))
    total = sum(path.stat().st_size for path in files)
    assert meter.bytes_behind(files[0].name, 4) == total - 4
