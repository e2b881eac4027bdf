"""Small records of a chunk: DDL has its table among the rows', effects their place."""

from __future__ import annotations

import numpy as np

from ray_canal.binlog.chunk import EVENT, EVENT_SILENT, GTID
from ray_canal.binlog.control_plane import control_plane
from ray_canal.binlog.parsed import ParsedChunk, QueryRecord
from ray_canal.model.canal_types import QUERY, RENAME, ROWDATA
from ray_canal.model.table_event import ERASE, TRUNCATE, TableEffect


def ddl(table: str | None, *effects: TableEffect, before: str = "") -> QueryRecord:
    renamed_from = ("shop", before) if before else None
    kind = RENAME if before else QUERY
    return QueryRecord(
        kind, "shop", table, "…", "shop", True, renamed_from=renamed_from, effects=effects
    )


def planes(*queries: QueryRecord, silent: int | None = None) -> tuple:  # type: ignore[type-arg]
    events = np.zeros(len(queries), EVENT)
    events["kind"], events["table"], events["aux"] = ROWDATA, -1, np.arange(len(queries))
    if silent is not None:
        events["flags"][silent] = EVENT_SILENT
    none = np.zeros((0, 2), np.int64)
    return control_plane(events, ParsedChunk(events, none, (), np.zeros(0, GTID), queries))


def test_ddl_has_its_table_as_rows_have() -> None:
    entries, _, tables, renamed, _ = planes(ddl("a"), ddl(None), ddl("b", before="a"))
    assert tables == (("shop", "a"), ("shop", "b"))
    assert entries["table"].tolist() == [0, -1, 1]
    assert renamed == ((1, "shop", "a"),)


def test_what_no_entry_shows_names_no_table() -> None:
    entries, _, tables, renamed, effects = planes(ddl("b", before="a"), silent=0)
    assert (tables, renamed, effects) == ((), (), ())
    assert entries["table"].tolist() == [-1]


def test_effects_are_at_their_statement_and_of_their_own_tables() -> None:
    one, other = TableEffect(TRUNCATE, "shop", "a"), TableEffect(ERASE, "shop", "z")
    _, _, tables, _, effects = planes(ddl(None), ddl("a", one, other))
    assert [(e.entry, tables[e.number][1], e.effect.kind) for e in effects] == [
        (1, "a", TRUNCATE),
        (1, "z", ERASE),
    ]
    assert len(tables) == 2
