"""Make the column messages of Canal's row entries, column by column for a window of rows.

Column by column, a loop meets one type, one region of memory, and constants that stay in registers.
So a window of rows (some 128 KiB of messages, which stay in the processor's cache) is made here,
and entry_rows.py puts a row's messages together.

What does not change from row to row is copied as made beforehand (views/entries.py): a column's
head is `index`, `sqlType`, `name` and `isKey`, in one piece for each sqlType that it may have.
Messages are written backwards (entry_bytes.py says why), into `pieces`; `marks` has offset << 32 |
length of each, 0 for none: all columns of a row together, a window's before images first.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from ray_canal.kernels.base import codes
from ray_canal.kernels.base.jit import inlined, without_refcounts
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
# Columns of `windows`: for each table, the rows whose messages are in `pieces`, and where their
# marks begin.
W_LOW, W_HIGH, W_MARKS = 0, 1, 2
WINDOW_FIELDS: Final = 3

_INSERT, _DELETE = 1, 3
_EXPANSION, _MESSAGE_BYTES = 4, 24
"""Usual size of messages: bytes for a byte of binlog, and bytes for a column in addition."""


@inlined
def is_null(code, arena, validity, values, row):
    """Tell if a value is NULL, and neither an irregular temporal value (codes.py) nor JSON diffs
    whose before image is not in the log."""
    if (arena[validity + (row >> 3)] >> (row & 7)) & 1:
        return False
    if code == codes.DATE:
        return signed(arena, values + 4 * row, 4) == codes.NULL_SLOT32
    if code == codes.DATETIME or code == codes.TIMESTAMP:
        return signed(arena, values + 8 * row, 8) == codes.NULL_SLOT64
    if code == codes.JSON:
        return load32(arena, values + 4 * row) == load32(arena, values + 4 * row + 4)
    return True


@without_refcounts
def same_value(code, width, arena, columns, p, row):
    """Tell if a column's before and after image are equal."""
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
    """Tell if an unsigned value has its highest bit set."""
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
    """Tell if an image has a column; `bitmap` below 0: it has all."""
    return bitmap < 0 or (arena[bitmap + (index >> 3)] >> (index & 7)) & 1 != 0


@inlined
def is_updated(rows, event, side, index, p, row):
    """Tell if an after image's column differs from the before image's, or has none."""
    columns, arena = rows.columns, rows.arena
    if not side or columns[p, C_STILL]:
        return False
    code = columns[p, C_CODE]
    return (
        event["event_type"] == _INSERT
        or not is_present(arena, event["present"], index)
        or not same_value(code, rows.widths[code], arena, columns, p, row)
    )


class _Column(NamedTuple):
    """Constants of a column's side: its record, and the offsets that change from row to row."""

    p: Any
    code: Any
    parameter: Any
    room: Any
    head: Any
    head_bytes: Any
    tail: Any
    tail_bytes: Any
    validity: Any
    values: Any
    data: Any
    is_widened: Any


class _Rows(NamedTuple):
    """A table's rows of a window: the first one, how many, and where their marks begin."""

    low: Any
    count: Any
    mark: Any


@inlined
def _value_back(rows, column, row, pieces, pos):
    """Write a value's text, its length and its tag; return NO_SPACE if a long one does not fit."""
    code, values = column.code, column.values
    end = pos
    if code < codes.FIRST_VARIABLE:
        pos = fixed_back(rows, code, values, row, column.parameter, pieces, pos)
    else:
        arena = rows.arena
        start = load32(arena, values + 4 * row)
        size = load32(arena, values + 4 * row + 4) - start
        start += column.data
        if pos < 2 * size + VALUE_BYTES_MAX:
            return NO_SPACE
        if code == codes.TEXT or code == codes.JSON:
            pos = short_back(arena, start, size, pieces, pos)
        else:
            pos = latin1_back(arena, start, start + size, pieces, pos)
    return close_back(0x42, end, pieces, pos)


@inlined
def _message_back(rows, column, row, updated, pieces, pos):
    """Write one column message without tag and length; NO_SPACE."""
    if pos < column.room:
        return NO_SPACE
    blobs, columns, p = rows.blobs, rows.columns, column.p
    pos = short_back(blobs, column.tail, column.tail_bytes, pieces, pos)
    null = is_null(column.code, rows.arena, column.validity, column.values, row)
    flags = np.int64(0x300028)  # 0x28 updated, 0x30 isNull
    if updated:
        flags |= 0x100
    if null:
        flags |= 0x1000000
    else:
        pos = _value_back(rows, column, row, pieces, pos)
        if pos < 0:
            return pos
    pos -= 4
    store32(pieces, pos, flags)
    if null:
        return short_back(blobs, columns[p, C_NULL_HEAD], columns[p, C_NULL_HEAD + 1], pieces, pos)
    if column.is_widened and has_top_bit(column.code, rows.arena, column.values, row):
        return short_back(blobs, columns[p, C_WIDE_HEAD], columns[p, C_WIDE_HEAD + 1], pieces, pos)
    return short_back(blobs, column.head, column.head_bytes, pieces, pos)


