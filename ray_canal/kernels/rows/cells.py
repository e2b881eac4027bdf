"""Write one value of a row image into its slot: the switch over the formats of columns.

The caller has measured the row before, so nothing here reads past it or writes past what was laid
out. JSON and compressed values are only noted: they have kernels of their own, which most chunks do
not need.

`line` is the index of a column's first field in the plan, `slot` that of its side in `dest`; both
arrays are flat.
"""

from __future__ import annotations

from ray_canal.kernels.base.codes import NULL_SLOT32, NULL_SLOT64
from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import (
    aligned,
    clear,
    copy,
    copy32,
    load8,
    load16,
    load32,
    load64,
    load_be,
    load_le,
    set_word,
    store8,
    store16,
    store32,
    store64,
    word,
)
from ray_canal.kernels.rows import wire as w
from ray_canal.kernels.rows.addresses import address_text
from ray_canal.kernels.rows.charset import to_utf8
from ray_canal.kernels.rows.decimals import decimal64, decimal_wide, store_decimal64
from ray_canal.kernels.rows.temporal import (
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
def clear_rest(arena, end, region_end):
    """Zero a region after its values, with the gap to the next region: what the memory held before
    must not be sent."""
    clear(arena, end, aligned(region_end))


@inlined
def _slot_bytes(null):
    """Return the bytes of a slot, by NULL_* of the plan."""
    if null < 0:
        return -null
    return 8 if null == w.NULL_64 else 4


@without_refcounts
def open_column(plan, line, dest, slot, arena, rows):
    """Mark every value of a column's side as valid, before its rows are filled. Most values are
    valid, so a bit is touched for NULLs only."""
    bits = word(dest, slot + w.VALIDITY)
    for k in range(rows >> 3):
        store8(arena, bits + k, 255)
    if rows & 7:
        store8(arena, bits + (rows >> 3), (1 << (rows & 7)) - 1)
    end = bits + ((rows + 7) >> 3)
    clear_rest(arena, end, end)
    set_word(dest, slot + w.VALID, rows)
    null, values = word(plan, line + w.NULL), word(dest, slot + w.VALUES)
    end = values + _slot_bytes(null) * rows
    if null == w.NULL_OFFSET:
        store32(arena, values, 0)
        end += 4
    clear_rest(arena, end, end)


@inlined
def string_length(source, at, prefix):
    """Return the length that stands in the `prefix` bytes before a string."""
    if prefix == 1:
        return load8(source, at)
    if prefix == 2:
        return load16(source, at)
    return load_le(source, at, prefix)


@inlined
def _signed24(source, at):
    number = load_le(source, at, 3)
    return number - (1 << 24) if number & 0x800000 else number


@inlined
def not_valid(dest, slot, arena, row):
    """Clear the validity bit that `open_column` set."""
    bits = word(dest, slot + w.VALIDITY) + (row >> 3)
    store8(arena, bits, load8(arena, bits) & ~(1 << (row & 7)))
    set_word(dest, slot + w.VALID, word(dest, slot + w.VALID) - 1)


@inlined
def put_null(plan, line, dest, slot, arena, row):
    """Write a NULL, also for a row that lacks the column or the side."""
    not_valid(dest, slot, arena, row)
    null = word(plan, line + w.NULL)
    values = word(dest, slot + w.VALUES)
    if null == -1:
        store8(arena, values + row, 0)
    elif null == -2:
        store16(arena, values + 2 * row, 0)
    elif null == -4:
        store32(arena, values + 4 * row, 0)
    elif null < 0:
        for at in range(values - null * row, values - null * (row + 1), 8):
            store64(arena, at, 0)
    elif null == w.NULL_OFFSET:
        store32(arena, values + 4 * row + 4, word(dest, slot + w.USED))
    elif null == w.NULL_64:
        store64(arena, values + 8 * row, NULL_SLOT64)
    elif null == w.NULL_32:
        store32(arena, values + 4 * row, NULL_SLOT32)


@inlined
def _put_decimal(source, at, plan, line, arena, values, row):
    """Write a decimal; return 0 or BAD_DECIMAL."""
    read = word(plan, line + w.WIRE)
    precision, scale = word(plan, line + w.PRECISION), word(plan, line + w.SCALE)
    if read == w.READ_DECIMAL64:
        number, good = decimal64(source, at, word(plan, line + w.GROUPS))
        store_decimal64(number, arena, values + 16 * row)
    elif read == w.READ_DECIMAL128:
        good = decimal_wide(source, at, precision, scale, arena, values + 16 * row, 4)
    else:
        good = decimal_wide(source, at, precision, scale, arena, values + 32 * row, 8)
    return 0 if good else w.BAD_DECIMAL


@inlined
def put_temporal(source, at, read, fraction, arena, values, row):
    """Write a date or time; return 1 if valid, 0 if irregular (codes.py), -1 if impossible."""
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
def put_fixed(source, at, read, size, arena, values, row):
    """Write an integer, float, YEAR, BIT, SET or ENUM."""
    if read == w.READ_32:
        store32(arena, values + 4 * row, load32(source, at))
    elif read == w.READ_64:
        store64(arena, values + 8 * row, load64(source, at))
    elif read == w.READ_8:
        store8(arena, values + row, load8(source, at))
    elif read == w.READ_16:
        store16(arena, values + 2 * row, load16(source, at))
    elif read == w.READ_S24:
        store32(arena, values + 4 * row, _signed24(source, at))
    elif read == w.READ_U24:
        store32(arena, values + 4 * row, load_le(source, at, 3))
    elif read == w.READ_YEAR:
        year = load8(source, at)
        store16(arena, values + 2 * row, year + 1900 if year else 0)
    elif read == w.READ_ENUM:
        store16(arena, values + 2 * row, load_le(source, at, size))
    elif read == w.READ_SET:
        store64(arena, values + 8 * row, load_le(source, at, size))
    else:
        store64(arena, values + 8 * row, load_be(source, at, size))


@inlined
def _put_string(arrays, at, count, line, slot):
    """Append a string to the column's data area; return the area's new size."""
    source, plan, dest, arena = arrays.source, arrays.plan, arrays.dest, arrays.arena
    read = word(plan, line + w.WIRE)
    data, used = word(dest, slot + w.DATA), word(dest, slot + w.USED)
    if read == w.READ_COPY or read == w.READ_VECTOR:
        room = word(dest, slot + w.DATA_END) - data - used
        if count <= 32 and room >= 32 and source.size - at >= 32:
            copy32(arena, data + used, source, at)  # the next values overwrite the surplus
        else:
            copy(arena, data + used, source, at, count)
        return used + count
    if read == w.READ_PADDED:
        copy(arena, data + used, source, at, count)
        padded = max(count, word(plan, line + w.PRECISION))
        clear(arena, data + used + count, data + used + padded)
        return used + padded
    if read != w.READ_TRANSCODED:
        return address_text(source, at, count, read, arena, data + used) - data
    kind, table = word(plan, line + w.CHARSET), word(plan, line + w.TABLE)
    return to_utf8(source, at, at + count, kind, arrays.tables, table, arena, data + used) - data


@inlined
def put_value(arrays, at, line, slot, row):
    """Write one value; return the offset after it, or an error code of wire.py."""
    source, plan, dest, arena = arrays.source, arrays.plan, arrays.dest, arrays.arena
    size, read = word(plan, line + w.SIZE), word(plan, line + w.WIRE)
    values = word(dest, slot + w.VALUES)
    if size < 0:
        count = string_length(source, at, -size)
        at -= size
        if read >= w.READ_JSON:
            note = word(dest, slot + w.DEFERRED) + row
            set_word(arrays.deferred, 2 * note, at)
            set_word(arrays.deferred, 2 * note + 1, count)
        else:
            used = _put_string(arrays, at, count, line, slot)
            set_word(dest, slot + w.USED, used)
            store32(arena, values + 4 * row + 4, used)
        at += count
    else:
        if read < w.READ_DECIMAL64:
            put_fixed(source, at, read, size, arena, values, row)
        elif read < w.READ_DATE:
            if _put_decimal(source, at, plan, line, arena, values, row) < 0:
                return w.BAD_DECIMAL
        else:
            valid = put_temporal(source, at, read, word(plan, line + w.SCALE), arena, values, row)
            if valid < 0:
                return w.BAD_TEMPORAL
            if valid == 0:
                not_valid(dest, slot, arena, row)
        at += size
    return at
