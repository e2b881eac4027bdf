"""Schema history as durable records, and back: snapshots and DDL, compressed JSON.

A snapshot holds every table; a DDL record the statement and the session it ran in, which are
applied again when the history is loaded; a table record one table that was read or given again.

Records are of one log (SchemaRecord.server): a server's, with a number that rises when the log
began again, or binlog files. Within a log the place orders, nothing else: no clock, and not who
wrote first, as several upstreams of one destination write.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from ray_canal.errors import ConfigError
from ray_canal.model.schema_record import (
    DDL,
    SNAPSHOT,
    TABLE,
    CatalogSnapshot,
    KeyState,
    SchemaRecord,
    TableState,
)
from ray_canal.model.table_meta import ColumnMeta, SharedColumns, TableMeta
from ray_canal.schema.ddl.create_table import period_columns, with_row_end_key
from ray_canal.schema.ddl.words import Dialect
from ray_canal.schema.history import FileOrder, HistoryPlace, SchemaHistory, place_of
from ray_canal.schema.names import Names
from ray_canal.schema.table_state import StatementSession


def numbered_log(server: str, number: int) -> str:
    """Return the number that the records of a server's log carry. 0: from before logs had
    numbers."""
    return f"{server}#{number}" if number else server


def log_number(server: str, log: str) -> int:
    """The number of a server's log; -1: it is not that server's."""
    if log == server:
        return 0
    found = re.fullmatch(r"#([1-9]\d{0,8})", log[len(server) :]) if log.startswith(server) else None
    return int(found[1]) if found else -1


def present_log(records: Iterable[SchemaRecord], server: str) -> str:
    """The newest log of a server of which there are records; the server itself: there are none, or
    they are from before logs had numbers."""
    numbers = [0, *(log_number(server, log) for log in {record.server for record in records})]
    return numbered_log(server, max(numbers))


def log_with_records(records: Iterable[SchemaRecord], log: str) -> str:
    """A log, or if there are no records of it, the first one with a number of that server: what was
    held in quarantine may be from before logs had numbers, records are not."""
    known = {record.server for record in records}
    first = numbered_log(log, 1)
    return first if log not in known and first in known else log


def snapshot_record(
    log: str, now: float, snapshot: CatalogSnapshot, setting: int | None
) -> SchemaRecord:
    """The record of every table at a place; `setting` is the server's lower_case_table_names."""
    body: dict[str, Any] = {
        "tables": [_to_tree(state) for state in snapshot.tables],
        "charsets": snapshot.charsets,
        "lower_case_table_names": setting,
        "gtid": snapshot.gtid,
        "created_s": snapshot.created_s,
        "after_gap": snapshot.after_gap,
    }
    if snapshot.whole is not None:
        body["whole"] = snapshot.whole
    return _record(log, snapshot.journal_name, snapshot.position, SNAPSHOT, now, body)


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotHead:
    """State of the server at a snapshot. `setting`: lower_case_table_names. `gtid`: the GTIDs that
    were executed; empty if not known. `created_s`: when the binlog file of its place was created;
    0 if not known. `after_gap`: as CatalogSnapshot has it."""

    setting: int | None
    gtid: str
    created_s: int
    after_gap: bool


def snapshot_head(snapshot: SchemaRecord) -> SnapshotHead:
    """Return the head of a snapshot's record. Raises ConfigError: it cannot be read."""
    body = _body(snapshot)
    return SnapshotHead(
        body.get("lower_case_table_names", 0),
        body.get("gtid", ""),
        body.get("created_s", 0),
        body.get("after_gap", False),
    )


def names_of(records: Iterable[SchemaRecord], log: str) -> Names | None:
    """Return how the server of a log compared names, by its newest snapshot; None if there is
    none."""
    snapshots = [record for record in of_log(records, log) if record.kind == SNAPSHOT]
    return Names(snapshot_head(snapshots[-1]).setting) if snapshots else None


