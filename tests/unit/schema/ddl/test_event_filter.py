"""What an instance drops before rows are decoded: it stays in the log, and is not decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ray_canal.demo
from ray_canal.binlog.chunk import EVENT_SILENT, ChunkInfo, DecodedChunk, RawChunk
from ray_canal.errors import TableMetaMismatch
from ray_canal.filter import EventFilter, TableFilter
from ray_canal.log.transaction_buffer import TransactionBuffer
from ray_canal.model.position import EntryPosition
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.keeper import SchemaKeeper
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.views.arrow import batches
from ray_canal.views.entries import iter_entries
from tests.unit.binlog.golden import golden_chunk, needs_golden
from tests.unit.schema.test_event_parser import whole

DEMO = sorted(Path(ray_canal.demo.__file__).parent.glob("mysql-bin.*"))
ROWDATA = 2


def event_filter(tables: str = "", black: str = "", **drops: bool) -> EventFilter:
    return EventFilter(TableFilter(tables, black), **drops)


def decoded(raw: RawChunk, wanted: EventFilter | None = None) -> tuple[ChunkInfo, DecodedChunk]:
    parser = EventParser(SchemaRegistry(), SchemaKeeper(None), wanted)
    return parser.decode_chunk(raw)


def entries(result: tuple[ChunkInfo, DecodedChunk]) -> list[Any]:
    info, chunk = result
    return list(iter_entries(chunk, 0, len(info.entries), None))


def shown(result: tuple[ChunkInfo, DecodedChunk]) -> np.ndarray:
    return result[0].entries["flags"] & EVENT_SILENT == 0


def rows_of(result: tuple[ChunkInfo, DecodedChunk]) -> list[tuple[str, list[Any]]]:
    """By table. A row's number in its transaction counts what the filter lets through."""
    info, chunk = result
    return [
        (
            batch.schema.metadata[b"canal.table"].decode(),
            batch.drop_columns(["transaction_row"]).to_pylist(),
        )
        for batch in batches(chunk, 0, len(info.entries))
    ]


@pytest.mark.parametrize("path", DEMO, ids=lambda path: path.name)
def test_rows_of_other_tables_are_not_decoded(path: Path) -> None:
    raw = whole(path)
    everything = decoded(raw)
    names = {version[1] for version in everything[0].tables}
    assert len(names) > 1
    for name in sorted(names):
        some = decoded(raw, event_filter(rf".*\.{name}"))
        assert rows_of(some) == [part for part in rows_of(everything) if part[0] == name]
        assert {table.meta.table for table in some[1].layout.tables} <= {name}
        assert some[0].arena_bytes < everything[0].arena_bytes
        # Everything keeps its place: what a cursor counts does not depend on the filter.
        for field in ("position", "length", "kind", "transaction"):
            assert (some[0].entries[field] == everything[0].entries[field]).all()
        hidden = entries(decoded(raw, event_filter(black=rf".*\.{name}")))
        kept = [e for e in entries(everything) if e.header.tableName != name or is_ddl(e)]
        assert hidden == kept


def is_ddl(entry: Any) -> bool:
    return entry.entryType == ROWDATA and entry.header.eventType > 3


def test_cursors_of_one_filter_are_those_of_another() -> None:
    raw = whole(DEMO[0])
    places = []
    for wanted in (None, event_filter(r".*\.orders"), event_filter(rows=True, query_ddl=True)):
        info, _ = decoded(raw, wanted)
        chunk = TransactionBuffer(EntryPosition(raw.head.journal_name)).add(info)
        position, _, entry = chunk.resumes()
        places.append((position.tolist(), entry.tolist()))
    assert places[0] == places[1] == places[2]


@pytest.mark.parametrize(
    ("drop", "event_type"), [("dml_insert", 1), ("dml_update", 2), ("dml_delete", 3)]
)
def test_kinds_of_rows(drop: str, event_type: int) -> None:
    seen = 0
    for path in DEMO:
        everything = entries(decoded(whole(path)))
        kept = entries(decoded(whole(path), event_filter(**{drop: True})))
        assert kept == [
            e for e in everything
            if e.entryType != ROWDATA or e.header.eventType != event_type
        ]  # fmt: skip
        seen += len(everything) - len(kept)
    assert seen


def test_no_rows_at_all() -> None:
    for path in DEMO:
        info, chunk = decoded(whole(path), event_filter(rows=True))
        assert not info.entries["rows"].any()
        assert chunk.layout.tables == ()
        kept = entries((info, chunk))
        assert kept == [
            e for e in entries(decoded(whole(path)))
            if e.entryType != ROWDATA or e.header.eventType > 3
        ]  # fmt: skip


@needs_golden
@pytest.mark.parametrize(
    ("drop", "gone"),
    [
        ("query_ddl", {"CREATE", "ALTER", "ERASE", "TRUNCATE", "RENAME", "CINDEX", "DINDEX"}),
        ("query_dml", {"statement", "annotation"}),
        ("query_dcl", {"other"}),
    ],
)
def test_statements(drop: str, gone: set[str]) -> None:
    seen: set[str] = set()
    for name in (
        "mysql97/mysql_ddl", "mysql97/mysql_stmt", "mysql97/mysql_rowsquery",
        "mariadb1011/maria_rowsquery", "mariadb1011/maria_maria10",
    ):  # fmt: skip
        raw = golden_chunk(name)
        everything = decoded(raw)
        kinds = [kind_of(e, everything[1]) for e in everything[1].events]
        result = decoded(raw, event_filter(**{drop: True}))
        expected = [
            bool(is_shown) and kind not in gone
            for is_shown, kind in zip(shown(everything), kinds, strict=True)
        ]
        assert shown(result).tolist() == expected, name
        seen |= set(kinds) & gone
        # Schemas follow DDL that no entry shows.
        assert rows_of(result) == rows_of(everything)
    assert seen == gone or drop == "query_ddl"
    assert seen


def kind_of(event: np.void, chunk: DecodedChunk) -> str:
    """What a statement is, from its text."""
    if event["kind"] != ROWDATA or event["table"] >= 0:
        return "row or boundary"
    if event["type_code"] not in (2, 18):
        return "annotation"
    query = chunk.queries[int(event["aux"])]
    at, size = int(query["sql"]), int(query["sql_bytes"])
    first = chunk.arena[at : at + size].tobytes().decode().split()[0].upper()
    names = {4: "CREATE", 5: "ALTER", 6: "ERASE", 8: "TRUNCATE", 9: "RENAME", 10: "CINDEX",
             11: "DINDEX"}  # fmt: skip
    if first in ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD"):
        return "statement"
    if first == "XA":
        return "xa"
    return names.get(int(event["event_type"]), "other")


@needs_golden
def test_a_table_without_a_schema_is_dropped_where_that_is_wanted() -> None:
    raw = golden_chunk("mysql56/mysql56_numeric")
    parsers = {
        wanted: EventParser(SchemaRegistry(), None, wanted)
        for wanted in (None, event_filter(table_error=True), event_filter(r"other\..*"))
    }
    for wanted, parser in parsers.items():
        info, _ = parser.decode_chunk(raw)
        if wanted is None:
            assert isinstance(info.failure, TableMetaMismatch)
        else:
            assert info.failure is None
            assert not info.entries["rows"].any()
            assert len(info.entries) > 5
