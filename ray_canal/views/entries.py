"""Canal's view: a decoded chunk as `Entry` protobuf bytes, rendered by a kernel when asked for."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from ray_canal.binlog.chunk import GTID_MYSQL, ChunkLayout, DecodedChunk, TableLayout
from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.canal.packet import varint
from ray_canal.errors import ConfigError
from ray_canal.filter import FieldFilter
from ray_canal.kernels.base import codes
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.render import entry_bytes as kernels
from ray_canal.kernels.render import entry_columns as column_kernels
from ray_canal.kernels.render.entry_values import LIMBS_MAX, VALUE_BYTES_MAX
from ray_canal.kernels.rows.records import entry_pieces, shown_entries
from ray_canal.model.arrays import Bools, Bytes, Int64s
from ray_canal.model.gtid import GtidSet
from ray_canal.model.table_meta import HIDDEN_KEYS, ColumnMeta, TableMeta
from ray_canal.types.registry import sql_type, sql_type_of_null, sql_type_widened
from ray_canal.views.gtid_sets import executed_sets

_EMPTY_NAMES = b"\x42\x00\x4a\x00"  # schemaName "" and tableName ""
_LENT_BYTES_MIN, _LENT_BYTES_MAX = 1 << 20, 64 << 20
_EXPANSION, _ENTRY_BYTES = 4, 400
"""What entries usually take at most: bytes a byte of binlog, and an entry besides."""
_PIECE_BYTES, _PIECE_ENTRY_BYTES = 1 << 19, 100
"""Of pieces, and what is then counted for an entry: most take less than the above."""
_PIECES_BYTES = 1 << 18
_MARKS_MIN = 1 << 13
"""Room for the messages of a window of rows, and for how many."""
_NO_MASK = np.zeros(0, np.bool_)
_BEFORE, _AFTER = (
    slice(first, first + 3) for first in (column_kernels.C_VALIDITY, column_kernels.C_VALIDITY + 3)
)
"""Of a column's record: validity, values and data of its sides."""
_NO_PLACES = (-1,) * 6
SLOT_WIDTHS = np.zeros(64, np.int64)
for _code, _width in codes.WIDTH_BYTES.items():
    SLOT_WIDTHS[_code] = _width


@dataclass(frozen=True, slots=True)
class EntryBytes:
    """Rendered entries: entry i is `buffer[offsets[i]:offsets[i + 1]]`."""

    buffer: Bytes
    offsets: Int64s

    @property
    def held_bytes(self) -> int:
        """Memory that is kept for them: they are written from its end, and it may be larger."""
        whole = self.buffer.base
        return int(self.buffer.nbytes if whole is None else whole.nbytes)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> memoryview:
        return self.buffer[self.offsets[index] : self.offsets[index + 1]].data


def render_entries(
    chunk: DecodedChunk,
    first: int,
    last: int,
    mask: Bools | None = None,
    *,
    time_zone: str = "UTC",
    gtid: bool = False,
    gtid_set: str = "",
    tag: int = 0,
    fields: FieldFilter | None = None,
) -> EntryBytes:
    """The entries [first, last) whose `mask` (one element an entry of the chunk) is true, as wire
    bytes; without the silent ones.

    `time_zone` is where TIMESTAMP is printed. `gtid` adds Canal's GTID fields; `gtid_set` is the
    set executed before the chunk. `tag` puts a field's tag and each entry's length (varint) in
    front of it, as inside another message. `fields` leaves columns out. Raises ConfigError: no
    such time zone.
    """
    renderer = _Renderer(chunk, time_zone, gtid_set if gtid else None, tag, fields, lent=False)
    return _entries_in(*renderer.render(chosen_entries(chunk, first, last, mask)))


def _entries_in(buffer: Bytes, starts: Int64s) -> EntryBytes:
    """Of what `_Renderer.render` gives."""
    return EntryBytes(buffer, np.append(buffer.size - starts, buffer.size))


def load_kernels() -> None:
    """Have the machine code in this process before the first entries are asked for: loading takes
    half a second."""
    nothing = DecodedChunk(ChunkLayout("", 0, 0, 0, 0, 0, 0, ()), np.zeros(0, np.uint8))
    render_entries(nothing, 0, 0)


def chosen_entries(chunk: DecodedChunk, first: int, last: int, mask: Bools | None) -> Int64s:
    """Numbers of the entries that are shown."""
    chosen: Int64s = np.empty(max(last - first, 0), np.int64)
    count = chunk.layout.event_count
    if not 0 <= first <= last <= count or (mask is not None and len(mask) != count):
        raise IndexError(f"entries {first} to {last} of {count}")
    given = read_only(_NO_MASK if mask is None else mask)
    return chosen[: shown_entries(read_only(chunk.events), first, last, given, chosen)]


