"""The versions of one table in a destination's schema records: its versions by place, with the
DDL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ray_canal.model.schema_record import DDL, SNAPSHOT, SchemaRecord, TableState
from ray_canal.model.table_meta import TableMeta
from ray_canal.schema.history import SchemaHistory
from ray_canal.schema.names import Name
from ray_canal.schema.records import names_of, of_log, record_place, replay, statement


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """A table from a place of the log on. `kind`: "ddl" with its statement, "snapshot" (the
    catalog had it so) or "table" (it was read again). `columns`: names and types; None: the table
    is gone. `problem` says why its columns are not known."""

    journal_name: str
    position: int
    recorded_at: float
    kind: str
    sql: str
    columns: tuple[tuple[str, str], ...] | None
    problem: str = ""


def known_tables(records: Sequence[SchemaRecord], log: str) -> list[str]:
    """Return the tables of which the records of a log tell, as schema.table, sorted. Raises
    ConfigError: a record cannot be read."""
    history = _empty(records, log)
    for record in of_log(records, log):
        replay(history, record)
    return sorted(".".join(name) for name in history.known_names())


def table_changes(records: Sequence[SchemaRecord], log: str, table: Name) -> list[RecordedTable]:
    """Return the versions of a table in the order of the log; a snapshot that found the table as it
    was known is none. Raises ConfigError: a record cannot be read."""
    history, found = _empty(records, log), list[RecordedTable]()
    name = history.names.pair(table)
    before: TableState | None = None
    for record in of_log(records, log):
        replay(history, record)
        place = record_place(record)
        now = history.tracked(name, place)
        touched = record.kind != SNAPSHOT and name in history.changed_at(place)
        if now != before or touched:
            found.append(_change(record, now))
        before = now
    return found


def newest_version(records: Sequence[SchemaRecord], log: str, table: Name) -> TableMeta | None:
    """Return a table as it is at the end of what was read; None: it is gone, or its columns are not
    known. Raises ConfigError: a record cannot be read."""
    history, state = _empty(records, log), None
    name = history.names.pair(table)
    for record in of_log(records, log):
        replay(history, record)
        state = history.tracked(name, record_place(record))
    return None if state is None or state.problem else state.meta


def _empty(records: Sequence[SchemaRecord], log: str) -> SchemaHistory:
    return SchemaHistory(names_of(records, log))


def _change(record: SchemaRecord, state: TableState | None) -> RecordedTable:
    columns = None
    if state is not None:
        columns = tuple((column.name, column.mysql_type) for column in state.columns)
    return RecordedTable(
        record.journal_name,
        record.position,
        record.recorded_at,
        record.kind,
        statement(record) if record.kind == DDL else "",
        columns,
        "" if state is None else state.problem,
    )
