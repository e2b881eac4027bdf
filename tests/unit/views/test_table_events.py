"""Changes of tables as a whole in Arrow batches: of golden files, at their place, filtered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.errors import ConfigError
from ray_canal.filter import FieldFilter
from ray_canal.model.log_context import LogContext
from ray_canal.model.table_event import ERASE, RENAME, STATEMENT, TRUNCATE
from ray_canal.offline import decode_batches, decode_chunks
from ray_canal.schema import event_parser
from ray_canal.views.arrow import batches
from ray_canal.views.table_events import change_batches, is_of_table
from ray_canal.views.transform import Transform
from tests.golden import GOLDEN

KINDS = {TRUNCATE, ERASE, RENAME, STATEMENT}
DDL = GOLDEN / "mysql97" / "mysql_ddl.binlog"
STATEMENTS = GOLDEN / "mysql97" / "mysql_stmt.binlog"


def found_in(path: Path, tables: str = r".*\..*") -> list[tuple[str, str, str]]:
    """(event type, table, other name) of the batches that are of tables as a whole."""
    found = []
    for part in decode_batches([path], tables=tables):
        for batch in part:
            if is_of_table(batch):
                notes = batch.schema.metadata
                other = notes.get(b"canal.renamed_from") or notes.get(b"canal.renamed_to") or b""
                for kind in batch["event_type"].to_pylist():
                    found.append((kind, notes[b"canal.table"].decode(), other.decode()))
    return found


def test_what_statements_do_to_tables_is_in_the_batches() -> None:
    """b8: in log order, with the table's columns, and no images."""
    found = found_in(DDL)
    assert ("TRUNCATE", "d3", "") in found
    assert found.index(("RENAME", "d1_new", "g_ddl.d1")) + 1 == found.index(
        ("ERASE", "d1", "g_ddl.d1_new")
    )
    assert {kind for kind, _, _ in found} == KINDS
    places = []
    for part in decode_batches([DDL]):
        for batch in part:
            batch.validate(full=True)
            of_table = is_of_table(batch)
            for row in batch.to_pylist():
                assert (row["event_type"] in KINDS) == of_table
                assert not of_table or (row["before"], row["after"]) == (None, None)
                places.append((row["position"], row["row"]))
    assert len(set(places)) == len(places)
    assert found_in(DDL, r".*\.d3") == [f for f in found if f[1] == "d3"]


def test_of_many_tables_at_once_the_columns_do_not_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    """b8: DROP DATABASE of thousands of tables makes a small message."""
    most = []
    for limit in (100, 0):
        monkeypatch.setattr(event_parser, "_EFFECTS_WITH_COLUMNS_MAX", limit)
        whole = [b for part in decode_batches([DDL]) for b in part if is_of_table(b)]
        most.append(max(batch.schema.field("after").type.num_fields for batch in whole))
    assert most[0] > 1
    assert most[1] == 0


def test_rows_before_and_behind_are_in_other_batches() -> None:
    """b8: who goes through batches in their order has each table's rows in log order."""
    chunks = list(decode_chunks([STATEMENTS]))
    assert sum(len(chunk.layout.table_events) for _, chunk in chunks) > 3
    for info, chunk in chunks:
        high: dict[bytes, tuple[int, int]] = {}
        for batch in changes_of(info, chunk):
            table = batch.schema.metadata[b"canal.table"]
            for row in batch.to_pylist():
                place = row["position"], row["row"]
                assert place > high.get(table, (0, -1))
                high[table] = place


def changes_of(info: ChunkInfo, chunk: DecodedChunk, **options: Any) -> list[pa.RecordBatch]:
    return list(change_batches(chunk, 0, len(info.entries), **options))


def test_rows_are_as_without_them() -> None:
    for path in (DDL, STATEMENTS):
        for info, chunk in decode_chunks([path]):
            count = len(info.entries)
            rows = [row for b in batches(chunk, 0, count) for row in b.to_pylist()]
            found = [b for b in changes_of(info, chunk) if not is_of_table(b)]
            mixed = [row for b in found for row in b.to_pylist()]
            key = lambda row: (row["position"], row["row"])  # noqa: E731
            assert sorted(mixed, key=key) == sorted(rows, key=key)


def test_parts_of_a_chunk_have_each_once() -> None:
    for info, chunk in decode_chunks([DDL]):
        count = len(info.entries)
        whole = [b.num_rows for b in changes_of(info, chunk) if is_of_table(b)]
        cut = count // 2
        parts = [*change_batches(chunk, 0, cut), *change_batches(chunk, cut, count)]
        assert sum(b.num_rows for b in parts if is_of_table(b)) == sum(whole)
        none = np.zeros(count, np.bool_)
        assert list(change_batches(chunk, 0, count, none)) == []
        hidden = change_batches(chunk, 0, count, None, bytes(len(info.tables)))
        assert not [b for b in hidden if is_of_table(b)]


def truncated(**options: Any) -> pa.RecordBatch:
    for info, chunk in decode_chunks([DDL]):
        for batch in changes_of(info, chunk, **options):
            if batch.num_rows == 1 and batch["event_type"][0].as_py() == "TRUNCATE":
                return batch
    raise AssertionError("none")


def test_columns_and_notes() -> None:
    batch = truncated(context=LogContext(timeline=5), json_diff=True)
    [row] = batch.to_pylist()
    assert (row["timeline"], row["transaction_row"], row["json_diff"]) == (5, None, None)
    assert row["gtid"] == row["transaction"]
    assert batch.schema.metadata[b"canal.sql"].lower().startswith(b"truncate")
    names = [field.name for field in batch.schema.field("after").type]
    shown = truncated(fields=FieldFilter(f"g_ddl.d2:{names[0]}", ""))
    assert [field.name for field in shown.schema.field("after").type] == names[:1]


def test_row_steps_leave_it_in() -> None:
    """b8: a condition on images must not hide that a table is empty now."""
    batch = truncated()
    name = batch.schema.field("after").type.field(0).name
    steps = Transform(where=f"after.{name} > 5", columns=[name])
    found = steps.applied_to_table(batch)
    assert found.num_rows == 1
    assert [field.name for field in found.schema.field("after").type] == [name]
    assert found.schema.metadata[b"canal.sql"] == batch.schema.metadata[b"canal.sql"]
    assert Transform(where="event_type = 'INSERT'").applied_to_table(batch).num_rows == 0
    with pytest.raises(ConfigError, match="no column"):
        Transform(columns=["not_there"]).applied_to_table(batch)
