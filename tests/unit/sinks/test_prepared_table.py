"""Rows of prepared XA transactions in a target's table: there with a commit, gone with another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ray_canal.sinks import prepared_table
from ray_canal.sinks.port import Cursor, SinkError
from ray_canal.sinks.prepared_table import PreparedTable, packed, unpacked
from ray_canal.sinks.rows import Rows
from ray_canal.views.row_places import RowPlace, place_at
from tests.unit.sinks.test_in_doubt import message_of

ID = "X'7831',X'',1"
LATER = RowPlace(9, 9, 0, 0)


def golden_rows(name: str = "mysql97/mysql_xa") -> Rows:
    message = message_of(name)
    ((_, chunk),) = message.chunks_by_part()
    batch = next(batch for batch in message.batches if "after" in batch.schema.names)
    return Rows(batch, chunk.layout.tables[0].meta)


def place_of(rows: Rows) -> RowPlace:
    return place_at(rows.batch, 0)


class TableInMemory(PreparedTable):
    """A target; its table outlives the object."""

    def __init__(self, table: dict[bytes, dict[str, Any]]) -> None:
        super().__init__("s")
        self.table = table
        self.reads = 0
        self.open()

    place: Cursor | None = None

    def _read(self, columns: Sequence[str], which: Mapping[str, str]) -> Iterable[Sequence[Any]]:
        self.reads += 1
        return [
            [row[name] for name in columns]
            for row in self.table.values()
            if which.items() <= row.items()
        ]

    def _have_table(self) -> None:
        pass

    def commit(self) -> None:
        change = self._change()
        if change is not None:
            for part_id in change.deletes["id"].to_pylist():
                del self.table[part_id]
            self.table.update({row["id"]: row for row in change.upserts.to_pylist()})
        self.committed()

    def kept(self) -> int:
        return sum(rows.batch.num_rows for rows in self.rows(ID, LATER))


@pytest.fixture
def table() -> dict[bytes, dict[str, Any]]:
    return {}


Table = dict[bytes, dict[str, Any]]


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
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_table, "_PART_BYTES", 1)  # a row each
    rows, target = golden_rows(), TableInMemory(table)
    count = rows.batch.num_rows
    assert count > 1
    target.keep(ID, "t1", rows, place_of(rows))
    assert target.has(ID)
    assert target.kept() == count
    target.commit()
    assert len(table) == count

    target = TableInMemory(table)
    assert target.has(ID)
    assert not target.has("another")
    found = [each.batch["position"].to_pylist() for each in target.rows(ID, LATER)]
    assert found == [[position] for position in rows.batch["position"].to_pylist()]
    target.keep(ID, "t1", rows, place_of(rows))  # the message comes again
    target.commit()
    assert target.kept() == count
    target.end(ID)
    assert not target.has(ID)
    assert target.kept() == 0
    target.abort()  # the commit failed
    assert target.kept() == count
    target.end(ID)
    target.commit()
    assert not TableInMemory(table).has(ID)
    assert not table


def test_an_id_that_is_used_again_has_the_rows_of_the_later_transaction(table: Table) -> None:
    """Nobody has seen the end of the first: the sink was moved past it."""
    rows, target = golden_rows(), TableInMemory(table)
    later = Rows(rows.batch.slice(1), rows.meta)
    target.keep(ID, "t1", rows, place_of(rows))
    target.commit()
    target.keep(ID, "t2", later, place_of(later))
    assert target.kept() == later.batch.num_rows
    target.abort()
    assert target.kept() == rows.batch.num_rows
    target.end(ID)
    target.keep(ID, "t2", later, place_of(later))
    target.commit()
    assert target.kept() == later.batch.num_rows
    assert [row["of_transaction"] for row in table.values()] == ["t2"]


def test_an_end_gets_what_is_before_it_of_the_transaction_that_it_ends(table: Table) -> None:
    """Where the sink was moved back, a later one has the id already."""
    rows, target = golden_rows(), TableInMemory(table)
    place = place_of(rows)
    target.keep(ID, "t2", rows, place)
    assert not target.rows(ID, place)
    assert target.rows(ID, place._replace(row=place.row + 1))
    assert not target.rows(ID, LATER, "t1")
    assert target.rows(ID, LATER, "t2")


def test_rows_that_come_again_in_other_parts_are_kept_once(table: Table) -> None:
    rows = golden_rows()
    count = rows.batch.num_rows
    first, last = (Rows(rows.batch.slice(at, n), rows.meta) for at, n in ((0, 1), (1, count - 1)))
    for parts in ((rows,), (first, last), (rows,)):
        target = TableInMemory(table)
        for part in parts:
            target.keep(ID, "t1", part, place_of(part))
        assert target.kept() == count
        target.commit()
        assert len(table) == len(parts)
        assert target.kept() == count


def test_what_was_committed_here_is_not_read_again_unless_it_is_large(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, target = golden_rows(), TableInMemory(table)
    for most, reads in ((1 << 20, 1), (0, 2)):
        monkeypatch.setattr(prepared_table, "_HELD_BYTES", most)
        target.keep(ID, f"t{most}", replace(rows), place_of(rows))
        target.commit()
        assert target.kept() == rows.batch.num_rows
        assert target.reads == reads
