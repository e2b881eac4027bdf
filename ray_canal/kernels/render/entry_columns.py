"""Column messages of Canal's row entries, made column by column for a window of rows.

One column after the other a loop meets the same type, the same regions of memory and the same
constants each time; row by row, sixty columns would be sixty strangers. So a window of rows (some
128 KiB of messages, which stay in the processor's cache) is made here, and entry_rows.py puts a
row's messages together.

What does not change from row to row is copied as made beforehand (views/entries.py): a column's
head is `index`, `sqlType`, `name` and `isKey`, in one piece for each sqlType that it may have.
Messages are written backwards (entry_bytes.py says why), into `pieces`; `marks` has offset << 32 |
length of each, 0 for none: all columns of a row together, of a window's before images first.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base import codes
from ray_canal.kernels.base.jit import bare, inlined
from ray_canal.kernels.base.memory import load32, same_bytes, store32
from ray_canal.kernels.render.entry_values import (
    VALUE_BYTES_MAX,
    fixed_back,
    latin1_back,
    signed,
    unsigned,
)
from ray_canal.kernels.render.protobuf import close_back, short_back

NO_SPACE: Final = -1
NO_PIECES: Final = -2  # one row's messages are longer than `pieces`

# Columns of `columns`: one record (int64) for each column of each table, tables one after the
# other. A head and a tail are offset and length in the blobs.
C_CODE, C_PARAMETER = 0, 1
C_HEAD, C_NULL_HEAD, C_WIDE_HEAD, C_TAIL = 2, 4, 6, 8
C_TAIL_BYTES = 9
C_VALIDITY, C_VALUES, C_DATA = 10, 11, 12  # before side; the after side's are 3 further
C_STILL: Final = 16  # 1: never `updated` (a hidden key)
C_IS_WIDENED: Final = 17  # 1: unsigned, with another sqlType when the top bit is set
C_ROOM: Final = 18  # bytes that a column takes at most, twice a text's length left out
COLUMN_FIELDS: Final = 19
LEFT_OUT: Final = -1  # C_CODE of a column that no entry shows
# Columns of `tables`.
T_FIRST, T_COUNT, T_NAMES, T_NAMES_BYTES, T_OWNERS = 0, 1, 2, 3, 4
TABLE_FIELDS: Final = 5
# Columns of `windows`: of each table, the rows whose messages are there, and where their marks
# begin.
W_LOW, W_HIGH, W_MARKS = 0, 1, 2
WINDOW_FIELDS: Final = 3

_INSERT, _DELETE = 1, 3
_EXPANSION, _MESSAGE_BYTES = 4, 24
"""What messages usually take: bytes a byte of binlog, and a column besides."""


@inlined
def is_null(code, arena, validity, values, row):
    """NULL, and neither a temporal value that no calendar has nor JSON diffs without the value that
    they change."""
    if (arena[validity + (row >> 3)] >> (row & 7)) & 1:
        return False
    if code == codes.DATE:
        return signed(arena, values + 4 * row, 4) == codes.NULL_SLOT32
    if code == codes.DATETIME or code == codes.TIMESTAMP:
        return signed(arena, values + 8 * row, 8) == codes.NULL_SLOT64
    if code == codes.JSON:
        return load32(arena, values + 4 * row) == load32(arena, values + 4 * row + 4)
    return True


@bare
def same_value(code, width, arena, columns, p, row):
    """Whether a column's before and after image are equal."""
    b_validity, b_values = columns[p, C_VALIDITY], columns[p, C_VALUES]
    a_validity, a_values = columns[p, C_VALIDITY + 3], columns[p, C_VALUES + 3]
    b_null = is_null(code, arena, b_validity, b_values, row)
    a_null = is_null(code, arena, a_validity, a_values, row)
    if b_null or a_null:
        return b_null and a_null
    size = width
    b_at, a_at = b_values + width * row, a_values + width * row
    if code >= codes.FIRST_VARIABLE:
        b_start, a_start = load32(arena, b_at), load32(arena, a_at)
        size = load32(arena, b_at + 4) - b_start
        if load32(arena, a_at + 4) - a_start != size:
            return False
        b_at = columns[p, C_DATA] + b_start
        a_at = columns[p, C_DATA + 3] + a_start
    return same_bytes(arena, a_at, b_at, size)


