"""A decoded chunk of one table without some of its rows."""

from __future__ import annotations

import numpy as np

from ray_canal.binlog.chunk import EVENT, ChunkLayout, ColumnLayout, DecodedChunk
from ray_canal.binlog.layout import ArenaSketch, aligned
from ray_canal.kernels.base import codes
from ray_canal.model.arrays import Bools, Bytes, Int64s


def without_rows(chunk: DecodedChunk, kept: Bools, events: int) -> DecodedChunk:
    """Return a chunk with the rows that `kept` says, of a chunk that has after images alone. It has
    room for so many events, all zero, and its rows belong to none yet."""
    table = chunk.layout.tables[0]
    rows = int(kept.sum())
    sketch, columns, parts = ArenaSketch(), list[ColumnLayout](), list[tuple[int, Bytes]]()
    events_at = sketch.take(events * EVENT.itemsize)
    owners = sketch.take(4 * rows)

    def put(data: Bytes) -> int:
        at = sketch.take(data.size)
        parts.append((at, data))
        return at

    for column in table.after or ():
        valid = _bits(chunk.arena, column.validity, table.rows)[kept]
        validity = put(np.packbits(valid, bitorder="little"))
        width = codes.WIDTH_BYTES[column.code]
        nulls = rows - int(valid.sum())
        if column.code < codes.FIRST_VARIABLE:
            slots = chunk.arena[column.values : column.values + width * table.rows]
            values = put(np.ascontiguousarray(slots.reshape(-1, width)[kept]).reshape(-1))
            columns.append(ColumnLayout(column.code, validity, values, -1, 0, nulls))
            continue
        offsets, data = _texts(chunk.arena, column, table.rows, kept)
        values, at = put(offsets), put(data)
        columns.append(ColumnLayout(column.code, validity, values, at, data.size, nulls))
    arena: Bytes = np.zeros(sketch.size_bytes, np.uint8)
    for at, data in parts:
        arena[at : at + data.size] = data
    layout = ChunkLayout(
        chunk.layout.journal_name,
        events_at,
        events,
        events_at,
        0,
        events_at,
        0,
        (table._replace(rows=rows, row_event=owners, after=tuple(columns)),),
        chunk.layout.flavor,
    )
    return DecodedChunk(layout, arena)


def _bits(arena: Bytes, at: int, rows: int) -> Bools:
    packed = arena[at : at + aligned((rows + 7) // 8)]
    return np.unpackbits(packed, count=rows, bitorder="little").view(np.bool_)


def _texts(
    arena: Bytes, column: ColumnLayout, rows: int, kept: Bools
) -> tuple[Bytes, Bytes]:
    """(offsets, data) of the kept values."""
    ends: Int64s = (
        arena[column.values : column.values + 4 * (rows + 1)].view("<i4").astype(np.int64)
    )
    sizes = np.diff(ends)
    offsets = np.concatenate([[0], np.cumsum(sizes[kept])])
    data = arena[column.data : column.data + column.data_bytes]
    chosen = data[ends[0] : ends[-1]][np.repeat(kept, sizes)]
    return offsets.astype("<i4").view(np.uint8), chosen
