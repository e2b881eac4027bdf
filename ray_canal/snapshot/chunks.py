"""Rows of a result as a decoded chunk: what row events of the same rows would have become."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ray_canal.binlog.chunk import (
    EVENT,
    EVENT_IN_TRANSACTION,
    EVENT_READ,
    ChunkLayout,
    DecodedChunk,
    TableLayout,
)
from ray_canal.binlog.layout import ArenaSketch, table_layout
from ray_canal.binlog.text_check import broken_row, has_broken_text, read_by_character
from ray_canal.errors import CorruptEvent, UnsupportedEvent
from ray_canal.kernels.base import codes, event_types
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.result import rows as k
from ray_canal.kernels.rows import fill as f
from ray_canal.kernels.rows import rows as r
from ray_canal.kernels.rows import wire
from ray_canal.kernels.rows.arrays import ColumnArrays
from ray_canal.kernels.rows.regions import place_tables
from ray_canal.malloc import large
from ray_canal.model.arrays import Bytes, Int64s
from ray_canal.model.canal_types import BEGIN, END, ROWDATA
from ray_canal.snapshot.columns import Selection
from ray_canal.snapshot.result import ResultRows, broken
from ray_canal.types.charset_tables import tables as charset_tables

EVENT_ROWS = 1000
"""Rows of one event: what becomes one entry for Canal's clients."""
_INSERT = 1
_TEXT_BYTES_MAX = (1 << 31) - 1
_UTF8_FACTOR = 3  # what is broken, byte by byte: three bytes each


@dataclass(frozen=True, slots=True)
class Origin:
    """Where and when rows were read: the place of the log at which they are so."""

    journal_name: str
    position: int
    server_id: int = 0
    timestamp: int = 0
    flavor: str = "mysql"


def decoded(
    selection: Selection, piece: ResultRows, origin: Origin, ordinal: int, *, framed: bool = False
) -> DecodedChunk:
    """A chunk of a piece's rows, the first of which has this ordinal in its snapshot. `framed`:
    they are a transaction, with its begin and end."""
    lines = selection.plan.lines
    while True:  # twice at most
        chunk, shape, dest = _fill(selection, lines, piece, origin, framed)
        write_events(chunk, piece.size_bytes, origin, ordinal, framed=framed)
        if not has_broken_text(lines, shape, dest, chunk.arena):
            _refuse_broken_json(selection, piece.rows, dest, chunk.arena)
            return chunk
        lines = lines.copy()
        read_by_character(lines)
        piece = piece._replace(sizes=piece.sizes * _UTF8_FACTOR)


def load_kernels() -> None:
    """Load the machine code into this process before rows are read."""
    nothing, empty = read_only(np.zeros(0, np.uint8)), np.zeros(0, np.int64)
    shape = np.zeros((1, r.SHAPE_FIELDS), np.int64)
    k.locate_rows(nothing, 0, 0, 0, empty, charset_tables(), empty, empty)
    arena = np.zeros(codes.ALIGNMENT_BYTES, np.uint8)
    arrays = ColumnArrays(nothing, empty, charset_tables(), empty, empty, empty, arena)
    k.fill_rows(tuple(arrays), 0, shape, 0, 1)


def _fill(
    selection: Selection, lines: Int64s, piece: ResultRows, origin: Origin, framed: bool
) -> tuple[DecodedChunk, Int64s, Int64s]:
    rows, columns = piece.rows, len(lines)
    if piece.sizes.size and piece.sizes.max() > _TEXT_BYTES_MAX:
        raise UnsupportedEvent(f"{selection.meta.full_name}: over 2 GiB of one column in a piece")
    shape = np.zeros((1, r.SHAPE_FIELDS), np.int64)
    shape[0, [r.S_COLUMNS, r.S_ROWS, r.S_AFTER]] = columns, rows, rows
    dest = np.zeros((columns, wire.COLUMN_DEST), np.int64)
    events = event_count(rows, framed=framed)
    sketch = ArenaSketch()
    events_at = sketch.take(events * EVENT.itemsize)
    end, _ = place_tables(lines, shape, piece.sizes, dest, sketch.size_bytes)
    arena = large(end)
    arena[: sketch.size_bytes] = 0
    arrays = ColumnArrays(
        source=read_only(piece.source),
        plan=lines.reshape(-1),
        tables=charset_tables(),
        dest=dest.reshape(-1),
        deferred=np.zeros(0, np.int64),  # nothing is: JSON comes as text
        cells=piece.cells,
        arena=arena,
    )
    code, _ = k.fill_rows(tuple(arrays), rows, shape, int(framed), EVENT_ROWS)
    if code < 0:
        raise broken(selection, code)
    f.close_tables(shape, lines.reshape(-1), dest.reshape(-1), arena)
    layout = ChunkLayout(
        origin.journal_name,
        events_at,
        events,
        events_at,
        0,
        events_at,
        0,
        (_table_layout(selection, shape, dest),),
        origin.flavor,
    )
    return DecodedChunk(layout, arena), shape, dest


def _table_layout(selection: Selection, shape: Int64s, dest: Int64s) -> TableLayout:
    return table_layout(selection.meta, selection.plan, shape[0], dest)


def event_count(rows: int, *, framed: bool) -> int:
    """Return how many events so many rows make; `framed`: with a transaction's begin and end."""
    return -(-rows // EVENT_ROWS) + 2 * framed


def write_events(
    chunk: DecodedChunk, size_bytes: int, origin: Origin, ordinal: int, *, framed: bool
) -> None:
    """Fill in a chunk's events, whose rows take so many bytes."""
    rows, events = chunk.layout.tables[0].rows, chunk.events
    events["position"] = origin.position
    events["present"] = -1
    events["inner"] = ordinal
    events["timestamp"] = origin.timestamp
    events["server_id"] = origin.server_id
    events["gtid"] = -1
    events["table"] = -1
    events["flags"] = EVENT_IN_TRANSACTION
    if framed:
        events["kind"][[0, -1]] = BEGIN, END
        events["type_code"][[0, -1]] = event_types.QUERY, event_types.XID
        events["length"][[0, -1]] = event_types.HEADER_BYTES
        events["inner"][-1] = ordinal + rows
    mine = events[1:-1] if framed else events
    first = np.arange(len(mine)) * EVENT_ROWS
    mine["inner"] = ordinal + first
    mine["length"] = min(size_bytes // max(len(mine), 1), 0xFFFFFFFF)
    mine["row"] = first
    mine["rows"] = np.minimum(rows - first, EVENT_ROWS)
    mine["table"] = 0
    mine["kind"] = ROWDATA
    mine["event_type"] = _INSERT
    mine["type_code"] = event_types.WRITE_ROWS
    mine["flags"] = EVENT_IN_TRANSACTION | EVENT_READ


def _refuse_broken_json(selection: Selection, rows: int, dest: Int64s, arena: Bytes) -> None:
    """CorruptEvent where a document is not UTF-8: servers have no such."""
    for line, code in zip(dest, selection.plan.codes, strict=True):
        if code == codes.JSON and broken_row(line, wire.DEST_FIELDS, rows, arena) >= 0:
            raise CorruptEvent(f"rows of {selection.meta.full_name}: a JSON value is broken")