class _Renderer:
    """What the kernel needs of one chunk, made once. `lent`: the buffer is this thread's own and is
    overwritten by its next such rendering."""

    def __init__(
        self,
        chunk: DecodedChunk,
        time_zone: str,
        gtid_set: str | None,
        prefix: int,
        fields: FieldFilter | None,
        *,
        lent: bool,
    ) -> None:
        journal = _field(0x12, chunk.layout.journal_name.encode())
        blobs = _Blobs(journal + _header_props(chunk.layout.props), _EMPTY_NAMES)
        tables, columns = _tables(chunk.layout.tables, blobs, fields)
        gtids = np.zeros((0, kernels.GTID_FIELDS), np.int64)
        if gtid_set is not None:
            gtids = _gtids(chunk, gtid_set, blobs)
        self._chunk = chunk
        self._lent = lent
        self._arguments = (
            read_only(chunk.events), read_only(chunk.queries), tables, columns, SLOT_WIDTHS, gtids,
            read_only(chunk.arena), read_only(blobs.array()), len(blobs.journal),
            *zone_transitions(time_zone), np.int64(prefix), *_room(chunk), *_window_room(tables),
        )  # fmt: skip

    def render(self, chosen: Int64s, binlog_bytes: int | None = None) -> tuple[Bytes, Int64s]:
        """The entries' bytes, and of each how far from the end it starts. `binlog_bytes`: of their
        events, where it is known."""
        if binlog_bytes is None:
            binlog_bytes = _binlog_bytes(self._chunk, chosen)
        guess = _most_bytes(self._chunk, binlog_bytes, len(chosen))
        buffer: Bytes = _lent.take(guess) if self._lent else np.empty(guess, np.uint8)
        starts = np.zeros(len(chosen), np.int64)
        pieces = _pieces.take(_PIECES_BYTES)
        done, used = len(chosen), 0
        while True:
            done, used, code = kernels.write_entries(
                chosen, done, *self._arguments, pieces, buffer, used, starts
            )
            if not done:
                return buffer[buffer.size - used :], starts
            if code == column_kernels.NO_PIECES:
                pieces = np.empty(2 * pieces.size, np.uint8)
                continue
            room = 2 * buffer.size
            grown: Bytes = _lent.take(room) if self._lent else np.empty(room, np.uint8)
            grown[grown.size - used :] = buffer[buffer.size - used :]
            buffer = grown


class _Lent(threading.local):
    """One buffer a thread: fresh memory for each chunk costs a page fault for every 4 KiB."""

    def __init__(self) -> None:
        self._buffer: Bytes = np.empty(0, np.uint8)

    def take(self, size: int) -> Bytes:
        if size > _LENT_BYTES_MAX:
            return np.empty(size, np.uint8)
        if size > self._buffer.size:
            self._buffer = np.empty(max(size, _LENT_BYTES_MIN), np.uint8)
        return self._buffer


_lent = _Lent()
_pieces = _Lent()


def _room(chunk: DecodedChunk) -> tuple[Int64s, Bytes, Bytes]:
    """The kernel's room for intermediate things."""
    queries = chunk.queries
    names = queries["schema_bytes"].astype(np.int64) + queries["table_bytes"]
    return (
        np.zeros(LIMBS_MAX, np.int64),
        np.zeros(VALUE_BYTES_MAX, np.uint8),
        np.zeros(32 + int(names.max(initial=0)), np.uint8),
    )


def _window_room(tables: Int64s) -> tuple[Int64s, Int64s]:
    """`marks` and `windows` of the kernel."""
    widest = int(tables[:, column_kernels.T_COUNT].max(initial=0))
    windows = np.zeros((len(tables), column_kernels.WINDOW_FIELDS), np.int64)
    return np.empty(max(_MARKS_MIN, 2 * widest + 2), np.int64), windows


def _binlog_bytes(chunk: DecodedChunk, chosen: Int64s) -> int:
    return int(chunk.events["length"][chosen].astype(np.int64).sum())


def _most_bytes(chunk: DecodedChunk, binlog_bytes: int, entries: int) -> int:
    """How long the rendered entries may become; too little grows. Events that were compressed
    together all have the whole's length."""
    return 2048 + _EXPANSION * min(binlog_bytes, chunk.arena.size) + _ENTRY_BYTES * entries


