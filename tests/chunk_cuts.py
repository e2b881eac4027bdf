"""Binlog files cut into chunks of any size, smaller than a configuration may ask for."""

from __future__ import annotations

import pytest

from ray_canal.binlog.cutter import ChunkCutter
from ray_canal.source.files import BinlogFiles


def cut_files(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    """Have binlog files be read in chunks of this size."""
    monkeypatch.setattr(
        BinlogFiles, "_new_cutter", lambda self: ChunkCutter(chunk_bytes, 1 << 30, contiguous=True)
    )
