"""Write JSON columns as text, one column and side at a time, from the places that
kernels/rows/fill.py has noted; and the diffs of partial values, one table at a time."""

from __future__ import annotations

import numpy as np

from ray_canal.kernels.base.jit import kernel
from ray_canal.kernels.base.memory import copy, prefetch, store32
from ray_canal.kernels.json.diff import diffs_text, expression_text
from ray_canal.kernels.json.patch import patched_text
from ray_canal.kernels.json.scalars import NO_SPACE
from ray_canal.kernels.json.text import DEPTH_MAX, STACK_FIELDS, json_text
from ray_canal.kernels.rows import wire as w
from ray_canal.kernels.rows.arrays import ColumnArrays
from ray_canal.kernels.rows.cells import not_valid

_AHEAD_ROWS = 8  # rows lie far apart: without prefetching, each value would be a cache miss
_NULL_TEXT = np.frombuffer(b"null", np.uint8)


@kernel
def fill_json(column_arrays, p, base, rows, alone, name):
    """Write a JSON column's texts and offsets; return (0 or an error code, row).

    The first argument is the fields of ColumnArrays; the places of the values are in `deferred`.
    `p` is the column's line in the plan, `base` its side's first field. `alone` tells of each row
    if its before image lacks the column (empty: none does). Diffs in such a row become SQL over the
    column's `name`, with a validity bit that says NULL. JSON_SPACE is no error: the texts need more
    room than was laid out.
    """
    arrays = ColumnArrays(*column_arrays)
    source, dest, deferred, arena = arrays.source, arrays.dest, arrays.deferred, arrays.arena
    slot = p * w.COLUMN_DEST + base
    values, data, data_end = dest[slot + w.VALUES], dest[slot + w.DATA], dest[slot + w.DATA_END]
    notes, old_notes = dest[slot + w.DEFERRED], dest[p * w.COLUMN_DEST + w.DEFERRED]
    to = data
    stack = np.empty((DEPTH_MAX + 1, STACK_FIELDS), np.int64)
    for row in range(rows):
        note = 2 * (notes + row)
        at, count = deferred[note], deferred[note + 1]
        if row + _AHEAD_ROWS < rows:
            ahead = deferred[note + 2 * _AHEAD_ROWS]
            prefetch(source, ahead)
            prefetch(source, ahead + 64)  # few documents are shorter than a cache line
        if count == 0:  # MySQL reads an empty JSON value as the literal null
            if data_end - to < 4:
                return w.JSON_SPACE, row
            copy(arena, to, _NULL_TEXT, 0, 4)
            to += 4
        elif count > 0:
            end = json_text(source, at, at + count, arena, to, data_end, stack)
            if end < 0:
                return (w.JSON_SPACE if end == NO_SPACE else w.BAD_JSON), row
            to = end
        elif count <= w.PARTIAL:
            old = 2 * (old_notes + row)  # the before image's value
            diffs_end = at + w.PARTIAL - count
            if len(alone) and alone[row]:
                end = expression_text(source, at, diffs_end, name, arena, to, data_end)
                not_valid(dest, slot, arena, row)
            elif deferred[old + 1] < 0:
                return w.NO_BEFORE, row
            else:
                document = deferred[old], deferred[old] + deferred[old + 1]
                end = patched_text(source, document, (at, diffs_end), arena, to, data_end)
            if end < 0:
                return (w.JSON_SPACE if end == NO_SPACE else w.BAD_JSON), row
            to = end
        store32(arena, values + 4 * row + 4, to - data)
    dest[slot + w.USED] = to - data
    return 0, 0


@kernel
def write_diffs(source, notes, deferred, names, name_ends, out, offsets, bits):
    """Write `{"column": [diffs], …}` of each row that has partial values; return (bytes, 0), or (an
    error code, row).

    `notes` are the first lines in `deferred` of the table's JSON columns, after side;
    names[name_ends[k - 1]:name_ends[k]] is the text before the k-th one's diffs. `offsets` gets the
    texts' ends, one more than there are rows, `bits` a bit for each row that has one.
    """
    pos = 0
    room = len(out)
    for row in range(len(offsets) - 1):
        start = pos
        for k in range(len(notes)):
            at, count = deferred[notes[k] + row, 0], deferred[notes[k] + row, 1]
            if count > w.PARTIAL:
                continue
            name = name_ends[k - 1] if k else 0
            size = name_ends[k] - name
            if room - pos < 2 + size:
                return w.JSON_SPACE, row
            out[pos] = 123 if pos == start else 44
            pos += 1
            if out[pos - 1] == 44:
                out[pos] = 32
                pos += 1
            copy(out, pos, names, name, size)
            pos += size
            pos = diffs_text(source, at, at + w.PARTIAL - count, out, pos, room)
            if pos < 0:
                return (w.JSON_SPACE if pos == NO_SPACE else w.BAD_JSON), row
        if pos > start:
            if room - pos < 1:
                return w.JSON_SPACE, row
            out[pos] = 125
            pos += 1
            bits[row >> 3] |= 1 << (row & 7)
        offsets[row + 1] = pos
    return pos, 0