def guessed_bytes(
    chunk: DecodedChunk, first: int, last: int, mask: Bools | None = None
) -> int:
    """About what `render_entries` will take, for whoever gives out memory."""
    chosen = np.arange(first, last, dtype=np.int64)
    if mask is not None:
        chosen = chosen[mask[first:last]]
    return _most_bytes(chunk, _binlog_bytes(chunk, chosen), len(chosen))


def iter_entries(
    chunk: DecodedChunk,
    first: int,
    last: int,
    mask: Bools | None = None,
    **options: Any,
) -> Iterator[pb.Entry]:
    """`render_entries`, each parsed when it is reached; without `tag`."""
    for buffer, starts in _pieces_of(chunk, first, last, mask, 0, **options):
        rendered = _entries_in(buffer.copy(), starts)  # the buffer is lent
        for index in range(len(rendered)):
            yield pb.Entry.FromString(bytes(rendered[index]))


def delimited_pieces(
    chunk: DecodedChunk,
    first: int,
    last: int,
    mask: Bools | None = None,
    **options: Any,
) -> Iterator[bytes]:
    """The same as bytes, each entry with its length (varint) in front of it; in pieces of whole
    entries that stay in the processor's cache: entries are several times as long as what they are
    made of."""
    for buffer, _ in _pieces_of(chunk, first, last, mask, kernels.LENGTH_PREFIX, **options):
        yield buffer.tobytes()


def _pieces_of(
    chunk: DecodedChunk,
    first: int,
    last: int,
    mask: Bools | None,
    prefix: int,
    *,
    time_zone: str = "UTC",
    gtid: bool = False,
    gtid_set: str = "",
    fields: FieldFilter | None = None,
) -> Iterator[tuple[Bytes, Int64s]]:
    """See `_Renderer.render`; a buffer is overwritten by this thread's next rendering."""
    chosen = chosen_entries(chunk, first, last, mask)
    renderer = _Renderer(chunk, time_zone, gtid_set if gtid else None, prefix, fields, lent=True)
    ends, binlog_bytes = (np.empty(chosen.size, np.int64) for _ in range(2))
    events = read_only(chunk.events)
    sizes = _EXPANSION, _PIECE_ENTRY_BYTES, _PIECE_BYTES
    pieces = entry_pieces(events, chosen, *sizes, ends, binlog_bytes)
    done = 0
    for end, size in zip(ends[:pieces].tolist(), binlog_bytes[:pieces].tolist(), strict=True):
        yield renderer.render(chosen[done:end], size)
        done = end


class _Blobs:
    """Constant bytes that the kernel copies; the journal name (with what else all headers have) and
    the empty names lie first."""

    def __init__(self, journal: bytes, empty_names: bytes) -> None:
        self.journal = journal
        self._parts = [journal, empty_names]
        self._size = len(journal) + len(empty_names)

    def add(self, blob: bytes) -> tuple[int, int]:
        """(offset, length)"""
        place = self._size, len(blob)
        self._parts.append(blob)
        self._size += len(blob)
        return place

    def array(self) -> Bytes:
        return np.frombuffer(b"".join(self._parts), np.uint8)


def _field(tag: int, data: bytes) -> bytes:
    return bytes([tag]) + varint(len(data)) + data


@lru_cache(maxsize=4096)
def _names(meta: TableMeta) -> bytes:
    return _field(0x42, meta.schema.encode()) + _field(0x4A, meta.table.encode())


@lru_cache(maxsize=1 << 16)
def _constants(column: ColumnMeta, index: int, code: int) -> tuple[bytes, bytes, bytes, bytes]:
    """A column's constant bytes: its head (index, sqlType, name, isKey) for a value, for NULL, and
    for an unsigned value with its top bit set; its tail (mysqlType)."""
    name = _field(0x1A, column.name.encode()) + bytes([0x20, column.is_key])
    heads = (
        b"\x08" + varint(index) + b"\x10" + varint(kind(column, code) & 0xFFFFFFFFFFFFFFFF) + name
        for kind in (sql_type, sql_type_of_null, sql_type_widened)
    )
    value, null, wide = heads
    return value, null, wide, _field(0x52, column.mysql_type.encode())


