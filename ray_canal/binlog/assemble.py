"""Assemble walked events into a ParsedChunk: tables resolved, queries classified, in the log's
order.

Who knows schemas and SQL hands in two functions; here is only how their answers are put together.
An error of theirs (a DecodeError) ends the chunk at the event that it concerns; anything else
passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import lru_cache

import numpy as np

from ray_canal.binlog.annotations import found_annotations
from ray_canal.binlog.chunk import (
    EVENT_IN_TRANSACTION,
    EVENT_SILENT,
    FLAVOR_MARIADB,
    RawChunk,
)
from ray_canal.binlog.events import Query, parse_query
from ray_canal.binlog.parsed import (
    NO_ANNOTATIONS,
    ParsedChunk,
    QueryEvent,
    QueryRecord,
    TableVersion,
)
from ray_canal.binlog.statement_vars import text_of
from ray_canal.binlog.table_map import TableMap, parse_table_map
from ray_canal.binlog.walked import Walked, at_event, walk
from ray_canal.errors import DecodeError
from ray_canal.kernels.base import event_types
from ray_canal.kernels.framing import query as q
from ray_canal.kernels.framing import table_maps as m
from ray_canal.kernels.rows.records import number_tables
from ray_canal.model.canal_types import QUERY, ROWDATA
from ray_canal.model.table_meta import TableMeta


class Without(Enum):
    """Reasons why a table's rows need no schema."""

    KEPT_ASIDE = auto()
    """Its events are left out: they are kept elsewhere."""
    NOT_WANTED = auto()
    """Its rows are not decoded; its events move cursors, no more."""


Resolve = Callable[[TableMap, int], TableMeta | Without]
"""Asked with the TABLE_MAP and the offset of the first row event behind it."""
Classify = Callable[[QueryEvent], Sequence[QueryRecord]]

_THREAD_SPECIFIC = 4
"""In a header's flags (LOG_EVENT_THREAD_SPECIFIC_F)."""
_MARIADB_FLAGS = event_types.HEADER_BYTES + 12
_GROUP_COMMIT, _XA = 2, 64 | 128
_START_ALTER, _ROLLBACK_ALTER = 2, 8

__all__ = ["Without", "assemble", "hide", "is_alter_phase", "query_of", "walk"]


def assemble(raw: RawChunk, walked: Walked, resolve: Resolve, classify: Classify) -> ParsedChunk:
    """Resolve and classify what the walk left open, in the walk's own records. Failures are
    recorded, not raised."""
    events, bodies, failure = walked.events, walked.bodies, walked.failure
    tables: list[TableVersion] = []
    table_index = np.full(walked.maps.shape[1], -1, np.int64)
    answers: list[tuple[int, Sequence[QueryRecord]]] = []
    left_out: list[int] = []
    not_wanted: list[int] = []
    for entry in walked.questions.tolist():
        event = events[entry]
        try:
            if event["kind"] == q.KIND_SPECIAL:
                ask = _unexecuted if is_alter_phase(raw, walked, entry) else classify
                answers.append((entry, _records(raw, walked, entry, ask)))
            else:
                number = int(event["table"])
                table = _table(raw, walked, number, int(event["position"]), resolve)
                if isinstance(table, Without):
                    (left_out if table is Without.KEPT_ASIDE else not_wanted).append(number)
                    continue
                tables.append(table)
                table_index[number] = len(tables) - 1
        except DecodeError as error:
            failure = at_event(error, raw, int(bodies[entry, 0]) - event_types.HEADER_BYTES)
            events, bodies = events[:entry], bodies[:entry]
            break
    first = None
    if left_out or any(len(records) != 1 for _, records in answers):
        repeats = np.ones(len(events), np.int64)
        for entry, records in answers:
            repeats[entry] = len(records)
        repeats[np.isin(events["table"], left_out)] = 0
        first = np.cumsum(repeats) - repeats
        source = np.repeat(np.arange(len(events)), repeats)
        events, bodies = events[source], bodies[source]
    if not_wanted:
        hide(events, np.isin(events["table"], not_wanted))
    if (table_index != np.arange(len(table_index))).any():
        number_tables(events, table_index)
    queries = _place_queries(events, answers, first)
    annotations = NO_ANNOTATIONS
    if walked.unasked:

        def name_of(sql: str) -> str | None:
            return classify(QueryEvent("", sql, 0, 0, 0, is_annotation=True))[0].table

        annotations = found_annotations(events, bodies, raw.data, len(queries), name_of)
    return ParsedChunk(
        events, bodies, tuple(tables), walked.gtids, queries, annotations, failure,
        skipped=walked.skipped,
    )  # fmt: skip