@inlined
def has_top_bit(code, arena, values, row):
    if code == codes.U8:
        return arena[values + row] >= 128
    if code == codes.U16:
        return arena[values + 2 * row + 1] >= 128
    if code == codes.U24:
        return unsigned(arena, values + 4 * row, 4) >= 1 << 23
    if code == codes.U32:
        return arena[values + 4 * row + 3] >= 128
    return arena[values + 8 * row + 7] >= 128


@inlined
def is_present(arena, bitmap, index):
    return bitmap < 0 or (arena[bitmap + (index >> 3)] >> (index & 7)) & 1 != 0


@bare
def is_updated(code, width, event, side, index, columns, p, row, arena):
    """Whether an after image's column differs from the before image's, or there is none."""
    if not side or columns[p, C_STILL]:
        return False
    return (
        event["event_type"] == _INSERT
        or not is_present(arena, event["present"], index)
        or not same_value(code, width, arena, columns, p, row)
    )


@inlined
def _value_back(
    code, arena, values, data, row, parameter, transitions, offsets, limbs, scratch, pieces, pos
):
    """A value's text, its length and its tag; NO_SPACE if a long one does not fit."""
    end = pos
    if code < codes.FIRST_VARIABLE:
        pos = fixed_back(
            code, arena, values, row, parameter, transitions, offsets, limbs, scratch, pieces, pos
        )
    else:
        start = load32(arena, values + 4 * row)
        size = load32(arena, values + 4 * row + 4) - start
        start += data
        if pos < 2 * size + VALUE_BYTES_MAX:
            return NO_SPACE
        if code == codes.TEXT or code == codes.JSON:
            pos = short_back(arena, start, size, pieces, pos)
        else:
            pos = latin1_back(arena, start, start + size, pieces, pos)
    return close_back(0x42, end, pieces, pos)


@bare
def _column_back(
    table, index, side, low, rows, mark, is_plain, events, tables, columns, widths, arena, blobs,
    transitions, offsets, limbs, scratch, pieces, pos, marks,
): # fmt: skip
    """One column's messages, with their tags; where they begin in `pieces`, or NO_SPACE.

    `is_plain`: all rows have this side, with all columns, and all of it is updated or nothing.
    """
    count, owners = tables[table, T_COUNT], tables[table, T_OWNERS]
    p = tables[table, T_FIRST] + index
    code, parameter = columns[p, C_CODE], columns[p, C_PARAMETER]
    head, head_bytes = columns[p, C_HEAD], columns[p, C_HEAD + 1]
    tail, tail_bytes = columns[p, C_TAIL], columns[p, C_TAIL_BYTES]
    validity, values = columns[p, C_VALIDITY + 3 * side], columns[p, C_VALUES + 3 * side]
    data, room = columns[p, C_DATA + 3 * side], columns[p, C_ROOM]
    is_widened, tag = columns[p, C_IS_WIDENED], 0x12 if side else 0x0A
    updated = is_plain and side and not columns[p, C_STILL]
    here = mark + rows * count + index
    for row in range(low + rows - 1, low - 1, -1):
        here -= count
        if not is_plain:
            marks[here] = 0
            event = events[load32(arena, owners + 4 * row)]
            if event["event_type"] == (_DELETE if side else _INSERT):
                continue
            bitmap = event["present"]
            if side and bitmap >= 0:
                bitmap += (count + 7) >> 3
            if not is_present(arena, bitmap, index):
                continue
            updated = is_updated(
                code, widths[code], event, side, index, columns, p, row, arena
            )
        if pos < room:
            return NO_SPACE
        end = pos
        pos = short_back(blobs, tail, tail_bytes, pieces, pos)
        null = is_null(code, arena, validity, values, row)
        flags = np.int64(0x300028)  # 0x28 updated, 0x30 isNull
        if updated:
            flags |= 0x100
        if null:
            flags |= 0x1000000
        else:
            pos = _value_back(
                code, arena, values, data, row, parameter, transitions, offsets, limbs, scratch,
                pieces, pos,
            )  # fmt: skip
            if pos < 0:
                return pos
        pos -= 4
        store32(pieces, pos, flags)
        if null:
            pos = short_back(
                blobs, columns[p, C_NULL_HEAD], columns[p, C_NULL_HEAD + 1], pieces, pos
            )
        elif is_widened and has_top_bit(code, arena, values, row):
            pos = short_back(
                blobs, columns[p, C_WIDE_HEAD], columns[p, C_WIDE_HEAD + 1], pieces, pos
            )
        else:
            pos = short_back(blobs, head, head_bytes, pieces, pos)
        pos = close_back(tag, end, pieces, pos)
        marks[here] = pos << 32 | (end - pos)
    return pos


