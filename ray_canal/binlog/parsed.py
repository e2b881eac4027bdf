"""Records between a raw chunk and its columns: headers walked, tables resolved, queries classified.

schema/event_parser.py makes a ParsedChunk through binlog/assemble.py; binlog/decode.py turns it,
with the raw bytes, into columns. It is small (arrays, a few strings), so it travels to a decode
task by value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ray_canal.binlog.chunk import SkippedEvent
from ray_canal.binlog.table_map import TableMap
from ray_canal.errors import DecodeError
from ray_canal.model.arrays import Int64s, Records
from ray_canal.model.canal_types import ROWDATA
from ray_canal.model.schema_record import Quarantined, SchemaChange, SchemaRecord
from ray_canal.model.table_event import TableEffect
from ray_canal.model.table_meta import TableMeta


@dataclass(frozen=True, slots=True)
class QueryEvent:
    """One QUERY event that is neither BEGIN nor COMMIT, as the classifier gets it.

    `schema` is the session's database, `position` the event's start offset, `timestamp` seconds.
    `is_annotation`: a ROWS_QUERY, the text of a statement whose rows follow; nothing is executed.
    """

    schema: str
    sql: str
    thread_id: int
    position: int
    timestamp: int
    is_annotation: bool = False
    server_charset: str = ""  # of collation_server; empty: not said
    sql_mode: int = 0
    error_code: int = 0  # of a statement that failed and yet changed something
    has_ddl_xid: bool = False  # MySQL 8.0: it has changed the data dictionary
    uses_temporary: bool = False  # the event is marked: temporary tables of the session were used


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """One QUERY or DDL entry that a query event becomes; `event_type` is Canal's EventType.

    `schema` and `table` are the header's; None: the header has no such field. `kind` is Canal's
    EntryType. `is_silent`: it moves cursors, but is no entry (Canal shows none). `renamed_from`:
    (schema, table) before a RENAME. `effects`: what it does to rows without a row event.
    """

    event_type: int
    schema: str | None
    table: str | None
    sql: str
    ddl_schema: str
    is_ddl: bool
    kind: int = ROWDATA
    is_silent: bool = False
    renamed_from: tuple[str, str] | None = None
    effects: tuple[TableEffect, ...] = ()


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table as this chunk's rows need it: its schema and the TABLE_MAP that the rows follow."""

    meta: TableMeta
    table_map: TableMap


class Annotations(NamedTuple):
    """Entries that are the text of a statement whose rows follow, or silent SAVEPOINTs
    (binlog/annotations.py): their `aux` goes on behind that of `queries`. `bounds`: start and end
    of each text in the chunk's data. `names`: the tables that they name, as QueryRecord.table;
    `name_of`: which one each of them does."""

    bounds: Int64s
    names: tuple[str | None, ...]
    name_of: Int64s


NO_ANNOTATIONS = Annotations(np.zeros((0, 2), np.int64), (), np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class ParsedChunk:
    """`events` are EVENT records whose `row`, `rows` and `present` decode() fills in.

    `bodies` runs parallel to them: the offset in RawChunk.data just behind the event header, and
    that of its end (checksum excluded). `changes` are those of schemas, for subscribers; `records`
    and `quarantined` are to be kept durably before the chunk is handed out. `pieces` of
    transactions: see binlog/trail.py. `skipped`: events that were left out. `log`: the log that
    they are of, as SchemaRecord.server has it.
    """

    events: Records
    bodies: Int64s
    tables: tuple[TableVersion, ...]
    gtids: Records
    queries: tuple[QueryRecord, ...]
    annotations: Annotations = NO_ANNOTATIONS
    failure: DecodeError | None = None
    changes: tuple[SchemaChange, ...] = ()
    records: tuple[SchemaRecord, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    stage_seconds: dict[str, float] = field(default_factory=dict)
    pieces: Int64s | None = None
    skipped: tuple[SkippedEvent, ...] = ()
    log: str = ""
