"""Schema history as durable records, and back: snapshots and DDL, compressed JSON.

A snapshot holds every table; a DDL record the statement and the session it ran in, which are
applied again when the history is loaded; a table record one table that was read or given anew.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from ray_canal.errors import ConfigError
from ray_canal.parse.create_table import period_columns, with_row_end_key
from ray_canal.parse.history import Place, SchemaHistory, place_of
from ray_canal.parse.table_state import Session
from ray_canal.parse.words import Dialect
from ray_canal.protocol.schema_record import (
    DDL,
    SNAPSHOT,
    TABLE,
    CatalogSnapshot,
    KeyState,
    SchemaRecord,
    TableState,
)
from ray_canal.protocol.table_meta import ColumnMeta, TableMeta


def snapshot_record(server: str, now: float, snapshot: CatalogSnapshot) -> SchemaRecord:
    """The record of every table at a place."""
    body = {
        "tables": [_to_tree(state) for state in snapshot.tables],
        "charsets": snapshot.charsets,
    }
    return _record(server, snapshot.journal_name, snapshot.position, SNAPSHOT, now, body)


def ddl_record(
    server: str, now: float, journal_name: str, position: int, sql: str, session: Session
) -> SchemaRecord:
    """The record of a statement."""
    body = {"sql": sql, **dataclasses.asdict(session)}
    return _record(server, journal_name, position, DDL, now, body)


def table_record(
    server: str, now: float, journal_name: str, position: int, state: TableState
) -> SchemaRecord:
    """The record of what one table looks like from a place on."""
    return _record(server, journal_name, position, TABLE, now, _to_tree(state))


def _record(
    server: str, journal_name: str, position: int, kind: str, now: float, body: dict[str, Any]
) -> SchemaRecord:
    packed = zlib.compress(json.dumps(body, separators=(",", ":")).encode(), 6)
    return SchemaRecord(server, journal_name, position, kind, now, packed)


def load_history(records: Iterable[SchemaRecord], server: str, start: Place) -> SchemaHistory:
    """The history that the records of a server give for reading from `start` on.

    It begins at the newest snapshot that lies before `start`, else at the oldest. Records from
    before a server's log began anew (RESET) are passed over. Raises ConfigError: a record that
    cannot be read.
    """
    mine = of_server(records, server)
    snapshots = [r for r in mine if r.kind == SNAPSHOT]
    base = next((r for r in reversed(snapshots) if _place(r) <= start), None)
    base = base or (snapshots[0] if snapshots else None)
    history = SchemaHistory()
    for record in mine:
        if base is not None and _place(record) < _place(base) and base is not snapshots[0]:
            continue
        _replay(history, record)
    return history


_KIND_ORDER = {DDL: 0, SNAPSHOT: 1, TABLE: 2}


def _place(record: SchemaRecord) -> Place:
    return place_of(record.journal_name, record.position)


def _order(record: SchemaRecord) -> tuple[Place, int]:
    return _place(record), _KIND_ORDER[record.kind]


def of_server(records: Iterable[SchemaRecord], server: str) -> list[SchemaRecord]:
    """The records of a server's present log, in order. A snapshot stands where the log ended when
    it was taken: what was recorded before it and lies behind it is of an older log."""
    records = sorted((r for r in records if r.server == server), key=_order)
    snapshots = [r for r in records if r.kind == SNAPSHOT]
    return [
        record
        for record in records
        if not any(
            record.recorded_at < snapshot.recorded_at and _place(record) > _place(snapshot)
            for snapshot in snapshots
        )
    ]


def _replay(history: SchemaHistory, record: SchemaRecord) -> None:
    place = _place(record)
    try:
        body = json.loads(zlib.decompress(record.body))
        if record.kind == SNAPSHOT:
            tables = [_from_tree(tree) for tree in body["tables"]]
            history.take_snapshot(place, tables, body["charsets"])
        elif record.kind == TABLE:
            history.put(place, _from_tree(body))
        else:
            sql = body.pop("sql")
            history.apply(place, sql, Session(**{**body, "dialect": Dialect(**body["dialect"])}))
    except (zlib.error, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the schema record at {record.journal_name}:{record.position} cannot be read "
            f"({error}); put back a copy of the schema history, or remove it to start from the "
            "catalog as it is now"
        ) from None


def _to_tree(state: TableState) -> dict[str, Any]:
    """Columns as lists of the fields that are not their defaults: snapshots are long."""
    defaults = {f.name: f.default for f in dataclasses.fields(ColumnMeta)}
    columns = [
        {
            name: value
            for name, value in dataclasses.asdict(column).items()
            if value != defaults.get(name)
        }
        for column in state.columns
    ]
    name = {"schema": state.meta.schema, "table": state.meta.table}
    tree: dict[str, Any] = {**name, "columns": columns}
    if state.hidden_period:
        tree["hidden_period"] = True
    if state.row_end:
        tree["row_end"] = state.row_end
    if state.keys:
        tree["keys"] = [dataclasses.astuple(key) for key in state.keys]
        tree["engine"] = state.engine
    if state.meta.hidden:
        tree["hidden"] = state.meta.hidden
    return tree | {"charset": state.charset, "problem": state.problem}


def _from_tree(tree: dict[str, Any]) -> TableState:
    columns = tuple(
        ColumnMeta(**{**fields, "labels": tuple(fields.get("labels", ()))})
        for fields in tree["columns"]
    )
    meta = TableMeta(tree["schema"], tree["table"], columns, tree.get("hidden", 0))
    return TableState(
        meta,
        tree["charset"],
        tree.get("hidden_period", False),
        tree["problem"],
        tree.get("row_end", ""),
        tuple(_key(fields) for fields in tree.get("keys", ())),
        tree.get("engine", ""),
    )


def _key(fields: list[Any]) -> KeyState:
    name, columns, prefixes, unique, algorithm = fields
    return KeyState(name, tuple(columns), tuple(prefixes), unique, algorithm)


def with_period(state: TableState) -> TableState:
    """A table as a catalog has it, with the columns that it hides."""
    if not state.hidden_period:
        return state
    return with_row_end_key(state.with_columns([*state.columns, *period_columns()]))


def compacted(
    history: SchemaHistory, records: Sequence[SchemaRecord], server: str, now: float, hours: float
) -> SchemaRecord | None:
    """A snapshot at the last DDL, made of what is known, if the newest one is older than `hours`
    and there was DDL since."""
    mine = of_server(records, server)
    taken = [r.recorded_at for r in mine if r.kind == SNAPSHOT]
    if not taken or mine[-1].kind == SNAPSHOT or now - max(taken) < hours * 3600:
        return None
    last = mine[-1]
    place = _place(last)
    snapshot = CatalogSnapshot(
        last.journal_name,
        last.position,
        tuple(history.states_at(place)),
        history.charsets_at(place),
    )
    # Not newer than what it is made of, so that nothing behind it is taken for stale.
    return snapshot_record(server, last.recorded_at, snapshot)


def expired(
    records: Sequence[SchemaRecord], server: str, now: float, hours: float, start: Place
) -> SchemaRecord | None:
    """The newest snapshot older than `hours` that lies before `start`: all before it may go."""
    old = [
        record
        for record in records
        if record.server == server
        and record.kind == SNAPSHOT
        and now - record.recorded_at > hours * 3600
        and _place(record) <= start
    ]
    return max(old, key=_order, default=None)
