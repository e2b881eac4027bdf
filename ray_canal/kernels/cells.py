"""One value of a row image into its slot: the switch over how columns stand in rows.

The caller has measured the row before, so nothing here reads past it or writes past what was laid
out. JSON and compressed values are only noted: they have kernels of their own, which most chunks do
not need.
"""

from __future__ import annotations

import numpy as np

from ray_canal.kernels import wire as w
from ray_canal.kernels.addresses import address_text
from ray_canal.kernels.charset import to_utf8
from ray_canal.kernels.codes import NULL_SLOT32, NULL_SLOT64
from ray_canal.kernels.decimals import decimal64, decimal_wide, store_decimal64
from ray_canal.kernels.jit import inlined
from ray_canal.kernels.memory import (
    copy,
    load16,
    load32,
    load64,
    load_be,
    load_le,
    store8,
    store16,
    store32,
    store64,
)
from ray_canal.kernels.temporal import (
    date_slot,
    datetime_new,
    datetime_old,
    hires,
    time_new,
    time_old,
    timestamp_new,
    timestamp_slot,
)


@inlined
def string_length(source, at, prefix):  # type: ignore[no-untyped-def]
    if prefix == 1:
        return np.int64(source[at])
    if prefix == 2:
        return load16(source, at)
    return load_le(source, at, prefix)


@inlined
def _signed24(source, at):  # type: ignore[no-untyped-def]
    number = load_le(source, at, 3)
    return number - (1 << 24) if number & 0x800000 else number


@inlined
def put_null(plan, p, dest, base, arena, row):  # type: ignore[no-untyped-def]
    """A NULL, or a row that lacks the column or the side."""
    null = plan[p, w.NULL]
    values = dest[p, base + w.VALUES]
    if null == w.NULL_OFFSET:
        store32(arena, values + 4 * row + 4, dest[p, base + w.USED])
    elif null == w.NULL_64:
        store64(arena, values + 8 * row, NULL_SLOT64)
    elif null == w.NULL_32:
        store32(arena, values + 4 * row, NULL_SLOT32)


@inlined
def _put_decimal(source, at, plan, p, arena, values, row):  # type: ignore[no-untyped-def]
    """0 or BAD_DECIMAL."""
    read, precision, scale = plan[p, w.WIRE], plan[p, w.PRECISION], plan[p, w.SCALE]
    if read == w.READ_DECIMAL64:
        number, good = decimal64(source, at, precision, scale)
        store_decimal64(number, arena, values + 16 * row)
    elif read == w.READ_DECIMAL128:
        good = decimal_wide(source, at, precision, scale, arena, values + 16 * row, 4)
    else:
        good = decimal_wide(source, at, precision, scale, arena, values + 32 * row, 8)
    return 0 if good else w.BAD_DECIMAL


@inlined
def _put_temporal(source, at, read, fraction, arena, values, row):  # type: ignore[no-untyped-def]
    """1 valid, 0 irregular, -1 neither."""
    if read == w.READ_DATE:
        slot, regular = date_slot(load_le(source, at, 3))
        store32(arena, values + 4 * row, slot)
        return 1 if regular else 0
    if read == w.READ_DATETIME:
        slot, valid = datetime_new(source, at, fraction)
    elif read == w.READ_TIMESTAMP:
        slot, valid = timestamp_new(source, at, fraction)
    elif read == w.READ_TIME:
        slot, valid = time_new(source, at, fraction)
    elif read == w.READ_DATETIME_OLD:
        slot, valid = datetime_old(load64(source, at))
    elif read == w.READ_TIMESTAMP_OLD:
        slot, valid = timestamp_slot(load32(source, at), 0)
    elif read >= w.READ_DATETIME_HIRES:
        slot, valid = hires(source, at, read, fraction)
    else:
        slot, valid = time_old(_signed24(source, at))
    store64(arena, values + 8 * row, slot)
    return valid


@inlined
def _put_fixed(source, at, plan, p, arena, values, row):  # type: ignore[no-untyped-def]
    """Integers, floats, YEAR, BIT, SET, ENUM."""
    read, size = plan[p, w.WIRE], plan[p, w.SIZE]
    if read == w.READ_32:
        store32(arena, values + 4 * row, load32(source, at))
    elif read == w.READ_64:
        store64(arena, values + 8 * row, load64(source, at))
    elif read == w.READ_8:
        store8(arena, values + row, np.int64(source[at]))
    elif read == w.READ_16:
        store16(arena, values + 2 * row, load16(source, at))
    elif read == w.READ_S24:
        store32(arena, values + 4 * row, _signed24(source, at))
    elif read == w.READ_U24:
        store32(arena, values + 4 * row, load_le(source, at, 3))
    elif read == w.READ_YEAR:
        year = np.int64(source[at])
        store16(arena, values + 2 * row, year + 1900 if year else 0)
    elif read == w.READ_ENUM:
        store16(arena, values + 2 * row, load_le(source, at, size))
    elif read == w.READ_SET:
        store64(arena, values + 8 * row, load_le(source, at, size))
    else:
        store64(arena, values + 8 * row, load_be(source, at, size))


@inlined
def _put_string(source, at, count, plan, p, tables, dest, base, arena):  # type: ignore[no-untyped-def]
    """Append to the column's data area; its new size."""
    read, data, used = plan[p, w.WIRE], dest[p, base + w.DATA], dest[p, base + w.USED]
    if read == w.READ_COPY or read == w.READ_VECTOR:
        copy(arena, data + used, source, at, count)
        return used + count
    if read == w.READ_PADDED:  # the arena is zero where nothing was written
        copy(arena, data + used, source, at, count)
        return used + max(count, plan[p, w.PRECISION])
    if read != w.READ_TRANSCODED:
        return address_text(source, at, count, read, arena, data + used) - data
    kind, table = plan[p, w.CHARSET], plan[p, w.TABLE]
    return to_utf8(source, at, at + count, kind, tables, table, arena, data + used) - data


@inlined
def put_value(source, at, plan, p, tables, dest, base, arena, row, deferred):  # type: ignore[no-untyped-def]
    """Write one value; the offset behind it, or an error code."""
    size, read = plan[p, w.SIZE], plan[p, w.WIRE]
    values = dest[p, base + w.VALUES]
    if size < 0:
        count = string_length(source, at, -size)
        at -= size
        if read >= w.READ_JSON:
            note = dest[p, base + w.DEFERRED] + row
            deferred[note, 0] = at
            deferred[note, 1] = count
        else:
            used = _put_string(source, at, count, plan, p, tables, dest, base, arena)
            dest[p, base + w.USED] = used
            store32(arena, values + 4 * row + 4, used)
        at += count
    else:
        if read < w.READ_DECIMAL64:
            _put_fixed(source, at, plan, p, arena, values, row)
        elif read < w.READ_DATE:
            if _put_decimal(source, at, plan, p, arena, values, row) < 0:
                return w.BAD_DECIMAL
        else:
            valid = _put_temporal(source, at, read, plan[p, w.SCALE], arena, values, row)
            if valid < 0:
                return w.BAD_TEMPORAL
            if valid == 0:
                return at + size
        at += size
    bits = dest[p, base + w.VALIDITY] + (row >> 3)
    arena[bits] = arena[bits] | 1 << (row & 7)
    dest[p, base + w.VALID] += 1
    return at
