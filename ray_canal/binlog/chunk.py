"""The two forms of a chunk: raw (binlog events as the server wrote them) and decoded (columns).

This is the contract between the rooms. Who makes what:

    source/ + binlog/cutter.py   bytes            -> RawChunk
    schema/event_parser.py       RawChunk         -> ParsedChunk   (headers walked, tables resolved)
    binlog/decode.py             Raw + Parsed     -> DecodedChunk  (stateless: any worker)
    log/                         ChunkInfo        -> what a subscriber gets; never sees the arena
    views/                       DecodedChunk     -> Arrow batches, Canal Entry bytes

A decoded chunk is one uint8 arena and a small layout of offsets, so that it travels through Ray's
object store as one out-of-band buffer and Arrow arrays are views over it. It is lossless as to what
Canal's entries and Arrow batches need; slots are described in kernels/base/codes.py. Regions start
at multiples of 64.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from ray_canal.errors import DecodeError
from ray_canal.kernels.base import event_types
from ray_canal.model.arrays import Bools, Bytes, Int64s, Records
from ray_canal.model.savepoints import SavepointStatement
from ray_canal.model.schema_record import Quarantined, SchemaChange, SchemaRecord
from ray_canal.model.table_event import TableEvent
from ray_canal.model.table_meta import TableMeta

_PICKLED_BYTES = 1 << 20

EVENT = np.dtype(
    [
        ("position", "<i8"),  # start offset of the binlog event in its file
        # BEGIN: thread id. END: XID (0 for COMMIT). QUERY and DDL: index in `queries`. Row events:
        # MySQL's table id.
        ("aux", "<i8"),
        # Row events: arena offset of two presence bitmaps (before, after), each of
        # (columns + 7) // 8 bytes, least significant bit first; -1: every column is present.
        # BEGIN and END of an XA transaction: index in `queries` of its XA statement, else -1.
        ("present", "<i8"),
        # Of an event that was compressed: its offset in what it was compressed with, else 0. Then
        # `position` and `length` are the compressed event's.
        ("inner", "<i8"),
        ("timestamp", "<u4"),  # header time, seconds
        ("length", "<u4"),  # bytes of the binlog event, header and checksum included
        ("server_id", "<u4"),
        ("table", "<i4"),  # row events: index in `tables`, else -1
        ("row", "<i4"),  # row events: first row in the table's columns
        ("rows", "<i4"),  # row events: number of rows, else 0
        ("gtid", "<i4"),  # index in `gtids`, -1: none known
        ("kind", "u1"),  # Canal's EntryType: TRANSACTIONBEGIN 1, ROWDATA 2, TRANSACTIONEND 3
        ("event_type", "u1"),  # Canal's EventType (INSERT 1 …), 0 for BEGIN and END
        ("type_code", "u1"),  # MySQL's Log_event_type
        ("flags", "u1"),  # EVENT_* below
    ]
)
"""One log entry: what becomes one Canal Entry. Events that no entry shows are not listed."""

EVENT_IN_TRANSACTION = 1
"""Set on the rows, queries and END of an open transaction; not on a DDL that stands alone."""
EVENT_SILENT = 2
"""Set where Canal makes no entry (CREATE VIEW, GRANT, SAVEPOINT): it moves cursors, no more."""
EVENT_ROLLED_BACK = 8
"""Set on an END that is a ROLLBACK: what its rows changed in transactional tables is undone."""
EVENT_ONE_PHASE = 16
"""Set on the END of an XA transaction that was committed in one phase: no XA COMMIT follows."""
EVENT_READ = 32
"""Set on rows that were read from a table, not written: they are in it at the event's place."""
EVENT_CLOSES = 4
"""Set in ENTRY on what ends a transaction: END, and a statement that stands alone (a DDL); of
several entries that one event makes (DROP TABLE a, b), or one GTID names, the last one. Rows
without a BEGIN before them (XA) are open until something ends them: one must not resume between the
row events of one statement."""

