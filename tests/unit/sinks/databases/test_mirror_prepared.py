"""Rows of prepared XA transactions next to a mirror's cursors."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.config import MirrorConfig
from ray_canal.sinks.databases.duckdb import DuckDatabase
from ray_canal.sinks.databases.mirror_prepared import MirrorPrepared
from ray_canal.sinks.databases.sender import Sender
from ray_canal.sinks.port import SinkError
from tests.unit.sinks.test_prepared_table import ID, LATER, golden_rows, place_of


class Target:
    """A file, and a sink's connection to it."""

    def __init__(self, path: Path) -> None:
        self.sender = Sender("s", "x", DuckDatabase(MirrorConfig(), path))
        self.sender.open()
        self.table = MirrorPrepared("s", self.sender, "ray_canal")
        self.table.open()

    def commit(self) -> None:
        self.sender.commit(self.table.write(), None)
        self.table.committed()

    def kept(self) -> int:
        return sum(rows.batch.num_rows for rows in self.table.rows(ID, LATER))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.duckdb"


def test_what_is_kept_is_there_after_a_restart_until_its_end(path: Path) -> None:
    rows, target = golden_rows(), Target(path)
    target.table.keep(ID, "t1", rows, place_of(rows))
    target.commit()
    target.sender.close()

    target = Target(path)
    assert target.kept() == rows.batch.num_rows
    target.table.end(ID)
    target.commit()
    target.sender.close()

    target = Target(path)
    assert not target.table.has(ID)
    assert target.sender.database.own_rows("canal_prepared", ["id"], {"sink": "s"}) == []
    target.sender.close()


def test_nothing_is_made_where_nothing_is_kept(path: Path) -> None:
    target = Target(path)
    target.table.end(ID)
    assert target.table.write() == []
    target.commit()
    with pytest.raises(SinkError, match="canal_prepared"):
        target.sender.database.own_rows("canal_prepared", ["id"], {"sink": "s"})
    target.sender.close()
