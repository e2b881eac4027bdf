"""Render a decoded chunk as Canal's `Entry` protobuf bytes, by a kernel and on demand."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from ray_canal.binlog.chunk import GTID_MYSQL, ChunkLayout, DecodedChunk, TableLayout
from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.canal.packet import varint
from ray_canal.filter import FieldFilter
from ray_canal.kernels.base import codes
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.render import entry_bytes as kernels
from ray_canal.kernels.render import entry_columns as column_kernels
from ray_canal.kernels.render.arrays import HeaderArrays
from ray_canal.kernels.render.entry_values import VALUE_BYTES_MAX
from ray_canal.kernels.rows.records import entry_pieces, shown_entries
from ray_canal.model.arrays import Bools, Bytes, Int64s
from ray_canal.model.gtid import GtidSet
from ray_canal.model.table_meta import HIDDEN_KEYS, ColumnMeta, TableMeta
from ray_canal.types.registry import sql_type, sql_type_of_null, sql_type_widened
from ray_canal.views.gtid_sets import executed_sets
from ray_canal.views.row_arrays import Blobs, place_columns, row_arrays, storage_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

_EMPTY_NAMES = b"\x42\x00\x4a\x00"  # schemaName "" and tableName ""
_REUSED_BYTES_MIN, _REUSED_BYTES_MAX = 1 << 20, 64 << 20
_EXPANSION, _ENTRY_BYTES = 4, 400
"""Usual most size of entries: bytes for a byte of binlog, and bytes for an entry in addition."""
_PIECE_BYTES, _PIECE_ENTRY_BYTES = 1 << 19, 100
"""Size of a piece, and what it counts for an entry: most take less than _ENTRY_BYTES."""
_PIECES_BYTES = 1 << 18
_MARKS_MIN = 1 << 13
"""Room for the messages of a window of rows, and for their number."""
_NO_MASK = np.zeros(0, np.bool_)
_NO_PLACES = (-1,) * 6


class EntryOptions(TypedDict, total=False):
    """How entries are rendered, as keyword arguments.

    `time_zone`: zone in which TIMESTAMP is printed (UTC). `gtid`: add Canal's GTID fields;
    `gtid_set`: the set executed before the chunk. `fields`: leave out columns that it does not
    admit.
    """

    time_zone: str
    gtid: bool
    gtid_set: str
    fields: FieldFilter | None


@dataclass(frozen=True, slots=True)
class EntryBytes:
    """Rendered entries: entry i is `buffer[offsets[i]:offsets[i + 1]]`."""

    buffer: Bytes
    offsets: Int64s

    @property
    def held_bytes(self) -> int:
        """Bytes of the memory that they keep, which may be larger than they are."""
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
    tag: int = 0,
    **options: Unpack[EntryOptions],
) -> EntryBytes:
    """Return the entries [first, last) whose `mask` (one element an entry of the chunk) is true, as
    wire bytes; without the silent ones.

    `tag` puts a field's tag and each entry's length (varint) before it, as inside another message.
    Raises ConfigError: no such time zone.
    """
    renderer = _Renderer(chunk, tag, options)
    return _entries_in(*renderer.render(chosen_entries(chunk, first, last, mask)))


def _entries_in(buffer: Bytes, starts: Int64s) -> EntryBytes:
    """Return the entries that `_Renderer.render` wrote."""
    return EntryBytes(buffer, np.append(buffer.size - starts, buffer.size))


def load_kernels() -> None:
    """Load the machine code into this process before the first entries are asked for: that takes
    half a second."""
    nothing = DecodedChunk(ChunkLayout("", 0, 0, 0, 0, 0, 0, ()), np.zeros(0, np.uint8))
    render_entries(nothing, 0, 0)


def chosen_entries(chunk: DecodedChunk, first: int, last: int, mask: Bools | None) -> Int64s:
    """Return the numbers of the entries that are shown. Raises IndexError: a range or mask of
    another chunk."""
    chosen: Int64s = np.empty(max(last - first, 0), np.int64)
    count = chunk.layout.event_count
    if not 0 <= first <= last <= count or (mask is not None and len(mask) != count):
        raise IndexError(f"entries {first} to {last} of {count}")
    given = read_only(_NO_MASK if mask is None else mask)
    return chosen[: shown_entries(read_only(chunk.events), first, last, given, chosen)]


class _Renderer:
    """Arrays that the kernel renders one chunk with, made once. With `reuses_buffer`, this thread's
    next such rendering overwrites what `render` returned."""

    def __init__(
        self,
        chunk: DecodedChunk,
        prefix: int,
        options: EntryOptions,
        *,
        reuses_buffer: bool = False,
    ) -> None:
        journal = _field(0x12, chunk.layout.journal_name.encode())
        journal += _header_props(chunk.layout.props)
        blobs = Blobs(journal, _EMPTY_NAMES)
        tables, columns = _tables(chunk.layout.tables, blobs, options.get("fields"))
        gtids = np.zeros((0, kernels.GTID_FIELDS), np.int64)
        if options.get("gtid"):
            gtids = _gtids(chunk, options.get("gtid_set", ""), blobs)
        zone = options.get("time_zone", "UTC")
        self._chunk = chunk
        self._buffers = _reused.take if reuses_buffer else _new_buffer
        self._rows = tuple(row_arrays(chunk, (tables, columns), blobs, zone))
        header = HeaderArrays(
            queries=read_only(chunk.queries),
            gtids=gtids,
            names=_names_room(chunk),
            journal_bytes=len(journal),
            prefix=np.int64(prefix),
        )
        self._header = tuple(header)
        self._window = _window_room(tables)

    def render(self, chosen: Int64s, binlog_bytes: int | None = None) -> tuple[Bytes, Int64s]:
        """Return the entries' bytes, and each one's distance from their end. `binlog_bytes`: length
        of their events, where it is known."""
        if binlog_bytes is None:
            binlog_bytes = _binlog_bytes(self._chunk, chosen)
        buffer = self._buffers(_most_bytes(self._chunk, binlog_bytes, len(chosen)))
        starts = np.zeros(len(chosen), np.int64)
        pieces = _pieces.take(_PIECES_BYTES)
        done, used = len(chosen), 0
        while True:
            window = pieces, *self._window
            done, used, code = kernels.write_entries(
                chosen, done, self._rows, self._header, window, buffer, used, starts
            )
            if not done:
                return buffer[buffer.size - used :], starts
            if code == column_kernels.NO_PIECES:
                pieces = np.empty(2 * pieces.size, np.uint8)
                continue
            grown = self._buffers(2 * buffer.size)
            grown[grown.size - used :] = buffer[buffer.size - used :]
            buffer = grown


class _ReusedBuffer(threading.local):
    """A buffer for each thread: fresh memory for each chunk costs a page fault for every 4 KiB."""

    def __init__(self) -> None:
        self._buffer: Bytes = np.empty(0, np.uint8)

    def take(self, size: int) -> Bytes:
        """Return a buffer of `size` bytes or more; a new one if that is too large to keep."""
        if size > _REUSED_BYTES_MAX:
            return _new_buffer(size)
        if size > self._buffer.size:
            self._buffer = np.empty(max(size, _REUSED_BYTES_MIN), np.uint8)
        return self._buffer


_reused = _ReusedBuffer()
_pieces = _ReusedBuffer()


def _new_buffer(size: int) -> Bytes:
    return np.empty(size, np.uint8)


def _names_room(chunk: DecodedChunk) -> Bytes:
    """Return the kernel's room for the longest names of a statement."""
    queries = chunk.queries
    names = queries["schema_bytes"].astype(np.int64) + queries["table_bytes"]
    return np.zeros(32 + int(names.max(initial=0)), np.uint8)


