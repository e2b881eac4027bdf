"""Decode rows of a result set (MySQL's binary protocol) in two passes: `locate_rows` finds each
value and measures texts, `fill_rows` writes the columns as kernels/rows/fill.py does for row
events.

A row's packet: 3 bytes of length, a sequence number, 0x00, a bitmap of NULLs that begins at bit 2,
the values. Integers and floats are little-endian; strings and decimals (as digits) have a packed
length before them; dates and times a byte of length, 0 for zero: year (2), month, day, hour,
minute, second, microseconds (4); a TIME has a sign byte, days (4), hour, minute, second,
microseconds (4).

A plan's line has the fields of kernels/rows/wire.py; SIZE is a value's bytes, PACKED or SHORT.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import (
    copy,
    copy32,
    load8,
    load16,
    load32,
    load64,
    set_word,
    store8,
    store16,
    store32,
    store64,
    word,
)
from ray_canal.kernels.base.packed import packed_integer
from ray_canal.kernels.rows import rows as r
from ray_canal.kernels.rows import wire as w
from ray_canal.kernels.rows.arrays import ColumnArrays, Window
from ray_canal.kernels.rows.cells import clear_rest, not_valid, open_column, put_null
from ray_canal.kernels.rows.charset import to_utf8, utf8_bytes
from ray_canal.kernels.rows.temporal import date_slot, moment_slot

PACKED: Final = -1  # a packed length stands before the value
SHORT: Final = -2  # a date or time: one byte of length

# Why `locate_rows` stopped.
MORE: Final = 0  # what is left is a part of a packet
FULL: Final = 1  # no room for more rows
END: Final = 2  # an end packet starts at the returned offset
ERROR: Final = 3  # an error packet, of which all is there
LONG: Final = 4  # a packet that the next one continues

_BODY_MAX: Final = 0xFFFFFF
_END_BYTES_MAX: Final = 9
_WINDOW_ROWS: Final = 64
_MINUS: Final = 45
_POINT: Final = 46
_SECOND_US: Final = 1_000_000


@inlined
def _value_end(source, at, end, line, plan, tables, sizes, size_at):
    """Add a text's bytes to `sizes`; return the offset after the value, or an error code."""
    size = word(plan, line + w.SIZE)
    if size >= 0:
        return at + size if size <= end - at else w.TRUNCATED
    if size == SHORT:
        if at >= end:
            return w.TRUNCATED
        count = load8(source, at)
        return at + 1 + count if count < end - at else w.TRUNCATED
    count, start = packed_integer(source, at, end)
    if count < 0 or count > end - start:
        return w.TRUNCATED
    read = word(plan, line + w.WIRE)
    taken = count
    if read == w.READ_TRANSCODED:
        kind, table = word(plan, line + w.CHARSET), word(plan, line + w.TABLE)
        taken = utf8_bytes(source, start, start + count, kind, tables, table)
    elif read == w.READ_VECTOR and count & 3:
        return w.BAD_PACKED
    set_word(sizes, size_at, word(sizes, size_at) + taken)
    return start + count


@without_refcounts
def locate_rows(source, at, end, body, plan, tables, cells, sizes):
    """Note the offset of each value of the rows in source[at:end], -1 for NULL, in `cells`, row by
    row; return (why it stopped, or an error code; offset of what is not read; rows).

    `body` > 0: source[at : at + body] is one row's body, without a packet's head. `sizes`: bytes of
    text by column, at each second index.
    """
    columns = plan.size // w.PLAN_FIELDS
    most = cells.size // max(columns, 1)
    nulls_bytes = (columns + 9) >> 3
    rows = np.int64(0)
    while True:
        start, size = at, body
        if body == 0:
            if end - at < 4:
                return MORE, at, rows
            size = load16(source, at) | load8(source, at + 2) << 16
            start = at + 4
            if size == _BODY_MAX:
                return LONG, at, rows
            if end - start < size:
                return MORE, at, rows
            if size == 0:
                return w.TRUNCATED, at, rows
            head = load8(source, start)
            if head == 0xFE and size < _END_BYTES_MAX:
                return END, at, rows
            if head == 0xFF:
                return ERROR, at, rows
        if load8(source, start) != 0 or size < 1 + nulls_bytes:
            return w.TRUNCATED, at, rows
        if rows == most:
            return FULL, at, rows
        stop = start + size
        place = start + 1 + nulls_bytes
        cell = rows * columns
        for c in range(columns):
            if load8(source, start + 1 + ((c + 2) >> 3)) >> ((c + 2) & 7) & 1:
                set_word(cells, cell + c, -1)
                continue
            set_word(cells, cell + c, place)
            place = _value_end(
                source, place, stop, c * w.PLAN_FIELDS, plan, tables, sizes, 2 * c + 1
            )
            if place < 0:
                return place, at, rows
        if place != stop:
            return w.BAD_WIDTH, at, rows
        rows += 1
        at = stop
        if body > 0:
            return MORE, at, rows


