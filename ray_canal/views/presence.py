"""Make columns that tell which columns a row image has, as absent is not NULL.

The server leaves columns out of images (binlog_row_image MINIMAL, NOBLOB; MariaDB 11.8 generated
columns, too). Of a table with such an event a batch has two more columns, `before_present` and
`after_present`: structs of booleans with the fields of before and after. NULL: the image has all
columns, or there is no image. Else a column's field is true where the image has it (its NULL is
then a NULL), false where it does not, and NULL where it may have another value, which is not in the
log: a JSON diff without what it was made to, and a generated column that an UPDATE leaves out.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.binlog.chunk import DecodedChunk, TableLayout
from ray_canal.binlog.layout import aligned
from ray_canal.kernels.base import codes
from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.rows.presence import row_presence
from ray_canal.model.arrays import Int32s, Int64s

IMAGES = ("before", "after")
PRESENT_OF = {"before": "before_present", "after": "after_present"}
PRESENT = tuple(PRESENT_OF.values())


def with_presence(
    batch: pa.RecordBatch,
    chunk: DecodedChunk,
    table: TableLayout,
    owners: Int32s,
    low: int,
) -> pa.RecordBatch:
    """The batch with these columns, for the columns of before and after that it shows; without
    them where only others are absent: filtered ones, or those that MariaDB hides. It has the rows
    of `table` from `low` on; `owners` says which event each is of."""
    names = [field.name for field in batch.schema.field("after").type]
    known = {column.name: k for k, column in enumerate(table.meta.columns)}
    shown = np.array([known[name] for name in names], np.int64)
    given = batch
    for side, name in enumerate(PRESENT):
        column = _bits(chunk, table, owners, side, shown, names, low)
        batch = batch.append_column(name, column)
    generated = {column.name for column in table.meta.columns if column.is_generated}
    if generated & set(names):
        batch = _without_generated(batch, generated)
    return batch if any(lacks(batch, side, name) for side in IMAGES for name in names) else given


def _without_generated(batch: pa.RecordBatch, generated: set[str]) -> pa.RecordBatch:
    """Say of generated columns that an UPDATE's image lacks that their value is not told: MariaDB
    leaves them out whether they changed or not."""
    at = batch.schema.get_field_index(PRESENT[1])
    field, images = batch.schema.field(at), batch.column(at)
    is_update = batch.column("before").is_valid()
    flags = [images.field(number) for number in range(field.type.num_fields)]
    for number, column in enumerate(field.type):
        if column.name in generated:
            is_known = pc.or_(flags[number], pc.invert(is_update))
            flags[number] = pc.if_else(is_known, flags[number], None)
    told = pa.StructArray.from_arrays(flags, fields=list(field.type), mask=images.is_null())
    return batch.set_column(at, field, told)


def lacks(batch: pa.RecordBatch, side: str, column: str) -> bool:
    """Tell if some row's image of a side lacks a column, or has only a change of its value."""
    at = batch.schema.get_field_index(PRESENT_OF[side])
    if at < 0:
        return False
    images = batch.column(at)
    partial = images.is_valid()
    there = pc.fill_null(images.field(column), False)
    return bool(pc.any(pc.and_not(partial, there)).as_py())


def _bits(
    chunk: DecodedChunk,
    table: TableLayout,
    owners: Int32s,
    side: int,
    shown: Int64s,
    names: list[str],
    low: int,
) -> pa.StructArray:
    rows, size = len(owners), (len(owners) + 7) // 8
    places = [0, *accumulate([aligned(size)] * (len(names) + 1))]
    out = np.zeros(places[-1], np.uint8)
    whole = row_presence(
        read_only(chunk.events),
        read_only(owners),
        read_only(chunk.arena),
        side,
        (len(table.meta.columns) + table.meta.hidden + 7) // 8,
        read_only(shown),
        out,
        read_only(np.array(places, np.int64)),
    )
    buffer = pa.py_buffer(out)
    parts = [buffer.slice(at, size) for at in places[:-1]]
    children = [
        pa.Array.from_buffers(
            pa.bool_(), rows, [_known_values(chunk, table, side, k, low, rows), b]
        )
        for k, b in zip(shown.tolist(), parts[1:], strict=True)
    ]
    kind = pa.struct([pa.field(name, pa.bool_()) for name in names])
    return pa.Array.from_buffers(kind, rows, [parts[0]], whole, children=children)


def _known_values(
    chunk: DecodedChunk, table: TableLayout, side: int, column: int, low: int, rows: int
) -> Any:
    """The validity of a column's booleans: a bit for each value that is known; None: all are. JSON
    whose text is there, but not valid, is a diff (kernels/base/codes.py)."""
    layouts = table.after if side else None
    if table.json_diff is None or layouts is None or layouts[column].code != codes.JSON:
        return None
    layout, arena = layouts[column], chunk.arena
    ends = arena[layout.values :][: 4 * (table.rows + 1)].view("<i4")
    bits = arena[layout.validity :][: (table.rows + 7) // 8]
    valid = np.unpackbits(bits, count=table.rows, bitorder="little").view(np.bool_)
    known = (valid | (np.diff(ends) == 0))[low : low + rows]
    return None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