def _window_room(tables: Int64s) -> tuple[Int64s, Int64s]:
    """Return the kernel's `marks` and `windows`."""
    widest = int(tables[:, column_kernels.T_COUNT].max(initial=0))
    windows = np.zeros((len(tables), column_kernels.WINDOW_FIELDS), np.int64)
    return np.empty(max(_MARKS_MIN, 2 * widest + 2), np.int64), windows


def _binlog_bytes(chunk: DecodedChunk, chosen: Int64s) -> int:
    return int(chunk.events["length"][chosen].astype(np.int64).sum())


def _most_bytes(chunk: DecodedChunk, binlog_bytes: int, entries: int) -> int:
    """Return the usual most size of rendered entries, in bytes; a buffer that is too small grows.
    Events that were compressed together all have the whole's length."""
    return 2048 + _EXPANSION * min(binlog_bytes, chunk.arena.size) + _ENTRY_BYTES * entries


def guessed_bytes(
    chunk: DecodedChunk, first: int, last: int, mask: Bools | None = None
) -> int:
    """Estimate the bytes that `render_entries` will return, for budgets of memory."""
    chosen = np.arange(first, last, dtype=np.int64)
    if mask is not None:
        chosen = chosen[mask[first:last]]
    return _most_bytes(chunk, _binlog_bytes(chunk, chosen), len(chosen))