@inlined
def _append_digit(target, to, limbs, digit):
    """Multiply the number at target[to :] by ten and add a digit; return what does not fit."""
    carry = digit
    for limb in range(limbs):
        product = load32(target, to + 4 * limb) * 10 + carry
        store32(target, to + 4 * limb, product & 0xFFFFFFFF)
        carry = product >> 32
    return carry


@without_refcounts
def _digits(source, at, count, scale, target, to, limbs):
    """Write a decimal's digits as a number of `limbs` 32-bit words; return False if they are
    broken."""
    for k in range(limbs):
        store32(target, to + 4 * k, 0)
    end = at + count
    negative = count > 0 and load8(source, at) == _MINUS
    at += 1 if negative else 0
    if at >= end:
        return False
    decimals = np.int64(-1)
    while at < end:
        digit = load8(source, at) - 48
        at += 1
        if digit == _POINT - 48:
            if decimals >= 0:
                return False
            decimals = np.int64(0)
            continue
        if digit < 0 or digit > 9 or _append_digit(target, to, limbs, digit):
            return False
        decimals += 1 if decimals >= 0 else 0
    for _ in range(max(decimals, 0), scale):
        if _append_digit(target, to, limbs, np.int64(0)):
            return False
    if negative:
        carry = np.int64(1)
        for limb in range(limbs):
            number = (load32(target, to + 4 * limb) ^ 0xFFFFFFFF) + carry
            store32(target, to + 4 * limb, number & 0xFFFFFFFF)
            carry = number >> 32
    return decimals <= scale


@inlined
def _short_decimal(source, at, count, scale, target, to):
    """Do as `_digits` for at most 18 digits; return False if there are more, or other than `scale`
    after the point."""
    end = at + count
    negative = count > 0 and load8(source, at) == _MINUS
    at += 1 if negative else 0
    if end - at > 19 or end == at:
        return False
    value, decimals = np.int64(0), np.int64(0)
    seen = False
    while at < end:
        byte = load8(source, at)
        at += 1
        if byte == _POINT:
            if seen:
                return False
            seen = True
            continue
        digit = byte - 48
        if digit < 0 or digit > 9:
            return False
        value = value * 10 + digit
        decimals += 1 if seen else 0
    if decimals != scale:
        return False
    value = -value if negative else value
    store64(target, to, value)
    store64(target, to + 8, value >> 63)
    return True


@inlined
def _clock(source, at, count):
    """Return (hour, minute, second, microseconds) of the `count` bytes at `at`: 0, 3 or 7."""
    if count < 3:
        return np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    micros = load32(source, at + 3) if count >= 7 else np.int64(0)
    return load8(source, at), load8(source, at + 1), load8(source, at + 2), micros


@inlined
def _put_moment(source, at, read, arena, values, row):
    """Write a date or time; return 1 if valid, 0 if irregular (codes.py), -1 if impossible."""
    count = load8(source, at)
    at += 1
    if read == w.READ_TIME:
        if count != 0 and count != 8 and count != 12:
            return -1
        total = np.int64(0)
        if count:
            days = load32(source, at + 1)
            hour, minute, second, micros = _clock(source, at + 5, count - 5)
            if days > 40 or hour > 23 or minute > 59 or second > 59 or micros >= _SECOND_US:
                return -1
            total = (((days * 24 + hour) * 60 + minute) * 60 + second) * _SECOND_US + micros
            if load8(source, at):
                total = -total
        store64(arena, values + 8 * row, total)
        return 1
    if count != 0 and count != 4 and count != 7 and count != 11:
        return -1
    date = np.int64(0)
    if count:
        year, month, day = load16(source, at), load8(source, at + 2), load8(source, at + 3)
        if year > 9999 or month > 15 or day > 31:
            return -1
        date = year << 9 | month << 5 | day
    if read == w.READ_DATE:
        slot, regular = date_slot(date)
        store32(arena, values + 4 * row, slot)
        return 1 if regular else 0
    hour, minute, second, micros = _clock(source, at + 4, count - 4)
    if hour > 31 or minute > 63 or second > 63 or micros >= _SECOND_US:
        return -1
    slot, regular = moment_slot(date, hour, minute, second, micros)
    store64(arena, values + 8 * row, slot)
    return 1 if regular else 0


@inlined
def _put_fixed(source, at, read, arena, values, row):
    """Write an integer, float, YEAR or ENUM."""
    if read == w.READ_32:
        store32(arena, values + 4 * row, load32(source, at))
    elif read == w.READ_64:
        store64(arena, values + 8 * row, load64(source, at))
    elif read == w.READ_16:
        store16(arena, values + 2 * row, load16(source, at))
    elif read == w.READ_8:
        store8(arena, values + row, load8(source, at))
    else:  # READ_ENUM: eight bytes of its index
        store16(arena, values + 2 * row, load64(source, at))


@inlined
def _numbers(read, arrays, window, line, slot):
    """Fill numbers of a fixed size; return (rows that were filled, 0)."""
    values = word(arrays.dest, slot + w.VALUES)
    for k in range(window.rows):
        at = word(arrays.cells, window.cell + k * window.width)
        if at < 0:
            put_null(arrays.plan, line, arrays.dest, slot, arrays.arena, window.row + k)
        else:
            _put_fixed(arrays.source, at, read, arrays.arena, values, window.row + k)
    return window.rows, 0


