"""Rows of prepared XA transactions in the target: there with a commit, gone with another."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.config import MirrorConfig
from ray_canal.sinks.databases import prepared_table
from ray_canal.sinks.databases.duckdb import DuckDatabase
from ray_canal.sinks.databases.prepared_table import PreparedTable, packed, unpacked
from ray_canal.sinks.databases.sender import Sender
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.rows import Rows
from ray_canal.views.row_places import place_at
from tests.unit.sinks.test_in_doubt import message_of

ID = "X'7831',X'',1"


def golden_rows(name: str = "mysql97/mysql_xa") -> Rows:
    message = message_of(name)
    ((_, chunk),) = message.chunks_by_part()
    batch = next(batch for batch in message.batches if "after" in batch.schema.names)
    return Rows(batch, chunk.layout.tables[0].meta)


class Target:
    """A file, and a sink's connection to it."""

    def __init__(self, path: Path) -> None:
        self.sender = Sender("s", "x", DuckDatabase(MirrorConfig(), path))
        self.sender.open()
        self.table = PreparedTable("s", self.sender, "ray_canal")
        self.table.open()

    def commit(self) -> None:
        self.sender.commit(self.table.write(), None)
        self.table.committed()

    def kept(self, xa_id: str = ID) -> int:
        return sum(rows.batch.num_rows for rows in self.table.rows(xa_id))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.duckdb"


def test_rows_come_back_as_they_were() -> None:
    rows = golden_rows()
    found = unpacked(packed(rows))
    assert found.meta == rows.meta
    assert found.batch.equals(rows.batch, check_metadata=True)
    bare = unpacked(packed(Rows(rows.batch, None)))
    assert bare.meta is None
    assert (bare.schema, bare.table, bare.key) == (rows.schema, rows.table, rows.key)
    with pytest.raises(SinkError, match="canal_prepared in the target cannot be read"):
        unpacked(packed(rows)[:100])


def test_what_is_kept_is_there_after_a_restart_until_its_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_table, "_PART_BYTES", 1)  # a row each
    rows, target = golden_rows(), Target(path)
    count = rows.batch.num_rows
    assert count > 1
    target.table.keep(ID, "t1", rows, place_at(rows.batch, 0))
    assert target.table.has(ID)
    assert target.kept() == count
    target.commit()
    target.sender.close()

    target = Target(path)
    assert target.table.has(ID)
    assert not target.table.has("another")
    found = [each.batch["position"].to_pylist() for each in target.table.rows(ID)]
    assert found == [[position] for position in rows.batch["position"].to_pylist()]
    target.table.keep(ID, "t1", rows, place_at(rows.batch, 0))  # the message comes again
    target.commit()
    assert target.kept() == count
    target.table.end(ID)
    assert not target.table.has(ID)
    assert target.kept() == 0
    target.table.abort()  # the commit failed
    assert target.kept() == count
    target.table.end(ID)
    target.commit()
    target.sender.close()

    target = Target(path)
    assert not target.table.has(ID)
    assert target.sender.database.own_rows("canal_prepared", ["id"], {"sink": "s"}) == []
    target.sender.close()


def test_an_id_that_is_used_again_has_the_rows_of_the_later_transaction(path: Path) -> None:
    """Nobody has seen the end of the first: the sink was moved past it."""
    rows, target = golden_rows(), Target(path)
    later = Rows(rows.batch.slice(1), rows.meta)
    target.table.keep(ID, "t1", rows, place_at(rows.batch, 0))
    target.commit()
    target.table.keep(ID, "t2", later, place_at(later.batch, 0))
    assert target.kept() == later.batch.num_rows
    target.table.abort()
    assert target.kept() == rows.batch.num_rows
    target.table.end(ID)
    target.table.keep(ID, "t2", later, place_at(later.batch, 0))
    target.commit()
    assert target.kept() == later.batch.num_rows
    target.sender.close()


def test_nothing_is_made_where_nothing_is_kept(path: Path) -> None:
    target = Target(path)
    target.table.end(ID)
    assert target.table.write() == []
    target.commit()
    with pytest.raises(SinkError, match="canal_prepared"):
        target.sender.database.own_rows("canal_prepared", ["id"], {"sink": "s"})
    target.sender.close()
