"""One column of a window of rows: from the places of its values in the chunk to its slots.

Row by row, sixty columns would be sixty strangers, each value a walk through all kinds; column by
column a loop meets the same kind each time, with what does not change in registers.

`cells` has the offset of each value of the window, or -1 where there is none: those of one column
begin at `cell` and are `width` apart. The caller has measured the rows before, so nothing here
reads past them or writes past what was laid out.
"""

from __future__ import annotations

from ray_canal.kernels.base.jit import bare, inlined
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
def _fixed(
    read, source, cells, cell, width, rows, plan, line, dest, slot, arena, row
):
    """Rows that were filled: all."""
    size, values = word(plan, line + w.SIZE), word(dest, slot + w.VALUES)
    for k in range(rows):
        at = word(cells, cell + k * width)
        if at < 0:
            put_null(plan, line, dest, slot, arena, row + k)
        else:
            put_fixed(source, at, read, size, arena, values, row + k)
    return rows, 0


@inlined
def _temporal(
    read, fraction, source, cells, cell, width, rows, plan, line, dest, slot, arena, row
):
    values = word(dest, slot + w.VALUES)
    for k in range(rows):
        at = word(cells, cell + k * width)
        if at < 0:
            put_null(plan, line, dest, slot, arena, row + k)
            continue
        valid = put_temporal(source, at, read, fraction, arena, values, row + k)
        if valid < 0:
            return k, w.BAD_TEMPORAL
        if valid == 0:
            not_valid(dest, slot, arena, row + k)
    return rows, 0


@inlined
def _decimals(
    source, cells, cell, width, rows, plan, line, dest, slot, arena, row
):
    groups, values = word(plan, line + w.GROUPS), word(dest, slot + w.VALUES)
    for k in range(rows):
        at = word(cells, cell + k * width)
        if at < 0:
            put_null(plan, line, dest, slot, arena, row + k)
            continue
        number, good = decimal64(source, at, groups)
        if not good:
            return k, w.BAD_DECIMAL
        store_decimal64(number, arena, values + 16 * (row + k))
    return rows, 0


@inlined
def _copy_short(target, to, end, source, at, count):
    """Copy what is mostly of up to 128 bytes: those go without a call. What is too much, the next
    values overwrite; `end` is behind the room for all of them."""
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
def _strings(
    prefix, source, cells, cell, width, rows, plan, line, dest, slot, arena, row
):
    values, data = word(dest, slot + w.VALUES), word(dest, slot + w.DATA)
    to, end = data + word(dest, slot + w.USED), word(dest, slot + w.DATA_END)
    for k in range(rows):
        at = word(cells, cell + k * width)
        if at < 0:
            not_valid(dest, slot, arena, row + k)
        else:
            count = string_length(source, at, prefix)
            _copy_short(arena, to, end, source, at + prefix, count)
            to += count
        store32(arena, values + 4 * (row + k + 1), to - data)
    set_word(dest, slot + w.USED, to - data)
    return rows, 0


@inlined
def _notes(
    source, cells, cell, width, rows, plan, line, dest, slot, arena, row, deferred
):
    """Places and lengths of what kernels of their own will fill."""
    prefix = -word(plan, line + w.SIZE)
    note = 2 * (word(dest, slot + w.DEFERRED) + row)
    for k in range(rows):
        at = word(cells, cell + k * width)
        if at < 0:
            put_null(plan, line, dest, slot, arena, row + k)
        else:
            set_word(deferred, note + 2 * k, at + prefix)
            set_word(deferred, note + 2 * k + 1, string_length(source, at, prefix))
    return rows, 0


@bare
def _others(
    source, cells, cell, width, rows, plan, line, tables, dest, slot, arena, row, deferred
):
    """What is rare: value by value."""
    for k in range(rows):
        at = word(cells, cell + k * width)
        if at < 0:
            put_null(plan, line, dest, slot, arena, row + k)
            continue
        code = put_value(source, at, plan, line, tables, dest, slot, arena, row + k, deferred)
        if code < 0:
            return k, code
    return rows, 0


@inlined
def fill_column(
    source, cells, cell, width, rows, plan, line, tables, dest, slot, arena, row, deferred
):
    """Fill `rows` slots from `row` on. (How many were, 0 or the error code of the next one.)"""
    read = word(plan, line + w.WIRE)
    rest = source, cells, cell, width, rows, plan, line, dest, slot, arena, row
    if read == w.READ_COPY:
        if word(plan, line + w.SIZE) == -1:
            return _strings(1, *rest)
        if word(plan, line + w.SIZE) == -2:
            return _strings(2, *rest)
        return _strings(-word(plan, line + w.SIZE), *rest)
    if read == w.READ_32:
        return _fixed(w.READ_32, *rest)
    if read == w.READ_64:
        return _fixed(w.READ_64, *rest)
    if read == w.READ_8:
        return _fixed(w.READ_8, *rest)
    if read == w.READ_16:
        return _fixed(w.READ_16, *rest)
    if read == w.READ_DATETIME:
        return _temporal(w.READ_DATETIME, word(plan, line + w.SCALE), *rest)
    if read == w.READ_TIMESTAMP:
        return _temporal(w.READ_TIMESTAMP, word(plan, line + w.SCALE), *rest)
    if read == w.READ_DECIMAL64:
        return _decimals(*rest)
    if read == w.READ_JSON or read == w.READ_INFLATED:
        return _notes(*rest, deferred)
    if read < w.READ_DECIMAL64:
        return _fixed(read, *rest)
    if read == w.READ_DATE:
        return _temporal(w.READ_DATE, 0, *rest)
    if read == w.READ_TIME:
        return _temporal(w.READ_TIME, word(plan, line + w.SCALE), *rest)
    return _others(
        source, cells, cell, width, rows, plan, line, tables, dest, slot, arena, row, deferred
    )