@without_refcounts
def _moments(arrays, window, line, slot):
    """Fill dates and times; return (rows that were filled, 0 or the next one's error code)."""
    dest, arena = arrays.dest, arrays.arena
    values, read = word(dest, slot + w.VALUES), word(arrays.plan, line + w.WIRE)
    for k in range(window.rows):
        at = word(arrays.cells, window.cell + k * window.width)
        if at < 0:
            put_null(arrays.plan, line, dest, slot, arena, window.row + k)
            continue
        valid = _put_moment(arrays.source, at, read, arena, values, window.row + k)
        if valid < 0:
            return k, w.BAD_TEMPORAL
        if valid == 0:
            not_valid(dest, slot, arena, window.row + k)
    return window.rows, 0


@without_refcounts
def _decimals(arrays, window, line, slot):
    """Fill decimals; return (rows that were filled, 0 or the next one's error code)."""
    source, plan, dest, arena = arrays.source, arrays.plan, arrays.dest, arrays.arena
    values, scale = word(dest, slot + w.VALUES), word(plan, line + w.SCALE)
    short = word(plan, line + w.WIRE) == w.READ_DECIMAL64
    limbs = 8 if word(plan, line + w.WIRE) == w.READ_DECIMAL256 else 4
    for k in range(window.rows):
        at = word(arrays.cells, window.cell + k * window.width)
        if at < 0:
            put_null(plan, line, dest, slot, arena, window.row + k)
            continue
        count, at = packed_integer(source, at, source.size)
        to = values + 4 * limbs * (window.row + k)
        good = short and _short_decimal(source, at, count, scale, arena, to)
        if not good and not _digits(source, at, count, scale, arena, to, limbs):
            return k, w.BAD_DECIMAL
    return window.rows, 0


@inlined
def _texts(arrays, window, line, slot):
    """Fill texts and bytes; return (rows that were filled, 0)."""
    source, plan, dest, arena = arrays.source, arrays.plan, arrays.dest, arrays.arena
    values, data = word(dest, slot + w.VALUES), word(dest, slot + w.DATA)
    read, end = word(plan, line + w.WIRE), word(dest, slot + w.DATA_END)
    to = data + word(dest, slot + w.USED)
    for k in range(window.rows):
        at = word(arrays.cells, window.cell + k * window.width)
        if at < 0:
            not_valid(dest, slot, arena, window.row + k)
        else:
            count, at = packed_integer(source, at, source.size)
            if read == w.READ_TRANSCODED:
                kind, table = word(plan, line + w.CHARSET), word(plan, line + w.TABLE)
                to = to_utf8(source, at, at + count, kind, arrays.tables, table, arena, to)
            else:
                if count <= 32 and end - to >= 32 and source.size - at >= 32:
                    copy32(arena, to, source, at)  # the next values overwrite the surplus
                else:
                    copy(arena, to, source, at, count)
                to += count
        store32(arena, values + 4 * (window.row + k + 1), to - data)
    set_word(dest, slot + w.USED, to - data)
    return window.rows, 0


@inlined
def _fill_column(arrays, window, line, slot):
    """Fill the slots of a window's rows; return (rows that were filled, 0 or the next one's error
    code)."""
    read = word(arrays.plan, line + w.WIRE)
    if read >= w.READ_COPY:
        return _texts(arrays, window, line, slot)
    if read == w.READ_32:
        return _numbers(w.READ_32, arrays, window, line, slot)
    if read == w.READ_64:
        return _numbers(w.READ_64, arrays, window, line, slot)
    if read >= w.READ_DATE:
        return _moments(arrays, window, line, slot)
    if read >= w.READ_DECIMAL64:
        return _decimals(arrays, window, line, slot)
    return _numbers(read, arrays, window, line, slot)


@without_refcounts
def fill_rows(column_arrays, rows, shape, owners, event_rows):
    """Write rows that `locate_rows` has found into one table's after images; return (0 or an error
    code, row).

    The first argument is the fields of ColumnArrays. `owners`: the number of the event of the first
    rows; each event has `event_rows`.
    """
    arrays = ColumnArrays(*column_arrays)
    plan, dest, arena = arrays.plan, arrays.dest, arrays.arena
    columns = plan.size // w.PLAN_FIELDS
    owner = shape[0, r.S_ROW_EVENT]
    for row in range(rows):
        store32(arena, owner + 4 * row, owners + row // event_rows)
    clear_rest(arena, owner + 4 * rows, owner + 4 * rows)
    for c in range(columns):
        slot = c * w.COLUMN_DEST + w.DEST_FIELDS
        open_column(plan, c * w.PLAN_FIELDS, dest, slot, arena, rows)
    for first in range(0, rows, _WINDOW_ROWS):
        count = min(_WINDOW_ROWS, rows - first)
        for c in range(columns):
            window = Window(first * columns + c, columns, count, first)
            slot = c * w.COLUMN_DEST + w.DEST_FIELDS
            done, code = _fill_column(arrays, window, c * w.PLAN_FIELDS, slot)
            if code < 0:
                return code, first + done
    return 0, 0