def is_alter_phase(raw: RawChunk, walked: Walked, entry: int) -> bool:
    """Tell if a statement is the start or the rollback of an ALTER TABLE that MariaDB logs in two
    phases (binlog_alter_two_phase): each phase is a transaction with the whole text, and the table
    changes with the commit.

    Format: Gtid_log_event; its flags_extra come behind the id of a group commit. (In a transaction
    of XA the xid is there, and no ALTER TABLE is one.)"""
    number = int(walked.events["gtid"][entry])
    if raw.head.flavor != FLAVOR_MARIADB or number < 0:
        return False
    end = int(walked.bodies[entry, 0]) - event_types.HEADER_BYTES
    at = end - int(walked.events["position"][entry] - walked.gtids["position"][number])
    event = raw.data[max(at, 0) : end].tobytes()
    if len(event) <= _MARIADB_FLAGS or event[4] != event_types.MARIADB_GTID:
        return False  # other events of a transaction come before the statement
    if event[_MARIADB_FLAGS] & _XA:
        return False
    extra = _MARIADB_FLAGS + 1 + 8 * bool(event[_MARIADB_FLAGS] & _GROUP_COMMIT)
    is_there = extra < len(event) - 4 * raw.head.has_checksum
    return is_there and bool(event[extra] & (_START_ALTER | _ROLLBACK_ALTER))


def _unexecuted(event: QueryEvent) -> Sequence[QueryRecord]:
    return (QueryRecord(QUERY, None, None, event.sql, event.schema, False, is_silent=True),)


def hide(events: np.ndarray, rows: np.ndarray) -> None:
    """Make these row events move cursors, no more: nothing of them is decoded or shown. Without
    rows, they must not be taken for statements that stand alone and end a transaction."""
    events["table"][rows] = -1
    events["flags"][rows] |= EVENT_SILENT | EVENT_IN_TRANSACTION


@lru_cache(maxsize=4096)
def _parsed_table_map(body: bytes, id_bytes: int, mariadb: bool) -> TableMap:
    return parse_table_map(body, id_bytes, mariadb)


def _table(
    raw: RawChunk, walked: Walked, number: int, position: int, resolve: Resolve
) -> TableVersion | Without:
    start, end = (int(walked.maps[k, number]) for k in (m.M_START, m.M_END))
    body = raw.data[start - walked.id_bytes : end].tobytes()
    table_map = _parsed_table_map(body, walked.id_bytes, raw.head.flavor == FLAVOR_MARIADB)
    meta = resolve(table_map, position)
    return meta if isinstance(meta, Without) else TableVersion(meta, table_map)


def query_of(raw: RawChunk, walked: Walked, entry: int, body: bytes = b"") -> Query:
    """Return the statement of a QUERY entry; `body`: if not the event's own. Raises
    CorruptEvent."""
    body = body or raw.data[slice(*walked.bodies[entry].tolist())].tobytes()
    in_transaction = bool(walked.events["flags"][entry] & EVENT_IN_TRANSACTION)
    return parse_query(body, in_transaction or uses_temporary(raw, walked, entry))


def uses_temporary(raw: RawChunk, walked: Walked, entry: int) -> bool:
    """Tell if a statement's event says that it is about temporary tables of its session."""
    flags_at = int(walked.bodies[entry, 0]) - 2
    return bool(raw.data[flags_at] & _THREAD_SPECIFIC)


def _records(
    raw: RawChunk, walked: Walked, entry: int, classify: Classify
) -> Sequence[QueryRecord]:
    event = walked.events[entry]
    kind = int(event["type_code"])
    position, timestamp = int(event["position"]), int(event["timestamp"])
    body = raw.data[slice(*walked.bodies[entry].tolist())].tobytes()
    if kind == event_types.EXECUTE_LOAD_QUERY:  # thirteen bytes about the file, then as a QUERY
        body = body[:13] + body[26:]
    if kind in (event_types.QUERY, event_types.EXECUTE_LOAD_QUERY):
        query = query_of(raw, walked, entry, body)
        return classify(
            QueryEvent(
                query.schema,
                query.sql,
                query.thread_id,
                position,
                timestamp,
                server_charset=query.server_charset,
                sql_mode=query.sql_mode,
                error_code=query.error_code,
                has_ddl_xid=query.has_ddl_xid,
                uses_temporary=uses_temporary(raw, walked, entry),
            )
        )
    return (QueryRecord(QUERY, "", "", text_of(kind, body), "", False),)


def _place_queries(
    events: np.ndarray,
    answers: list[tuple[int, Sequence[QueryRecord]]],
    first: np.ndarray | None,
) -> tuple[QueryRecord, ...]:
    """Give each query entry its kind, its event type and its index in the returned records. `first`
    says where the records of an answer begin, if not where the entry was."""
    queries: list[QueryRecord] = []
    for entry, records in answers:
        for k, record in enumerate(records):
            event = events[(entry if first is None else first[entry]) + k]
            event["kind"] = record.kind
            if record.kind == ROWDATA:
                event["event_type"] = record.event_type
                event["aux"] = len(queries)
            else:  # of an XA transaction
                event["present"] = len(queries)
            if record.is_silent:
                event["flags"] |= EVENT_SILENT
            queries.append(record)
    return tuple(queries)
