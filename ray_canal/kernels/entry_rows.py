"""A row event's RowChange message of Canal's entries: columns, rows and the head of their
message, written backwards (entry_bytes.py says why).

What does not change from row to row is copied as made beforehand (views/entries.py): a column's
head is `index`, `sqlType`, `name` and `isKey`, in one piece for each sqlType that it may have.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels import codes
from ray_canal.kernels.entry_values import (
    VALUE_BYTES_MAX,
    fixed_back,
    latin1_back,
    signed,
    unsigned,
)
from ray_canal.kernels.jit import bare, inlined
from ray_canal.kernels.memory import load32, load64, store32
from ray_canal.kernels.protobuf import close_back, number_back, short_back

NO_SPACE: Final = -1

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
T_FIRST, T_COUNT, T_NAMES, T_NAMES_BYTES = 0, 1, 2, 3
TABLE_FIELDS: Final = 4

_INSERT, _DELETE = 1, 3


@inlined
def _is_null(code, arena, validity, values, row):  # type: ignore[no-untyped-def]
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


@inlined
def _equal(arena, a, b, size):  # type: ignore[no-untyped-def]
    at = 0
    while size - at >= 8:
        if load64(arena, a + at) != load64(arena, b + at):
            return False
        at += 8
    while at < size:
        if arena[a + at] != arena[b + at]:
            return False
        at += 1
    return True


@bare
def _same(code, width, arena, columns, p, row):  # type: ignore[no-untyped-def]
    """Whether a column's before and after image are equal."""
    b_validity, b_values = columns[p, C_VALIDITY], columns[p, C_VALUES]
    a_validity, a_values = columns[p, C_VALIDITY + 3], columns[p, C_VALUES + 3]
    b_null = _is_null(code, arena, b_validity, b_values, row)
    a_null = _is_null(code, arena, a_validity, a_values, row)
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
    return _equal(arena, a_at, b_at, size)


@inlined
def _has_top_bit(code, arena, values, row):  # type: ignore[no-untyped-def]
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
def _column_back(
    columns, p, side, row, updated, arena, blobs, transitions, offsets, limbs, scratch, buf, pos
):  # type: ignore[no-untyped-def]
    """One Column message with its tag; NO_SPACE if it does not fit."""
    code = columns[p, C_CODE]
    values = columns[p, C_VALUES + 3 * side]
    start = size = np.int64(0)
    if code >= codes.FIRST_VARIABLE:
        start = load32(arena, values + 4 * row)
        size = load32(arena, values + 4 * row + 4) - start
        start += columns[p, C_DATA + 3 * side]
    if pos < 2 * size + columns[p, C_ROOM]:
        return NO_SPACE
    end = pos
    pos = short_back(blobs, columns[p, C_TAIL], columns[p, C_TAIL_BYTES], buf, pos)
    null = _is_null(code, arena, columns[p, C_VALIDITY + 3 * side], values, row)
    head = C_HEAD
    if null:
        head = C_NULL_HEAD
    else:
        value_end = pos
        if code == codes.TEXT or code == codes.JSON:
            pos = short_back(arena, start, size, buf, pos)
        elif code >= codes.FIRST_VARIABLE:
            pos = latin1_back(arena, start, start + size, buf, pos)
        else:
            pos = fixed_back(
                code, arena, values, row, columns[p, C_PARAMETER], transitions, offsets, limbs,
                scratch, buf, pos,
            )  # fmt: skip
        pos = close_back(0x42, value_end, buf, pos)
        if columns[p, C_IS_WIDENED] and _has_top_bit(code, arena, values, row):
            head = C_WIDE_HEAD
    pos -= 4
    flags = np.int64(0x300028)  # 0x28 updated, 0x30 isNull
    if updated:
        flags |= 0x100
    if null:
        flags |= 0x1000000
    store32(buf, pos, flags)
    pos = short_back(blobs, columns[p, head], columns[p, head + 1], buf, pos)
    return close_back(0x0A if side == 0 else 0x12, end, buf, pos)


@inlined
def _present(arena, bitmap, index):  # type: ignore[no-untyped-def]
    return bitmap < 0 or (arena[bitmap + (index >> 3)] >> (index & 7)) & 1 != 0


@bare
def _image_back(
    kind, present, side, row, first, count, columns, widths, arena, blobs, transitions, offsets,
    limbs, scratch, buf, pos,
):  # type: ignore[no-untyped-def] # fmt: skip
    """The columns of one image."""
    before_bits = after_bits = np.int64(-1)
    if present >= 0:
        before_bits = present
        after_bits = present + (count + 7) // 8
    bits = after_bits if side else before_bits
    for index in range(count - 1, -1, -1):
        p = first + index
        code = columns[p, C_CODE]
        if code == LEFT_OUT or not _present(arena, bits, index):
            continue
        updated = False
        if side == 1 and not columns[p, C_STILL]:
            updated = (
                kind == _INSERT
                or not _present(arena, before_bits, index)
                or not _same(code, widths[code], arena, columns, p, row)
            )
        pos = _column_back(
            columns, p, side, row, updated, arena, blobs, transitions, offsets, limbs, scratch,
            buf, pos,
        )  # fmt: skip
        if pos < 0:
            return pos
    return pos


@bare
def rows_back(
    event, tables, columns, widths, arena, blobs, transitions, offsets, limbs, scratch, buf, pos
):  # type: ignore[no-untyped-def]
    """storeValue of a row entry."""
    end = pos
    kind, present = np.int64(event["event_type"]), np.int64(event["present"])
    table = event["table"]
    first, count = tables[table, T_FIRST], tables[table, T_COUNT]
    start = np.int64(event["row"])
    for row in range(start + event["rows"] - 1, start - 1, -1):
        row_end = pos
        for side in range(1, -1, -1):
            if (side == 0 and kind == _INSERT) or (side == 1 and kind == _DELETE):
                continue
            pos = _image_back(
                kind, present, side, row, first, count, columns, widths, arena, blobs,
                transitions, offsets, limbs, scratch, buf, pos,
            )  # fmt: skip
            if pos < 0:
                return pos
        if pos < VALUE_BYTES_MAX:
            return NO_SPACE
        pos = close_back(0x62, row_end, buf, pos)
    if pos < VALUE_BYTES_MAX:
        return NO_SPACE
    pos -= 2
    buf[pos] = 0x50  # isDdl = false
    buf[pos + 1] = 0
    pos = number_back(0x10, kind, buf, pos)
    pos = number_back(0x08, np.int64(event["aux"]), buf, pos)
    return close_back(0x1A, end, buf, pos)
