"""Reaching back: what a snapshot of the catalog says of the log before it.

A snapshot holds at its own place. It holds at an earlier one, too, for a table that no statement in
between changed; and behind the last such statement, for a table that one did. Which statements
there are, only the log knows: so it is read once for them alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ray_canal.binlog.assemble import is_alter_phase, query_of
from ray_canal.binlog.chunk import RawChunk
from ray_canal.binlog.events import Query
from ray_canal.binlog.walked import walk
from ray_canal.kernels.base import event_types
from ray_canal.kernels.framing import query as q
from ray_canal.model.schema_record import SNAPSHOT, CatalogSnapshot, SchemaRecord
from ray_canal.schema.ddl.apply_ddl import apply_ddl, is_ddl
from ray_canal.schema.history import FileOrder, HistoryPlace, SchemaHistory, place_of
from ray_canal.schema.names import Name, Names
from ray_canal.schema.records import (
    load_history,
    of_log,
    snapshot_head,
    snapshot_record,
    table_record,
)
from ray_canal.schema.table_state import TableState, session_of, unknown


@dataclass(slots=True)
class Touched:
    """Tables that statements may have changed, by name as the server compares it, and where the
    last of these begins; databases whose defaults they may have."""

    tables: dict[Name, tuple[str, int]] = field(default_factory=dict)
    databases: set[str] = field(default_factory=set)


class _Supposed:
    """State before a statement where nothing is known: that every table exists, or none."""

    def __init__(self, exists: bool, tables: Iterable[Name], names: Names) -> None:
        self._exists = exists
        self._tables = list(tables)
        self.names = names

    def table(self, name: Name) -> TableState | None:
        return unknown(*name, "it was not looked at") if self._exists else None

    def tables_of(self, schema: str) -> list[Name]:
        return [name for name in self._tables if name[0] == schema]

    def would_know(self, name: Name) -> bool:
        return True

    def charset_of(self, schema: str) -> str:
        return ""

    def alike(self, name: Name) -> list[Name]:
        return []

    def schemas_alike(self, schema: str) -> list[str]:
        return []


def touched(
    chunks: Iterable[RawChunk],
    start: HistoryPlace,
    end: HistoryPlace,
    tables: Iterable[Name],
    names: Names,
    order: FileOrder | None = None,
) -> Touched:
    """Return what DDL at start … end (exclusive) may have changed; `tables`: those at the end. A
    statement counts if it changes a table that exists, or one that does not. Raises DecodeError
    kinds."""
    found, tables = Touched(), list(tables)
    key = (order or FileOrder()).key
    first, behind = key(start), key(end)
    for chunk in chunks:
        for position, query in _statements(chunk):
            name = chunk.head.journal_name
            if not first <= key(place_of(name, position)) < behind or not is_ddl(query.sql):
                continue
            session = session_of(chunk.head, query)
            for exists in (True, False):
                effects = apply_ddl(query.sql, session, _Supposed(exists, tables, names))
                found.tables.update(dict.fromkeys(effects.tables, (name, position)))
                found.databases.update(effects.charsets)
    return found


def _statements(chunk: RawChunk) -> Iterator[tuple[int, Query]]:
    walked = walk(chunk)
    if walked.failure is not None:
        raise walked.failure
    events = walked.events
    queries = (events["kind"] == q.KIND_SPECIAL) & (events["type_code"] == event_types.QUERY)
    for entry in np.flatnonzero(queries).tolist():
        if is_alter_phase(chunk, walked, entry):
            continue
        yield int(events["position"][entry]), query_of(chunk, walked, entry)


def oldest_snapshot(
    records: Iterable[SchemaRecord], log: str, order: FileOrder | None = None
) -> SchemaRecord | None:
    """Return the place before which nothing is known of a log."""
    return next((r for r in of_log(records, log, order) if r.kind == SNAPSHOT), None)


def reaching_back(
    snapshot: SchemaRecord,
    start: tuple[str, int],
    chunks: Iterable[RawChunk],
    names: Names,
    order: FileOrder | None = None,
) -> list[SchemaRecord]:
    """Records of what a snapshot says of the log from `start` (file, offset) on. `chunks`: of the
    log from there to the snapshot."""
    at = place_of(snapshot.journal_name, snapshot.position)
    then: SchemaHistory = load_history([snapshot], snapshot.server, at, names)
    states = [state for state in then.states_at(at) if not state.problem]
    tables = [(state.meta.schema, state.meta.table) for state in states]
    found = touched(chunks, place_of(*start), at, tables, names, order)
    changed = [found.tables.get(table) for table in tables]
    before = CatalogSnapshot(
        *start,
        tuple(state for state, place in zip(states, changed, strict=True) if place is None),
        {s: c for s, c in then.charsets_at(at).items() if s not in found.databases},
        after_gap=snapshot_head(snapshot).after_gap,
        whole=(),
    )
    log, made = snapshot.server, snapshot.recorded_at
    return [snapshot_record(log, made, before, names.setting)] + [
        table_record(log, made, *place, state)
        for state, place in zip(states, changed, strict=True)
        if place is not None
    ]
