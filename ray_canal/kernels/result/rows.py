"""Rows of a result set (MySQL's binary protocol) in two passes: `locate_rows` finds each value and
measures texts, `fill_rows` writes the columns as kernels/rows/fill.py does for row events.

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

from ray_canal.kernels.base.jit import bare, inlined
from ray_canal.kernels.base.memory import (
    copy,
    copy32,
    load8,
    load16,
    load32,
    load64,
    load_le,
    set_word,
    store8,
    store16,
    store32,
    store64,
    word,
)
from ray_canal.kernels.rows import rows as r
from ray_canal.kernels.rows import wire as w
from ray_canal.kernels.rows.cells import clear_behind, not_valid, open_column, put_null
from ray_canal.kernels.rows.charset import to_utf8, utf8_bytes
from ray_canal.kernels.rows.temporal import date_slot, moment_slot

PACKED: Final = -1  # a packed length stands before the value
SHORT: Final = -2  # a date or time: one byte of length

# What `locate_rows` stopped for.
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
def _packed(source, at, end):
    """(length, offset behind it), the length negative if it is broken."""
    if at >= end:
        return np.int64(-1), at
    first = load8(source, at)
    if first < 251:
        return first, at + 1
    count = 2 if first == 252 else (3 if first == 253 else 8)
    if first == 251 or first == 255 or end - at <= count:
        return np.int64(-1), at
    return load_le(source, at + 1, count), at + 1 + count


@inlined
def _value_end(source, at, end, line, plan, tables, sizes, size_at):
    """Offset behind a value, or an error code; adds a text's bytes to `sizes`."""
    size = word(plan, line + w.SIZE)
    if size >= 0:
        return at + size if size <= end - at else w.TRUNCATED
    if size == SHORT:
        if at >= end:
            return w.TRUNCATED
        count = load8(source, at)
        return at + 1 + count if count < end - at else w.TRUNCATED
    count, start = _packed(source, at, end)
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


@bare
def locate_rows(source, at, end, body, plan, tables, cells, sizes):
    """Note where each value of the rows in source[at:end] lies, -1 for NULL, in `cells`, row after
    row. (What it stopped for, or an error code; offset of what is not read; rows.)

    `body` > 0: one row's body lies at `at`, of so many bytes, without a packet's head. `sizes`:
    bytes of text by column, at each second place.
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
    """Ten times the number at target[to :] and the digit; what does not fit."""
    carry = digit
    for limb in range(limbs):
        product = load32(target, to + 4 * limb) * 10 + carry
        store32(target, to + 4 * limb, product & 0xFFFFFFFF)
        carry = product >> 32
    return carry


@bare
def _digits(source, at, count, scale, target, to, limbs):
    """Write a decimal's digits as a number of `limbs` 32-bit words; False if they are none."""
    for k in range(limbs):
        store32(target, to + 4 * k, 0)
    end = at + count
    negative = count > 0 and load8(source, at) == _MINUS
    at += 1 if negative else 0
    if at >= end:
        return False
    behind = np.int64(-1)
    while at < end:
        digit = load8(source, at) - 48
        at += 1
        if digit == _POINT - 48:
            if behind >= 0:
                return False
            behind = np.int64(0)
            continue
        if digit < 0 or digit > 9 or _append_digit(target, to, limbs, digit):
            return False
        behind += 1 if behind >= 0 else 0
    for _ in range(max(behind, 0), scale):
        if _append_digit(target, to, limbs, np.int64(0)):
            return False
    if negative:
        carry = np.int64(1)
        for limb in range(limbs):
            number = (load32(target, to + 4 * limb) ^ 0xFFFFFFFF) + carry
            store32(target, to + 4 * limb, number & 0xFFFFFFFF)
            carry = number >> 32
    return behind <= scale


@inlined
def _short_decimal(source, at, count, scale, target, to):
    """As `_digits`, of at most 18 digits; False: it is not so simple."""
    end = at + count
    negative = count > 0 and load8(source, at) == _MINUS
    at += 1 if negative else 0
    if end - at > 19 or end == at:
        return False
    value, behind = np.int64(0), np.int64(0)
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
        behind += 1 if seen else 0
    if behind != scale:
        return False
    value = -value if negative else value
    store64(target, to, value)
    store64(target, to + 8, value >> 63)
    return True


@inlined
def _clock(source, at, count):
    """(hour, minute, second, microseconds) at `at`, of `count` bytes: 0, 3 or 7."""
    if count < 3:
        return np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    micros = load32(source, at + 3) if count >= 7 else np.int64(0)
    return load8(source, at), load8(source, at + 1), load8(source, at + 2), micros


@inlined
def _put_moment(source, at, read, arena, values, row):
    """1 valid, 0 irregular, -1 neither."""
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
def _numbers(read, source, cells, cell, width, rows, plan, line, dest, slot, arena, row):
    values = word(dest, slot + w.VALUES)
    for k in range(rows):
        at = word(cells, cell + k * width)
        if at < 0:
            put_null(plan, line, dest, slot, arena, row + k)
        else:
            _put_fixed(source, at, read, arena, values, row + k)
    return rows, 0