@bare
def _is_plain_side(side, low, rows, owners, events, arena):
    """Whether rows are images of INSERT alone (after) or of UPDATE and DELETE alone (before), with
    all columns."""
    for row in range(low, low + rows):
        event = events[load32(arena, owners + 4 * row)]
        if event["present"] >= 0 or (event["event_type"] == _INSERT) != (side == 1):
            return False
    return True


@bare
def _side_back(
    table, side, low, rows, mark, events, tables, columns, widths, arena, blobs, transitions,
    offsets, limbs, scratch, pieces, pos, marks,
): # fmt: skip
    """Messages of `rows` rows' images of one side; where they begin in `pieces`, or NO_SPACE."""
    count = tables[table, T_COUNT]
    is_plain = _is_plain_side(side, low, rows, tables[table, T_OWNERS], events, arena)
    for index in range(count):
        if columns[tables[table, T_FIRST] + index, C_CODE] == LEFT_OUT:
            for i in range(rows):
                marks[mark + i * count + index] = 0
            continue
        pos = _column_back(
            table, index, side, low, rows, mark, is_plain, events, tables, columns, widths, arena,
            blobs, transitions, offsets, limbs, scratch, pieces, pos, marks,
        )  # fmt: skip
        if pos < 0:
            return pos
    return pos


@bare
def _choose(events, chosen, at, row, tables, windows, marks, room):
    """Give tables their windows: from `row` of event chosen[at] on backwards, about `room` bytes of
    messages, one row at least. How many rows they have."""
    for table in range(windows.shape[0]):
        windows[table, W_LOW] = windows[table, W_HIGH] = 0
    total = used = 0
    while at >= 0:
        event = events[chosen[at]]
        at -= 1
        table, first = event["table"], event["row"]
        if table < 0 or event["rows"] <= 0:
            continue
        high = first + event["rows"] if total else row + 1
        old = windows[table, W_LOW] if windows[table, W_HIGH] else high
        columns = tables[table, T_COUNT]
        row_bytes = _EXPANSION * event["length"] // event["rows"] + _MESSAGE_BYTES * columns + 1
        more = min(old - first, room // row_bytes, (marks.size - used) // (2 * columns + 1))
        if total == 0:
            more = max(more, 1)
        if old - more >= high:  # not one row of this event
            break
        if not windows[table, W_HIGH]:
            windows[table, W_HIGH] = high
        windows[table, W_LOW] = old - more
        total += more
        room -= more * row_bytes
        used += 2 * columns * more
        if old - more > first:
            break
    return total


@bare
def make_window(
    chosen, at, row, events, tables, columns, widths, arena, blobs, transitions, offsets, limbs,
    scratch, pieces, marks, windows,
): # fmt: skip
    """Fill `pieces` with messages that rows from `row` of event chosen[at] on backwards need.

    `marks` has room for two images of the widest table's row. 0, or NO_PIECES.
    """
    room = pieces.size // 2
    while True:
        total = _choose(events, chosen, at, row, tables, windows, marks, room)
        pos, mark = np.int64(pieces.size), np.int64(0)
        for table in range(windows.shape[0]):
            low, rows = windows[table, W_LOW], windows[table, W_HIGH] - windows[table, W_LOW]
            windows[table, W_MARKS] = mark
            for side in range(2):
                if rows and pos >= 0:
                    pos = _side_back(
                        table, side, low, rows, mark, events, tables, columns, widths, arena,
                        blobs, transitions, offsets, limbs, scratch, pieces, pos, marks,
                    )  # fmt: skip
                    mark += rows * tables[table, T_COUNT]
        if pos >= 0:
            return 0
        if total == 1:
            windows[:, W_HIGH] = 0
            return NO_PIECES
        room //= 4