GTID = np.dtype(
    [
        ("sid", "u1", (16,)),  # MySQL: source uuid, 16 bytes
        ("gno", "<i8"),  # transaction number (MariaDB: sequence number)
        ("last_committed", "<i8"),
        ("sequence_number", "<i8"),
        ("commit_us", "<i8"),  # commit on this server, microseconds since the epoch; 0 = unknown
        ("original_us", "<i8"),  # commit on the server where it was written, likewise
        ("position", "<i8"),  # start offset of the GTID event: where a dump may start
        ("domain", "<u4"),  # MariaDB
        ("server_id", "<u4"),  # MariaDB: the GTID's server id
        ("flavor", "u1"),  # GTID_* below
        ("tag", "S32"),  # MySQL 8.3+: tag, usually empty
        ("follows", "u1"),  # MySQL: source and tag are those of the one before, gno the next
    ]
)
GTID_ANONYMOUS, GTID_MYSQL, GTID_MARIADB = 0, 1, 2

QUERY = np.dtype(
    [  # texts are UTF-8 in the arena: offset, length in bytes; length -1: no such field
        ("schema", "<i8"),  # header.schemaName
        ("schema_bytes", "<i4"),
        ("table", "<i8"),  # header.tableName
        ("table_bytes", "<i4"),
        ("sql", "<i8"),
        ("sql_bytes", "<i4"),
        ("ddl_schema", "<i8"),  # the session's database
        ("ddl_schema_bytes", "<i4"),
        ("is_ddl", "u1"),
    ]
)

ENTRY = np.dtype(
    [
        ("position", "<i8"),
        ("inner", "<i8"),
        ("length", "<u4"),
        ("timestamp", "<u4"),
        ("rows", "<i4"),
        ("table", "<i4"),  # index in ChunkInfo.tables (rows, DDL of a table), -1: none
        ("kind", "u1"),
        ("event_type", "u1"),
        ("flags", "u1"),
        ("transaction", "<i4"),  # index in ChunkInfo.gtids, -1: none
    ]
)
"""Record of one entry, as the store needs it; same order and count as the chunk's EVENT records."""

_IS_ROWS = np.array([kind < 64 and event_types.ROWS >> kind & 1 for kind in range(256)], np.bool_)


def of_rows(events: Records) -> Bools:
    """Return which EVENT records are row events, by their type."""
    found: Bools = _IS_ROWS[events["type_code"]]
    return found


FLAVOR_MYSQL, FLAVOR_MARIADB = "mysql", "mariadb"


OnUndecodable = Literal["stop", "skip", "dead_letter"]


@dataclass(frozen=True, slots=True)
class ChunkHead:
    """Where a raw chunk comes from, and what a worker needs to read it alone.

    The first `carried_bytes` of the data repeat events from before the chunk that its own events
    depend on (the open transaction's GTID event, the open statement's TABLE_MAP events); they make
    no entries. Then come whole events, the first of them at file offset `position`. Compressed
    events are open already: a frame (kernels/framing/walk.py) stands before what was in them.

    `events` and `gtids` count the chunk's own events (but FORMAT_DESCRIPTION), and the GTID events
    among them, so that who walks them asks for as much memory as they need; 0 where nobody has
    counted them. `created_s`: when the server created the file, as EntryPosition has it. `skips`:
    offsets in the file of events that are left out if they cannot be read (source.skip_events).
    `on_undecodable`: what happens to others (source.on_undecodable). `first_since_start`: see
    FormatDescription.
    """

    sequence: int
    journal_name: str
    position: int
    end_position: int
    carried_bytes: int = 0
    in_transaction: bool = False
    has_checksum: bool = True
    flavor: str = FLAVOR_MYSQL
    server_version: str = ""
    post_header_bytes: bytes = b""  # FORMAT_DESCRIPTION's post-header lengths, index = type - 1
    received_at: float = 0.0  # time.time() when the first byte was read
    events: int = 0
    gtids: int = 0
    created_s: int = 0
    skips: tuple[int, ...] = ()
    on_undecodable: OnUndecodable = "stop"
    first_since_start: bool = False


