"""Write rows of Canal's FlatMessage, backwards (entry_bytes.py says why): JSON objects of column
name and text.

Every piece that does not change from row to row begins with a comma (`,"name":"`): the first one
of an object becomes its brace, the first object of a list its bracket.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base import codes
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import load32
from ray_canal.kernels.render.entry_columns import (
    C_CODE,
    C_DATA,
    C_PARAMETER,
    C_VALIDITY,
    C_VALUES,
    COLUMN_FIELDS,
    LEFT_OUT,
    NO_SPACE,
    is_null,
    is_present,
    is_updated,
)
from ray_canal.kernels.render.entry_values import fixed_back
from ray_canal.kernels.render.flat_text import ESCAPED_MAX, escaped_back, java_hash
from ray_canal.kernels.render.protobuf import short_back

# Columns of `columns` after those of entry_columns.py (whose heads and tails are not used): offset
# and length in the blobs of `,"name":"`, `,"name":null`, `,"name":"mysqlType"`, `,"name":sqlType`
# (and that of NULL, and that of an unsigned value with its top bit set), `,"name"`.
F_KEY: Final = COLUMN_FIELDS
F_NULL: Final = F_KEY + 2
F_MYSQL_TYPE: Final = F_KEY + 4
F_SQL_TYPE: Final = F_KEY + 6
F_NULL_SQL_TYPE: Final = F_KEY + 8
F_WIDE_SQL_TYPE: Final = F_KEY + 10
F_NAME: Final = F_KEY + 12  # of keys; else the length is 0
F_VARIES: Final = F_KEY + 14  # 1: a value's sqlType may be another one than the column's
F_HASHED: Final = F_KEY + 15  # 1: it chooses the partition
FLAT_FIELDS: Final = F_KEY + 16
# Columns of `tables`: the records of its columns; `room` is more than all its pieces take.
FT_FIRST, FT_COUNT, FT_ROOM, FT_VARIES = 0, 1, 2, 3
# Offset and length of `,"database":…,"es":`, of what comes after the id up to old and from old on,
# of both with null between, and of `,"table":…,"ts":`.
FT_DATABASE, FT_UP_TO_OLD, FT_FROM_OLD, FT_REST, FT_TABLE = 4, 6, 8, 10, 12
FT_FIELDS: Final = 14

NEVER: Final = np.int64(1) << 40

_DELETE: Final = 3
_COMMA, _QUOTE, _BRACKET, _BRACKET_END, _BRACE, _BRACE_END = 44, 34, 91, 93, 123, 125
_N, _U, _L = 110, 117, 108


@inlined
def piece_back(blobs, columns, p, field, buf, pos):
    """Write one of a column's pieces."""
    return short_back(blobs, columns[p, field], columns[p, field + 1], buf, pos)


@inlined
def _value_back(rows, p, side, row, room, buf, pos):
    """Write `,"name":"text"` or `,"name":null`; NO_SPACE."""
    arena, blobs, columns = rows.arena, rows.blobs, rows.columns
    code = columns[p, C_CODE]
    values = columns[p, C_VALUES + 3 * side]
    if is_null(code, arena, columns[p, C_VALIDITY + 3 * side], values, row):
        return piece_back(blobs, columns, p, F_NULL, buf, pos)
    pos -= 1
    buf[pos] = _QUOTE
    if code < codes.FIRST_VARIABLE:
        pos = fixed_back(rows, code, values, row, columns[p, C_PARAMETER], buf, pos)
    else:
        start = load32(arena, values + 4 * row)
        size = load32(arena, values + 4 * row + 4) - start
        if pos < ESCAPED_MAX * size + room:
            return NO_SPACE
        start += columns[p, C_DATA + 3 * side]
        is_latin1 = code != codes.TEXT and code != codes.JSON
        pos = escaped_back(arena, start, size, is_latin1, buf, pos)
    return piece_back(blobs, columns, p, F_KEY, buf, pos)


@inlined
def _object_back(end, buf, pos):
    """Write an object's opening brace, and the comma before it; `end`: after its last member."""
    if pos == end:
        pos -= 1
    buf[pos] = _BRACE
    pos -= 1
    buf[pos] = _COMMA
    return pos


@inlined
def side_bitmap(event, side, count, arena):
    """Return the offset of the bitmap of the side's columns; -1 if it has all."""
    bitmap = event["present"]
    if side and bitmap >= 0:
        bitmap += (count + 7) >> 3
    return bitmap


@inlined
def _row_of(event, picked, i):
    """Return the i-th of the picked rows, in its table."""
    order, first, _ = picked
    return np.int64(event["row"]) + i if first < 0 else np.int64(order[first + i])


