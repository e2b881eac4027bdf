"""JSON columns: from the places that kernels/rows/fill.py has noted to text, one column and side at
a time; and the diffs of partial values, one table at a time."""

from __future__ import annotations

import numpy as np

from ray_canal.kernels.base.jit import kernel
from ray_canal.kernels.base.memory import copy, prefetch, store32
from ray_canal.kernels.json.diff import diffs_text, expression_text, patched_text
from ray_canal.kernels.json.scalars import NO_SPACE
from ray_canal.kernels.json.text import DEPTH_MAX, STACK_FIELDS, json_text
from ray_canal.kernels.rows import wire as w
from ray_canal.kernels.rows.cells import not_valid

_AHEAD_ROWS = 8  # rows lie far apart: without fetching ahead, each value would be waited for
_NULL_TEXT = np.frombuffer(b"null", np.uint8)


@kernel
def fill_json(source, p, base, rows, dest, deferred, alone, name, arena):
    """Write a column's texts and offsets. (0 or an error code, row).

    `alone` says of each row whether its before image lacks the column (empty: none does). Diffs in
    such a row become SQL over the column's `name`, behind a validity bit that says NULL.
    JSON_SPACE is no error: the texts need more room than was laid out.
    """
    values, data = dest[p, base + w.VALUES], dest[p, base + w.DATA]
    data_end = dest[p, base + w.DATA_END]
    to = data
    stack = np.empty((DEPTH_MAX + 1, STACK_FIELDS), np.int64)
    for row in range(rows):
        note = dest[p, base + w.DEFERRED] + row
        at, count = deferred[note, 0], deferred[note, 1]
        if row + _AHEAD_ROWS < rows:
            ahead = deferred[note + _AHEAD_ROWS, 0]
            prefetch(source, ahead)
            prefetch(source, ahead + 64)  # few documents are shorter than a cache line
        if count == 0:  # MySQL reads an empty JSON value as the literal null
            if data_end - to < 4:
                return w.JSON_SPACE, row
            copy(arena, to, _NULL_TEXT, 0, 4)
            to += 4
        elif count > 0:
            behind = json_text(source, at, at + count, arena, to, data_end, stack)
            if behind < 0:
                return (w.JSON_SPACE if behind == NO_SPACE else w.BAD_JSON), row
            to = behind
        elif count <= w.PARTIAL:
            old = dest[p, w.DEFERRED] + row  # the before image's value
            end = at + w.PARTIAL - count
            if len(alone) and alone[row]:
                behind = expression_text(source, at, end, name, arena, to, data_end)
                not_valid(dest.reshape(-1), p * w.COLUMN_DEST + base, arena, row)
            elif deferred[old, 1] < 0:
                return w.NO_BEFORE, row
            else:
                first, last = deferred[old, 0], deferred[old, 0] + deferred[old, 1]
                behind = patched_text(source, first, last, at, end, arena, to, data_end)
            if behind < 0:
                return (w.JSON_SPACE if behind == NO_SPACE else w.BAD_JSON), row
            to = behind
        store32(arena, values + 4 * row + 4, to - data)
    dest[p, base + w.USED] = to - data
    return 0, 0


@kernel
def write_diffs(source, lines, rows, dest, deferred, names, name_ends, out, offsets, bits):
    """Write `{"column": [diffs], …}` of each row that has partial values; (bytes, 0), or (an error
    code, row).

    `lines` are the plan's lines of the table's JSON columns; names[name_ends[k - 1]:name_ends[k]]
    is what comes before the k-th one's diffs. `offsets` gets the texts' ends, `bits` their rows.
    """
    pos = 0
    room = len(out)
    for row in range(rows):
        start = pos
        for k in range(len(lines)):
            note = dest[lines[k], w.DEST_FIELDS + w.DEFERRED] + row
            at, count = deferred[note, 0], deferred[note, 1]
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