@dataclass(frozen=True, slots=True)
class RawChunk:
    head: ChunkHead
    data: Bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of new events (carried ones not counted)."""
        return int(self.data.size) - self.head.carried_bytes


class SkippedEvent(NamedTuple):
    """An event that was left out: one that nobody can read and that may be left out, or one of the
    old types that Canal leaves out, too. `letter`: what is kept of it (packed_chunk.py), to be read
    later; empty: nothing."""

    position: int
    name: str  # as types.event_name has it
    size_bytes: int
    reason: str
    letter: bytes = b""

    def told(self, journal_name: str) -> str:
        """Return the event as a line for people."""
        place = f"{journal_name}:{self.position}"
        return f"{self.name} at {place}, {self.size_bytes} bytes ({self.reason})"


class ColumnLayout(NamedTuple):
    """Offsets of one column's buffers in the arena, in bytes; -1 if there is none."""

    code: int  # kernels/base/codes.py
    validity: int  # bitmap, bit set = not NULL (Arrow's); always there
    values: int  # slots (fixed width) or int32 offsets (variable width)
    data: int = -1
    data_bytes: int = 0
    null_count: int = -1


class TableLayout(NamedTuple):
    """One table version's rows in a chunk. A side (before, after) without any row is None.

    Both sides have `rows` slots; a row without that image (INSERT has no before, DELETE no after)
    is NULL in every column. `row_event` is the arena offset of int32[rows]: each row's index in
    `events`. `json_diff`: a text for each row that has partial JSON values, `{"column": [{"op",
    "path", "value"}, …]}`; None where no row has.
    """

    meta: TableMeta
    rows: int
    row_event: int
    before: tuple[ColumnLayout, ...] | None
    after: tuple[ColumnLayout, ...] | None
    json_diff: ColumnLayout | None = None


class ChunkLayout(NamedTuple):
    journal_name: str
    events: int  # arena offset of EVENT[event_count]
    event_count: int
    gtids: int
    gtid_count: int
    queries: int
    query_count: int
    tables: tuple[TableLayout, ...]
    flavor: str = FLAVOR_MYSQL
    changes: tuple[SchemaChange, ...] = ()
    table_events: tuple[TableEvent, ...] = ()  # in log order
    props: tuple[tuple[str, str], ...] = ()  # of every entry's header; of rows that were read
    savepoints: tuple[SavepointStatement, ...] = ()  # as in ChunkInfo


def records_in(
    arena: Bytes, offset: int, count: int, dtype: np.dtype[np.void]
) -> Records:
    """Records that lie in an arena, as a view. (A view of a slice would have numpy look through
    both dtypes' fields, in Python.)"""
    return np.ndarray((count,), dtype, arena.data, offset)


@dataclass(frozen=True, slots=True)
class DecodedChunk:
    """The lossless columns of a chunk. Immutable; may be a read-only view of shared memory."""

    layout: ChunkLayout
    arena: Bytes

    def __reduce__(self) -> tuple[Any, ...]:
        # Ray's pickler asks Python about each object that it meets; so it meets few. But larger
        # buffers it copies with six threads, which is three times the CPU and, where CPUs are busy,
        # several times as long.
        pieces = (
            pickle.PickleBuffer(self.arena[at : at + _PICKLED_BYTES].data)
            for at in range(0, self.arena.size, _PICKLED_BYTES)
        )
        return _decoded, (pickle.dumps(self.layout, protocol=5), *pieces)

    def _records(self, offset: int, count: int, dtype: np.dtype[np.void]) -> Records:
        return records_in(self.arena, offset, count, dtype)

    @property
    def events(self) -> Records:
        """EVENT[event_count], in log order."""
        return self._records(self.layout.events, self.layout.event_count, EVENT)

    @property
    def gtids(self) -> Records:
        """GTID[gtid_count], in log order."""
        return self._records(self.layout.gtids, self.layout.gtid_count, GTID)

    @property
    def queries(self) -> Records:
        """QUERY[query_count]."""
        return self._records(self.layout.queries, self.layout.query_count, QUERY)