def ddl_record(
    server: str, now: float, journal_name: str, position: int, sql: str, session: StatementSession
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


def load_history(
    records: Iterable[SchemaRecord],
    log: str,
    start: HistoryPlace,
    names: Names | None = None,
    order: FileOrder | None = None,
) -> SchemaHistory:
    """The history that the records of a log give for reading from `start` on.

    It begins at the newest snapshot before `start`, else at the oldest, and ends before a part of
    the log that nobody read. Raises ConfigError: a record that cannot be read.
    """
    order = order or FileOrder()
    mine = without_gap(of_log(records, log, order), start, order)
    snapshots = [at for at, r in enumerate(mine) if r.kind == SNAPSHOT]
    until = order.key(start)
    before = [at for at in snapshots if order.key(record_place(mine[at])) <= until]
    history = SchemaHistory(names, order)
    for record in mine[before[-1] if len(before) > 1 else 0 :]:
        replay(history, record)
    history.forget(start)
    return history


_KIND_ORDER = {SNAPSHOT: 0, DDL: 1, TABLE: 2}
"""At one place: a snapshot is of what was there before the statement that begins there; what is
stated of a table counts behind it."""


def record_place(record: SchemaRecord) -> HistoryPlace:
    """Return where a record stands in its log, to compare by."""
    return place_of(record.journal_name, record.position)


def of_log(
    records: Iterable[SchemaRecord], log: str, order: FileOrder | None = None
) -> list[SchemaRecord]:
    """The records of a log, in its order."""
    files = order or FileOrder()
    return sorted(
        (record for record in records if record.server == log),
        key=lambda record: (files.key(record_place(record)), _KIND_ORDER[record.kind]),
    )


def without_gap(
    records: Sequence[SchemaRecord], start: HistoryPlace, order: FileOrder
) -> Sequence[SchemaRecord]:
    """Return those of a log's records, in its order, that are known without a gap for reading from
    `start` on: what comes after a part of the log that nobody read is read again. Raises
    ConfigError."""
    until = order.key(start)
    gaps = [
        at
        for at, record in enumerate(records)
        if record.kind == SNAPSHOT and snapshot_head(record).after_gap
    ]
    first = max((at for at in gaps if order.key(record_place(records[at])) <= until), default=0)
    last = min((at for at in gaps if at > first), default=len(records))
    return records[first:last]


def with_number(records: Iterable[SchemaRecord], server: str, number: int) -> list[SchemaRecord]:
    """A server's records from before logs had numbers, as those of its log of this number. Then
    the clock told: what was recorded before a snapshot and comes after it was of an older log; and
    a snapshot made of DDL stood where the last one begins."""
    mine = of_log(records, server)
    snapshots = [r for r in mine if r.kind == SNAPSHOT]
    statements = {(record_place(r), r.recorded_at) for r in mine if r.kind == DDL}
    found = []
    for record in mine:
        if any(
            record.recorded_at < snapshot.recorded_at
            and record_place(record) > record_place(snapshot)
            for snapshot in snapshots
        ):
            continue
        made = record.kind == SNAPSHOT and (record_place(record), record.recorded_at) in statements
        found.append(
            dataclasses.replace(
                record, server=numbered_log(server, number), position=record.position + made
            )
        )
    return found


def _body(record: SchemaRecord) -> dict[str, Any]:
    try:
        body: dict[str, Any] = json.loads(zlib.decompress(record.body))
        return body
    except (zlib.error, ValueError) as error:
        raise _unreadable(record, error) from None


def _unreadable(record: SchemaRecord, error: Exception) -> ConfigError:
    return ConfigError(
        f"the schema record at {record.journal_name}:{record.position} cannot be read "
        f"({error}); put back a copy of the schema history, or remove it to start from the "
        "catalog as it is now"
    )


def statement(record: SchemaRecord) -> str:
    """Return the text of a DDL's record. Raises ConfigError: it cannot be read."""
    return str(_body(record).get("sql", ""))


def replay(history: SchemaHistory, record: SchemaRecord) -> None:
    """Put what a record says into a history. Raises ConfigError: it cannot be read."""
    place, body = record_place(record), _body(record)
    try:
        if record.kind == SNAPSHOT:
            shared = SharedColumns()
            tables = [_from_tree(tree, shared) for tree in body["tables"]]
            history.take_snapshot(place, tables, body["charsets"], body.get("whole"))
        elif record.kind == TABLE:
            history.put(place, _from_tree(body, SharedColumns()))
        else:
            sql = body.pop("sql")
            body["dialect"] = Dialect(**body["dialect"])
            body["temporary"] = tuple((s, t) for s, t in body.get("temporary", ()))
            history.apply(place, sql, StatementSession(**body))
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(record, error) from None


def _to_tree(state: TableState) -> dict[str, Any]:
    """Return a table's state as the tree that is stored."""
    columns = [column.to_tree() for column in state.columns]
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


def _from_tree(tree: dict[str, Any], shared: SharedColumns) -> TableState:
    columns = shared.all(map(ColumnMeta.from_tree, tree["columns"]))
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
    history: SchemaHistory, log: str, now: float, last: tuple[str, int], created_s: int = 0
) -> SchemaRecord:
    """Return a snapshot right after the last statement (file, position), made of what is known.
    `created_s`: of the file."""
    journal_name, position = last[0], last[1] + 1
    place = place_of(journal_name, position)
    tables = tuple(history.states_at(place))
    charsets = history.charsets_at(place)
    whole = history.whole_databases(place)
    snapshot = CatalogSnapshot(
        journal_name, position, tables, charsets, created_s=created_s, whole=whole
    )
    return snapshot_record(log, now, snapshot, history.names.setting)


def expired(
    records: Iterable[SchemaRecord], log: str, now: float, hours: float | None, start: HistoryPlace
) -> SchemaRecord | None:
    """The newest snapshot of a log older than `hours` (None: of any age) that comes before `start`:
    all before it may go. Only of files with the base name of its own: the order of others is not
    known here."""
    old = [
        record
        for record in records
        if record.server == log
        and record.kind == SNAPSHOT
        and (hours is None or now - record.recorded_at > hours * 3600)
        and record_place(record)[0][0] == start[0][0]
        and record_place(record) <= start
    ]
    return max(old, key=record_place, default=None)