@without_refcounts
def data_back(rows, event, picked, buf, pos):
    """Write the list of an event's picked rows, or null if they have no columns; NO_SPACE.

    `picked`: order, first and count: the rows of `order` from `first` on; `first` below 0: all of
    the event's rows.
    """
    table, tables, arena = event["table"], rows.tables, rows.arena
    start, count, room = tables[table, FT_FIRST], tables[table, FT_COUNT], tables[table, FT_ROOM]
    side = 0 if event["event_type"] == _DELETE else 1
    bitmap = side_bitmap(event, side, count, arena)
    end = pos
    pos -= 1
    buf[pos] = _BRACKET_END
    empty = pos
    for i in range(picked[2] - 1, -1, -1):
        row = _row_of(event, picked, i)
        if pos < room:
            return NO_SPACE
        pos -= 1
        buf[pos] = _BRACE_END
        inner = pos
        for index in range(count - 1, -1, -1):
            p = start + index
            if rows.columns[p, C_CODE] == LEFT_OUT or not is_present(arena, bitmap, index):
                continue
            pos = _value_back(rows, p, side, row, room, buf, pos)
            if pos < 0:
                return pos
        if pos == inner:
            pos += 1  # a row without columns is left out
        else:
            pos = _object_back(inner, buf, pos)
    if pos == empty:
        pos = end - 4
        buf[pos] = _N
        buf[pos + 1] = _U
        buf[pos + 2] = _L
        buf[pos + 3] = _L
        return pos
    buf[pos] = _BRACKET
    return pos


@without_refcounts
def first_updates(rows, event, since):
    """Fill `since` with the first row of an UPDATE that changes each column (NEVER: none does)."""
    table, tables, columns = event["table"], rows.tables, rows.columns
    start, count = tables[table, FT_FIRST], tables[table, FT_COUNT]
    bitmap = side_bitmap(event, 1, count, rows.arena)
    for index in range(count):
        since[index] = NEVER
        p = start + index
        if columns[p, C_CODE] == LEFT_OUT or not is_present(rows.arena, bitmap, index):
            continue
        for i in range(event["rows"]):
            row = np.int64(event["row"]) + i
            if is_updated(rows, event, 1, index, p, row):
                since[index] = row
                break


@without_refcounts
def old_back(rows, event, picked, since, is_exact, buf, pos):
    """Write the list of the values that the picked rows of an UPDATE had before; NO_SPACE.

    Each row has the columns that it or an earlier row of the event changes, as in Canal;
    `is_exact`: only those that the row itself changes. `picked` is that of `data_back`.
    """
    table, tables, arena = event["table"], rows.tables, rows.arena
    start, count, room = tables[table, FT_FIRST], tables[table, FT_COUNT], tables[table, FT_ROOM]
    before, after = side_bitmap(event, 0, count, arena), side_bitmap(event, 1, count, arena)
    pos -= 1
    buf[pos] = _BRACKET_END
    for i in range(picked[2] - 1, -1, -1):
        row = _row_of(event, picked, i)
        if pos < room:
            return NO_SPACE
        pos -= 1
        buf[pos] = _BRACE_END
        inner = pos
        for index in range(count - 1, -1, -1):
            p = start + index
            if since[index] > row or not is_present(arena, before, index):
                continue
            if is_exact and not (
                is_present(arena, after, index) and is_updated(rows, event, 1, index, p, row)
            ):
                continue
            pos = _value_back(rows, p, 0, row, room, buf, pos)
            if pos < 0:
                return pos
        pos = _object_back(inner, buf, pos)
    buf[pos] = _BRACKET
    return pos


@without_refcounts
def value_hash(rows, p, side, row, text):
    """Return Java's hash of a value's text; 0 for NULL. `text`: room for a fixed-width value's."""
    arena, columns = rows.arena, rows.columns
    code = columns[p, C_CODE]
    values = columns[p, C_VALUES + 3 * side]
    if is_null(code, arena, columns[p, C_VALIDITY + 3 * side], values, row):
        return np.int64(0)
    if code < codes.FIRST_VARIABLE:
        size = np.int64(len(text))
        pos = fixed_back(rows, code, values, row, columns[p, C_PARAMETER], text, size)
        return java_hash(text, pos, size - pos, False)
    start = load32(arena, values + 4 * row)
    size = load32(arena, values + 4 * row + 4) - start
    is_latin1 = code != codes.TEXT and code != codes.JSON
    return java_hash(arena, columns[p, C_DATA + 3 * side] + start, size, is_latin1)