@bare
def _moments(source, cells, cell, width, rows, plan, line, dest, slot, arena, row):
    values, read = word(dest, slot + w.VALUES), word(plan, line + w.WIRE)
    for k in range(rows):
        at = word(cells, cell + k * width)
        if at < 0:
            put_null(plan, line, dest, slot, arena, row + k)
            continue
        valid = _put_moment(source, at, read, arena, values, row + k)
        if valid < 0:
            return k, w.BAD_TEMPORAL
        if valid == 0:
            not_valid(dest, slot, arena, row + k)
    return rows, 0


@bare
def _decimals(source, cells, cell, width, rows, plan, line, dest, slot, arena, row):
    values, scale = word(dest, slot + w.VALUES), word(plan, line + w.SCALE)
    short = word(plan, line + w.WIRE) == w.READ_DECIMAL64
    limbs = 8 if word(plan, line + w.WIRE) == w.READ_DECIMAL256 else 4
    for k in range(rows):
        at = word(cells, cell + k * width)
        if at < 0:
            put_null(plan, line, dest, slot, arena, row + k)
            continue
        count, at = _packed(source, at, source.size)
        to = values + 4 * limbs * (row + k)
        good = short and _short_decimal(source, at, count, scale, arena, to)
        if not good and not _digits(source, at, count, scale, arena, to, limbs):
            return k, w.BAD_DECIMAL
    return rows, 0


@inlined
def _texts(source, cells, cell, width, rows, plan, line, tables, dest, slot, arena, row):
    values, data = word(dest, slot + w.VALUES), word(dest, slot + w.DATA)
    read, end = word(plan, line + w.WIRE), word(dest, slot + w.DATA_END)
    to = data + word(dest, slot + w.USED)
    for k in range(rows):
        at = word(cells, cell + k * width)
        if at < 0:
            not_valid(dest, slot, arena, row + k)
        else:
            count, at = _packed(source, at, source.size)
            if read == w.READ_TRANSCODED:
                kind, table = word(plan, line + w.CHARSET), word(plan, line + w.TABLE)
                to = to_utf8(source, at, at + count, kind, tables, table, arena, to)
            else:
                if count <= 32 and end - to >= 32 and source.size - at >= 32:
                    copy32(arena, to, source, at)  # what is too much, the next values overwrite
                else:
                    copy(arena, to, source, at, count)
                to += count
        store32(arena, values + 4 * (row + k + 1), to - data)
    set_word(dest, slot + w.USED, to - data)
    return rows, 0


@inlined
def _fill_column(source, cells, cell, width, rows, plan, line, tables, dest, slot, arena, row):
    """Fill `rows` slots from `row` on. (How many were, 0 or the error code of the next one.)"""
    read = word(plan, line + w.WIRE)
    rest = source, cells, cell, width, rows, plan, line, dest, slot, arena, row
    if read >= w.READ_COPY:
        return _texts(
            source, cells, cell, width, rows, plan, line, tables, dest, slot, arena, row
        )
    if read == w.READ_32:
        return _numbers(w.READ_32, *rest)
    if read == w.READ_64:
        return _numbers(w.READ_64, *rest)
    if read >= w.READ_DATE:
        return _moments(*rest)
    if read >= w.READ_DECIMAL64:
        return _decimals(*rest)
    return _numbers(read, *rest)


@bare
def fill_rows(source, rows, shape, plan, tables, dest, cells, owners, event_rows, arena):
    """Write rows that `locate_rows` has found into one table's after images. (0 or an error code,
    row.) `owners`: the number of the event of the first rows; each event has `event_rows`."""
    columns = plan.size // w.PLAN_FIELDS
    owner = shape[0, r.S_ROW_EVENT]
    for row in range(rows):
        store32(arena, owner + 4 * row, owners + row // event_rows)
    clear_behind(arena, owner + 4 * rows, owner + 4 * rows)
    for c in range(columns):
        slot = c * w.COLUMN_DEST + w.DEST_FIELDS
        open_column(plan, c * w.PLAN_FIELDS, dest, slot, arena, rows)
    for first in range(0, rows, _WINDOW_ROWS):
        count = min(_WINDOW_ROWS, rows - first)
        for c in range(columns):
            done, code = _fill_column(
                source, cells, first * columns + c, columns, count, plan, c * w.PLAN_FIELDS,
                tables, dest, c * w.COLUMN_DEST + w.DEST_FIELDS, arena, first,
            )  # fmt: skip
            if code < 0:
                return code, first + done
    return 0, 0


@bare
def join_packets(buffer, at, count, target):
    """Copy the bodies of `count` packets that follow each other, the first at `at`, to `target`;
    (bytes, offset behind them)."""
    size = np.int64(0)
    for _ in range(count):
        body = load16(buffer, at) | load8(buffer, at + 2) << 16
        copy(target, size, buffer, at + 4, body)
        size += body
        at += 4 + body
    return size, at