@without_refcounts
def _column_back(rows, window, table, side, index, span, is_plain, pos):
    """Write one column's messages, with their tags; return where they begin in `pieces`, or
    NO_SPACE.

    `is_plain`: all rows have this side, with all columns, and all of it is updated or nothing.
    """
    tables, columns, pieces, marks = rows.tables, rows.columns, window.pieces, window.marks
    count, owners = tables[table, T_COUNT], tables[table, T_OWNERS]
    p, third = tables[table, T_FIRST] + index, 3 * side
    column = _Column(
        p, columns[p, C_CODE], columns[p, C_PARAMETER], columns[p, C_ROOM],
        columns[p, C_HEAD], columns[p, C_HEAD + 1], columns[p, C_TAIL], columns[p, C_TAIL_BYTES],
        columns[p, C_VALIDITY + third], columns[p, C_VALUES + third], columns[p, C_DATA + third],
        columns[p, C_IS_WIDENED],
    )  # fmt: skip
    tag = 0x12 if side else 0x0A
    updated = is_plain and side and not columns[p, C_STILL]
    here = span.mark + span.count * count + index
    for row in range(span.low + span.count - 1, span.low - 1, -1):
        here -= count
        if not is_plain:
            marks[here] = 0
            event = rows.events[load32(rows.arena, owners + 4 * row)]
            if event["event_type"] == (_DELETE if side else _INSERT):
                continue
            bitmap = event["present"]
            if side and bitmap >= 0:
                bitmap += (count + 7) >> 3
            if not is_present(rows.arena, bitmap, index):
                continue
            updated = is_updated(rows, event, side, index, p, row)
        end = pos
        pos = _message_back(rows, column, row, updated, pieces, pos)
        if pos < 0:
            return pos
        pos = close_back(tag, end, pieces, pos)
        marks[here] = pos << 32 | (end - pos)
    return pos


@without_refcounts
def _is_plain_side(side, low, rows, owners, events, arena):
    """Tell if rows have this side with all columns, and no other side: those of INSERT (after), or
    of DELETE and UPDATE (before)."""
    for row in range(low, low + rows):
        event = events[load32(arena, owners + 4 * row)]
        if event["present"] >= 0 or (event["event_type"] == _INSERT) != (side == 1):
            return False
    return True


@without_refcounts
def _side_back(rows, window, table, side, span, pos):
    """Write the messages of one side of a window's rows; return where they begin in `pieces`, or
    NO_SPACE."""
    tables = rows.tables
    count, owners = tables[table, T_COUNT], tables[table, T_OWNERS]
    is_plain = _is_plain_side(side, span.low, span.count, owners, rows.events, rows.arena)
    for index in range(count):
        if rows.columns[tables[table, T_FIRST] + index, C_CODE] == LEFT_OUT:
            for i in range(span.count):
                window.marks[span.mark + i * count + index] = 0
            continue
        pos = _column_back(rows, window, table, side, index, span, is_plain, pos)
        if pos < 0:
            return pos
    return pos


@without_refcounts
def _choose(events, chosen, at, row, tables, windows, marks, room):
    """Give tables their windows, from `row` of event chosen[at] backwards, of about `room` bytes of
    messages and one row at least; return the number of rows."""
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


@without_refcounts
def make_window(chosen, at, row, rows, window):
    """Fill `pieces` with the messages that rows from `row` of event chosen[at] backwards need;
    return 0 or NO_PIECES. `marks` has room for two images of the widest table's row."""
    windows, pieces = window.windows, window.pieces
    room = pieces.size // 2
    while True:
        total = _choose(rows.events, chosen, at, row, rows.tables, windows, window.marks, room)
        pos, mark = np.int64(pieces.size), np.int64(0)
        for table in range(windows.shape[0]):
            low, count = windows[table, W_LOW], windows[table, W_HIGH] - windows[table, W_LOW]
            windows[table, W_MARKS] = mark
            for side in range(2):
                if count and pos >= 0:
                    pos = _side_back(rows, window, table, side, _Rows(low, count, mark), pos)
                    mark += count * rows.tables[table, T_COUNT]
        if pos >= 0:
            return 0
        if total == 1:
            windows[:, W_HIGH] = 0
            return NO_PIECES
        room //= 4