@lru_cache(maxsize=512)
def _table_constants(
    meta: TableMeta, storage: tuple[int, ...], fields: FieldFilter | None
) -> tuple[Int64s, bytes]:
    """A table's `columns` records, without places, and the blob that their offsets are of. Its
    names stand at the blob's beginning."""
    parts = [_names(meta)]
    size = len(parts[0])
    records = np.zeros((len(meta.columns) + meta.hidden, column_kernels.COLUMN_FIELDS), np.int64)
    records[:, column_kernels.C_CODE] = column_kernels.LEFT_OUT
    for index, (column, code) in enumerate(zip(meta.columns, storage, strict=True)):
        parameter = column.scale if code in (codes.DEC128, codes.DEC256) else column.fraction
        constants = _constants(column, index, code)
        is_shown = not fields or fields.admits(meta.schema, meta.table, column.name)
        places: list[int] = []
        for blob in constants:
            places += (size, len(blob))
            size += len(blob)
        parts += constants
        records[index] = (
            code if is_shown else column_kernels.LEFT_OUT,
            parameter,
            *places,
            *_NO_PLACES,
            column.name in HIDDEN_KEYS,
            sql_type(column, code) != sql_type_widened(column, code),
            VALUE_BYTES_MAX + max(map(len, constants)) * 2,
        )
    return read_only(records), b"".join(parts)


def _tables(
    layouts: tuple[TableLayout, ...], blobs: _Blobs, fields: FieldFilter | None
) -> tuple[Int64s, Int64s]:
    """The kernel's `tables` and `columns` records."""
    tables = np.zeros((len(layouts), column_kernels.TABLE_FIELDS), np.int64)
    size = sum(len(t.meta.columns) + t.meta.hidden for t in layouts)
    columns = np.empty((size, column_kernels.COLUMN_FIELDS), np.int64)
    at = 0
    for number, table in enumerate(layouts):
        meta = table.meta
        side = table.before or table.after
        # Of a table without rows, nothing is asked.
        storage = tuple(c.code for c in side) if side else (codes.TEXT,) * len(meta.columns)
        records, blob = _table_constants(meta, storage, fields or None)
        first, _ = blobs.add(blob)
        tables[number] = (at, len(records), first, len(_names(meta)), table.row_event)
        mine = columns[at : at + len(records)]
        mine[:] = records
        mine[:, column_kernels.C_HEAD : column_kernels.C_TAIL_BYTES : 2] += first
        for where, layout in ((_BEFORE, table.before), (_AFTER, table.after)):
            if layout:
                mine[: len(layout), where] = [column[1:4] for column in layout]
        at += len(records)
    return tables, columns


def _gtids(chunk: DecodedChunk, before: str, blobs: _Blobs) -> Int64s:
    """For each transaction: header props curtGtid, curtGtidSn, curtGtidLct, and header.gtid, the
    set with this transaction in it."""
    records = np.zeros((len(chunk.gtids), kernels.GTID_FIELDS), np.int64)
    for number, executed in executed_sets(chunk, before):
        gtid = chunk.gtids[number]
        props = {}  # Canal has none for MariaDB: header.gtid alone
        if gtid["flavor"] == GTID_MYSQL:
            one = GtidSet()
            one.add(gtid["sid"].tobytes(), int(gtid["gno"]), gtid["tag"].decode("ascii"))
            props = {
                "curtGtid": str(one),
                "curtGtidSn": str(gtid["sequence_number"]),
                "curtGtidLct": str(gtid["last_committed"]),
            }
        blob = _header_props(props.items())
        records[number] = (*blobs.add(blob), *blobs.add(_field(0x6A, executed.encode())))
    return records


def _header_props(props: Iterable[tuple[str, str]]) -> bytes:
    return b"".join(
        _field(0x62, _field(0x0A, key.encode()) + _field(0x12, value.encode()))
        for key, value in props
    )


@lru_cache(maxsize=64)
def zone_transitions(name: str) -> tuple[Int64s, Int64s]:
    """Instants (seconds) at which a zone's offset changes, and the offset from each on. Covers all
    of MySQL's TIMESTAMP range. Raises ConfigError."""
    if name == "UTC":
        return np.array([-(1 << 62)]), np.array([0])
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: a folder of zones
        raise ConfigError(f"no time zone {name!r}: {error}") from None

    def offset(seconds: int) -> int:
        moment = dt.datetime.fromtimestamp(seconds, zone).utcoffset()
        return int(moment.total_seconds()) if moment is not None else 0

    step, end = 7 * 86400, 1 << 32
    instants, offsets = [-(1 << 62)], [offset(0)]
    for low in range(0, end, step):
        high = min(low + step, end)
        # A week holds at most a few changes; halve it until each is found to the second.
        while offset(low) != offset(high):
            left, right = low, high
            while right - left > 1:
                middle = (left + right) // 2
                if offset(middle) == offset(left):
                    left = middle
                else:
                    right = middle
            instants.append(right)
            offsets.append(offset(right))
            low = right
    return np.array(instants), np.array(offsets)
