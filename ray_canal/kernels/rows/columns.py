"""Fill one column of a window of rows: from the offsets of its values in the chunk to its slots.

Column by column, a loop meets one type only, and its constants stay in registers; row by row, each
value would pass through the switch over all types.

The values of a column are in `cells` as `Window` says. The caller has measured the rows before, so
nothing here reads past them or writes past what was laid out. Each function returns (rows that were
filled, 0 or the error code of the next row).
"""

from __future__ import annotations

from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import copy, copy32, set_word, store32, word
from ray_canal.kernels.rows import wire as w
from ray_canal.kernels.rows.cells import (
    not_valid,
    put_fixed,
    put_null,
    put_temporal,
    put_value,
    string_length,
)
from ray_canal.kernels.rows.decimals import decimal64, store_decimal64


@inlined
def _fixed(read, arrays, window, line, slot):
    """Fill integers, floats, YEAR, BIT, SET or ENUM."""
    plan, dest, arena = arrays.plan, arrays.dest, arrays.arena
    size, values = word(plan, line + w.SIZE), word(dest, slot + w.VALUES)
    for k in range(window.rows):
        at = word(arrays.cells, window.cell + k * window.width)
        if at < 0:
            put_null(plan, line, dest, slot, arena, window.row + k)
        else:
            put_fixed(arrays.source, at, read, size, arena, values, window.row + k)
    return window.rows, 0


@inlined
def _temporal(read, fraction, arrays, window, line, slot):
    """Fill dates and times of `fraction` bytes of a fraction."""
    dest, arena = arrays.dest, arrays.arena
    values = word(dest, slot + w.VALUES)
    for k in range(window.rows):
        at = word(arrays.cells, window.cell + k * window.width)
        if at < 0:
            put_null(arrays.plan, line, dest, slot, arena, window.row + k)
            continue
        valid = put_temporal(arrays.source, at, read, fraction, arena, values, window.row + k)
        if valid < 0:
            return k, w.BAD_TEMPORAL
        if valid == 0:
            not_valid(dest, slot, arena, window.row + k)
    return window.rows, 0


@inlined
def _decimals(arrays, window, line, slot):
    """Fill decimals of at most 18 digits."""
    plan, dest, arena = arrays.plan, arrays.dest, arrays.arena
    groups, values = word(plan, line + w.GROUPS), word(dest, slot + w.VALUES)
    for k in range(window.rows):
        at = word(arrays.cells, window.cell + k * window.width)
        if at < 0:
            put_null(plan, line, dest, slot, arena, window.row + k)
            continue
        number, good = decimal64(arrays.source, at, groups)
        if not good:
            return k, w.BAD_DECIMAL
        store_decimal64(number, arena, values + 16 * (window.row + k))
    return window.rows, 0


@inlined
def _copy_short(target, to, end, source, at, count):
    """Copy `count` bytes, without a call if they are at most 128. Up to 128 bytes may be written
    before `end`, where the room of all values ends; the next values overwrite the surplus."""
    if count <= 64 and end - to >= 64 and source.size - at >= 64:
        copy32(target, to, source, at)
        copy32(target, to + 32, source, at + 32)
    elif count <= 128 and end - to >= 128 and source.size - at >= 128:
        copy32(target, to, source, at)
        copy32(target, to + 32, source, at + 32)
        copy32(target, to + 64, source, at + 64)
        copy32(target, to + 96, source, at + 96)
    else:
        copy(target, to, source, at, count)


@inlined
def _strings(prefix, arrays, window, line, slot):
    """Fill strings that are copied, after `prefix` bytes of length."""
    source, dest, arena = arrays.source, arrays.dest, arrays.arena
    values, data = word(dest, slot + w.VALUES), word(dest, slot + w.DATA)
    to, end = data + word(dest, slot + w.USED), word(dest, slot + w.DATA_END)
    for k in range(window.rows):
        at = word(arrays.cells, window.cell + k * window.width)
        if at < 0:
            not_valid(dest, slot, arena, window.row + k)
        else:
            count = string_length(source, at, prefix)
            _copy_short(arena, to, end, source, at + prefix, count)
            to += count
        store32(arena, values + 4 * (window.row + k + 1), to - data)
    set_word(dest, slot + w.USED, to - data)
    return window.rows, 0


@inlined
def _notes(arrays, window, line, slot):
    """Note offset and length of values that kernels of their own will write."""
    plan, dest, deferred = arrays.plan, arrays.dest, arrays.deferred
    prefix = -word(plan, line + w.SIZE)
    note = 2 * (word(dest, slot + w.DEFERRED) + window.row)
    for k in range(window.rows):
        at = word(arrays.cells, window.cell + k * window.width)
        if at < 0:
            put_null(plan, line, dest, slot, arrays.arena, window.row + k)
        else:
            set_word(deferred, note + 2 * k, at + prefix)
            set_word(deferred, note + 2 * k + 1, string_length(arrays.source, at, prefix))
    return window.rows, 0


@without_refcounts
def _others(arrays, window, line, slot):
    """Fill values of the rarer types, each through the switch over all types."""
    for k in range(window.rows):
        at = word(arrays.cells, window.cell + k * window.width)
        if at < 0:
            put_null(arrays.plan, line, arrays.dest, slot, arrays.arena, window.row + k)
            continue
        code = put_value(arrays, at, line, slot, window.row + k)
        if code < 0:
            return k, code
    return window.rows, 0


@inlined
def fill_column(arrays, window, line, slot):
    """Fill the slots of a window's rows."""
    read, size = word(arrays.plan, line + w.WIRE), word(arrays.plan, line + w.SIZE)
    if read == w.READ_COPY:
        if size == -1:
            return _strings(1, arrays, window, line, slot)
        if size == -2:
            return _strings(2, arrays, window, line, slot)
        return _strings(-size, arrays, window, line, slot)
    if read == w.READ_32:
        return _fixed(w.READ_32, arrays, window, line, slot)
    if read == w.READ_64:
        return _fixed(w.READ_64, arrays, window, line, slot)
    if read == w.READ_8:
        return _fixed(w.READ_8, arrays, window, line, slot)
    if read == w.READ_16:
        return _fixed(w.READ_16, arrays, window, line, slot)
    fraction = word(arrays.plan, line + w.SCALE)
    if read == w.READ_DATETIME:
        return _temporal(w.READ_DATETIME, fraction, arrays, window, line, slot)
    if read == w.READ_TIMESTAMP:
        return _temporal(w.READ_TIMESTAMP, fraction, arrays, window, line, slot)
    if read == w.READ_DECIMAL64:
        return _decimals(arrays, window, line, slot)
    if read == w.READ_JSON or read == w.READ_INFLATED:
        return _notes(arrays, window, line, slot)
    if read < w.READ_DECIMAL64:
        return _fixed(read, arrays, window, line, slot)
    if read == w.READ_DATE:
        return _temporal(w.READ_DATE, 0, arrays, window, line, slot)
    if read == w.READ_TIME:
        return _temporal(w.READ_TIME, fraction, arrays, window, line, slot)
    return _others(arrays, window, line, slot)
