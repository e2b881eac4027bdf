"""Bytes behind: the rest of this file and all of the later ones, by number, not by name."""

from __future__ import annotations

from ray_canal.config import SourceConfig
from ray_canal.demo import binlog_files
from ray_canal.source.lag import LagMeter, behind_bytes

BINLOGS = [("b.000009", 100), ("b.000010", 200), ("b.000011", 50)]


def test_bytes_behind() -> None:
    assert behind_bytes(BINLOGS, "b.000009", 40) == 60 + 200 + 50
    assert behind_bytes(BINLOGS, "b.000011", 50) == 0
    assert behind_bytes(BINLOGS, "b.000010", 260) == 50  # a size that is already out of date
    assert behind_bytes(BINLOGS, "b.000001", 4) is None


def test_files() -> None:
    files = binlog_files()
    meter = LagMeter(SourceConfig(files=tuple(str(path) for path in files)))
    total = sum(path.stat().st_size for path in files)
    assert meter.bytes_behind(files[0].name, 4) == total - 4