def iter_entries(
    chunk: DecodedChunk,
    first: int,
    last: int,
    mask: Bools | None = None,
    **options: Unpack[EntryOptions],
) -> Iterator[pb.Entry]:
    """Yield the entries of `render_entries`, each parsed when it is reached."""
    for buffer, starts in _pieces_of(chunk, first, last, mask, 0, options):
        rendered = _entries_in(buffer.copy(), starts)  # the buffer is reused
        for index in range(len(rendered)):
            yield pb.Entry.FromString(bytes(rendered[index]))


def delimited_pieces(
    chunk: DecodedChunk,
    first: int,
    last: int,
    mask: Bools | None = None,
    **options: Unpack[EntryOptions],
) -> Iterator[bytes]:
    """Yield the entries of `render_entries` as bytes, each with its length (varint) before it, in
    pieces of whole entries that stay in the processor's cache: entries are several times as long as
    the binlog."""
    for buffer, _ in _pieces_of(chunk, first, last, mask, kernels.LENGTH_PREFIX, options):
        yield buffer.tobytes()


def _pieces_of(
    chunk: DecodedChunk,
    first: int,
    last: int,
    mask: Bools | None,
    prefix: int,
    options: EntryOptions,
) -> Iterator[tuple[Bytes, Int64s]]:
    """Yield what `_Renderer.render` returns; this thread's next rendering overwrites a buffer."""
    chosen = chosen_entries(chunk, first, last, mask)
    renderer = _Renderer(chunk, prefix, options, reuses_buffer=True)
    ends, binlog_bytes = (np.empty(chosen.size, np.int64) for _ in range(2))
    events = read_only(chunk.events)
    sizes = _EXPANSION, _PIECE_ENTRY_BYTES, _PIECE_BYTES
    pieces = entry_pieces(events, chosen, *sizes, ends, binlog_bytes)
    done = 0
    for end, size in zip(ends[:pieces].tolist(), binlog_bytes[:pieces].tolist(), strict=True):
        yield renderer.render(chosen[done:end], size)
        done = end


def _field(tag: int, data: bytes) -> bytes:
    return bytes([tag]) + varint(len(data)) + data


@lru_cache(maxsize=4096)
def _names(meta: TableMeta) -> bytes:
    return _field(0x42, meta.schema.encode()) + _field(0x4A, meta.table.encode())


@lru_cache(maxsize=1 << 16)
def _constants(column: ColumnMeta, index: int, code: int) -> tuple[bytes, bytes, bytes, bytes]:
    """Return a column's constant bytes: its head (index, sqlType, name, isKey) for a value, for
    NULL, and for an unsigned value with its top bit set; its tail (mysqlType)."""
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
    """Return a table's `columns` records, without places, and the blob that their offsets are of,
    which begins with its names."""
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
    layouts: tuple[TableLayout, ...], blobs: Blobs, fields: FieldFilter | None
) -> tuple[Int64s, Int64s]:
    """Return the kernel's `tables` and `columns` records."""
    tables = np.zeros((len(layouts), column_kernels.TABLE_FIELDS), np.int64)
    size = sum(len(t.meta.columns) + t.meta.hidden for t in layouts)
    columns = np.empty((size, column_kernels.COLUMN_FIELDS), np.int64)
    at = 0
    for number, table in enumerate(layouts):
        meta = table.meta
        records, blob = _table_constants(meta, storage_of(table), fields or None)
        first, _ = blobs.add(blob)
        tables[number] = (at, len(records), first, len(_names(meta)), table.row_event)
        mine = columns[at : at + len(records)]
        mine[:] = records
        mine[:, column_kernels.C_HEAD : column_kernels.C_TAIL_BYTES : 2] += first
        place_columns(mine, table)
        at += len(records)
    return tables, columns


def _gtids(chunk: DecodedChunk, before: str, blobs: Blobs) -> Int64s:
    """Write each transaction's GTID texts into `blobs`: header props curtGtid, curtGtidSn,
    curtGtidLct, and header.gtid, the set with this transaction in it. Return where they lie:
    int64[transactions, GTID_FIELDS], offset and size of each."""
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
    """Return header.props of these pairs."""
    return b"".join(
        _field(0x62, _field(0x0A, key.encode()) + _field(0x12, value.encode()))
        for key, value in props
    )