@dataclass(frozen=True, slots=True)
class ChunkInfo:
    """The control plane's view of a decoded chunk: small, travels by value.

    `failure`: the first event that could not be decoded; `entries` hold all good ones before it.
    `records` and `quarantined` are to be kept durably before the chunk is handed out.
    `pieces` of transactions: see trail.py; None where something else names them.
    `thins`: there may be silent entries, or transactions without any between BEGIN and END.
    `renamed`: a RENAME's index in `tables` and the name before it; either name may be subscribed.
    `skipped`: events that were left out, though they are no silent ones. `savepoints`: those that
    matter (binlog/savepoint_statements.py).
    """

    head: ChunkHead
    size_bytes: int  # raw bytes of new events
    arena_bytes: int
    entries: Records  # ENTRY
    gtids: Records  # GTID; transactions that begin here, and the carried one, if any
    tables: tuple[tuple[str, str], ...]  # (schema, table) by ENTRY.table
    failure: DecodeError | None = None
    stage_seconds: dict[str, float] = field(default_factory=dict)
    renamed: tuple[tuple[int, str, str], ...] = ()
    records: tuple[SchemaRecord, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    pieces: Int64s | None = None
    thins: bool = True
    skipped: tuple[SkippedEvent, ...] = ()
    savepoints: tuple[SavepointStatement, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        rest = [getattr(self, name) for name in _PLAIN]
        entries, gtids = np.ascontiguousarray(self.entries), np.ascontiguousarray(self.gtids)
        buffers = (pickle.PickleBuffer(each.view(np.uint8).data) for each in (entries, gtids))
        return _info, (pickle.dumps(rest, protocol=5), *buffers, self.pieces)

    def admitted(self, admits: Callable[[str, str], bool]) -> Bools:
        """Return which entries a filter over (schema, table) admits. Entries of no table (BEGIN,
        END, a statement) pass."""
        return self.entries_of(self.admitted_tables(admits))

    def admitted_tables(self, admits: Callable[[str, str], bool]) -> list[bool]:
        """Return which of `tables` a filter admits."""
        passes = [not table or admits(schema, table) for schema, table in self.tables]
        for index, schema, table in self.renamed:
            passes[index] = passes[index] or admits(schema, table)
        return passes

    def entries_of(self, passes: Sequence[bool]) -> Bools:
        """Return which entries are of these tables, or of none."""
        if all(passes):
            return np.ones(len(self.entries), np.bool_)
        mask: Bools = np.array([*passes, True], np.bool_)[self.entries["table"]]
        return mask


_PLAIN = tuple(
    name for name in ChunkInfo.__slots__ if name not in ("entries", "gtids", "pieces")
)


def _info(
    rest: bytes, entries: Any, gtids: Any, pieces: Int64s | None
) -> ChunkInfo:
    return ChunkInfo(
        entries=np.frombuffer(entries, ENTRY),
        gtids=np.frombuffer(gtids, GTID),
        pieces=pieces,
        **dict(zip(_PLAIN, pickle.loads(rest), strict=True)),
    )


def _decoded(layout: bytes, *pieces: Any) -> DecodedChunk:
    return DecodedChunk(pickle.loads(layout), joined([np.frombuffer(p, np.uint8) for p in pieces]))


class _Span:
    """Contiguous arrays of bytes, which numpy takes as one array that keeps them alive."""

    def __init__(self, arrays: list[Bytes]) -> None:
        self._arrays = arrays
        self.__array_interface__ = {
            **arrays[0].__array_interface__,
            "shape": (sum(each.size for each in arrays),),
        }


def joined(arrays: list[Bytes]) -> Bytes:
    """Return the arrays as one: without a copy where they are contiguous, as in Ray's object
    store."""
    if len(arrays) == 1:
        return arrays[0]
    starts = np.array([each.__array_interface__["data"][0] for each in arrays], np.int64)
    sizes = np.array([each.size for each in arrays], np.int64)
    if arrays and (starts[1:] == (starts + sizes)[:-1]).all():
        return np.asarray(_Span(arrays))
    return np.concatenate([np.zeros(0, np.uint8), *arrays])
