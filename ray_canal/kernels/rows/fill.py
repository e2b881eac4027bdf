"""Fill columns: the second pass over row events, whose format rows.py has.

Windows of rows of one table are filled column by column (columns.py), rows of PARTIAL_UPDATE_ROWS
one by one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import copy, load8, load64, set_word, store32, word
from ray_canal.kernels.rows import wire as w
from ray_canal.kernels.rows.arrays import ColumnArrays, RowEvents, Window
from ray_canal.kernels.rows.cells import (
    clear_rest,
    open_column,
    put_null,
    put_value,
    string_length,
)
from ray_canal.kernels.rows.columns import fill_column
from ray_canal.kernels.rows.rows import (
    AFTER,
    AFTER_COLUMNS,
    AHEAD_EVENTS,
    BEFORE,
    BEFORE_COLUMNS,
    DATA,
    E_END,
    E_NUMBER,
    E_TABLE,
    E_VERSION,
    PRESENT,
    ROW,
    ROWS,
    S_AFTER,
    S_BEFORE,
    S_COLUMNS,
    S_FIRST,
    S_ROW_EVENT,
    S_ROWS,
    VERSION_PARTIAL,
    has_whole_words,
    json_columns_of,
    partial_bits,
    prefetch_event,
)

_WINDOW_ROWS: Final = 64  # stay in the processor's cache while their columns are filled
_NOWHERE: Final = -1


@inlined
def _locate_whole(source, nulls, columns, plan, line, cells, cell):
    """Do as `_locate_image` for an image that `has_whole_words`."""
    at = nulls + ((columns + 7) >> 3)
    c = np.int64(0)
    while c < columns:
        is_null = load64(source, nulls + (c >> 3)) >> (c & 7)
        run = word(plan, line + w.RUN)
        if run == 0:
            set_word(cells, cell + c, at | -(is_null & 1))
            if not is_null & 1:
                size = word(plan, line + w.SIZE)
                at += string_length(source, at, -size) - size
            c += 1
            line += w.PLAN_FIELDS
            continue
        for k in range(c, c + run):
            null = is_null & 1
            is_null >>= 1
            set_word(cells, cell + k, at | -null)
            at += word(plan, line + w.SIZE) & (null - 1)
            line += w.PLAN_FIELDS
        c += run
    return at


@inlined
def _locate_image(arrays, at, bitmap, present, columns, line, cell):
    """Note the offset of each value of an image, -1 for an absent one; return the offset after the
    image."""
    source, plan, cells = arrays.source, arrays.plan, arrays.cells
    nulls = at
    at += (present + 7) >> 3
    if has_whole_words(source, nulls, present, columns):
        return _locate_whole(source, nulls, columns, plan, line, cells, cell)
    k = 0
    for c in range(columns):
        if present != columns and not load8(source, bitmap + (c >> 3)) >> (c & 7) & 1:
            set_word(cells, cell + c, _NOWHERE)
        else:
            null = load8(source, nulls + (k >> 3)) >> (k & 7) & 1
            k += 1
            set_word(cells, cell + c, at | -null)
            size = word(plan, line + w.SIZE)
            if size >= 0:
                at += size & (null - 1)  # no branch: the processor cannot predict NULLs
            elif not null:
                at += string_length(source, at, -size) - size
        line += w.PLAN_FIELDS
    return at


@inlined
def _nowhere(cells, cell, columns):
    """Note that a row has none of these values."""
    for c in range(cell, cell + columns):
        set_word(cells, c, _NOWHERE)


@without_refcounts
def _fill_window(arrays, shape, table, width, rows, row):
    """Fill the columns of a window of `rows` rows, each of `width` cells; return (rows that were
    filled, 0 or the error code of the next row)."""
    columns, cell, code = shape[table, S_COLUMNS], 0, 0
    for side in range(2):
        if shape[table, S_BEFORE + side] == 0:
            continue
        line = shape[table, S_FIRST] * w.PLAN_FIELDS
        slot = shape[table, S_FIRST] * w.COLUMN_DEST + side * w.DEST_FIELDS
        for _ in range(columns):
            done, failed = fill_column(arrays, Window(cell, width, rows, row), line, slot)
            if failed < 0:  # of the next columns, only earlier rows matter
                rows, code = done, failed
            line += w.PLAN_FIELDS
            slot += w.COLUMN_DEST
            cell += 1
    return rows, code


@without_refcounts
def _open_tables(shape, plan, dest, arena):
    """Mark all values as valid and zero the gaps between regions."""
    for table in range(shape.shape[0]):
        first, rows = shape[table, S_FIRST], shape[table, S_ROWS]
        end = shape[table, S_ROW_EVENT] + 4 * rows
        clear_rest(arena, end, end)
        for side in range(2):
            if shape[table, S_BEFORE + side] > 0:
                for p in range(first, first + shape[table, S_COLUMNS]):
                    slot = p * w.COLUMN_DEST + side * w.DEST_FIELDS
                    open_column(plan, p * w.PLAN_FIELDS, dest, slot, arena, rows)


@without_refcounts
def close_tables(shape, plan, dest, arena):
    """Zero what is left of the data areas after all columns are filled."""
    for table in range(shape.shape[0]):
        first = shape[table, S_FIRST]
        for side in range(2):
            for p in range(first, first + shape[table, S_COLUMNS]):
                is_variable = word(plan, p * w.PLAN_FIELDS + w.NULL) == w.NULL_OFFSET
                if is_variable and shape[table, S_BEFORE + side] > 0:
                    slot = p * w.COLUMN_DEST + side * w.DEST_FIELDS
                    used = word(dest, slot + w.DATA) + word(dest, slot + w.USED)
                    clear_rest(arena, used, word(dest, slot + w.DATA_END))


@without_refcounts
def _copy_bitmaps(source, i, heads, columns, arena):
    """Copy event i's bitmaps of present columns into the arena."""
    present, size = heads[i, PRESENT], (columns + 7) >> 3
    for side in range(2):
        if heads[i, BEFORE + side] >= 0:
            copy(arena, present + side * size, source, heads[i, BEFORE + side], size)


@inlined
def _locate_rows(arrays, log, at, i, rows, row, cell):
    """Note the offsets of the values of `rows` rows of event i; return the offset after them.

    `row` is the first one's row in its table, `cell` its first cell. Of each row, the before images
    come first, if the table has any."""
    heads, shape, table = log.heads, log.shape, log.events[i, E_TABLE]
    columns = shape[table, S_COLUMNS]
    line = shape[table, S_FIRST] * w.PLAN_FIELDS
    owner, number = shape[table, S_ROW_EVENT] + 4 * row, log.events[i, E_NUMBER]
    before, after = heads[i, BEFORE], heads[i, AFTER]
    before_columns, after_columns = heads[i, BEFORE_COLUMNS], heads[i, AFTER_COLUMNS]
    has_before, has_after = shape[table, S_BEFORE] > 0, shape[table, S_AFTER] > 0
    for k in range(rows):
        store32(arrays.arena, owner + 4 * k, number)
        if before >= 0:
            at = _locate_image(arrays, at, before, before_columns, columns, line, cell)
        elif has_before:
            _nowhere(arrays.cells, cell, columns)
        cell += columns if has_before else 0
        if after >= 0:
            at = _locate_image(arrays, at, after, after_columns, columns, line, cell)
        elif has_after:
            _nowhere(arrays.cells, cell, columns)
        cell += columns if has_after else 0
    return at


@inlined
def _fill_events(arrays, log, i, last):
    """Fill the rows of the events [i, last), in windows of rows of one table; return (0 or an error
    code, index in `events`)."""
    events, heads, shape = log.events, log.heads, log.shape
    done_rows = np.int64(0)  # of event i
    at = heads[i, DATA]
    while i < last:
        table = events[i, E_TABLE]
        columns = shape[table, S_COLUMNS]
        sides = (1 if shape[table, S_BEFORE] else 0) + (1 if shape[table, S_AFTER] else 0)
        width = sides * columns
        most = min(arrays.cells.size // max(width, 1), _WINDOW_ROWS)
        first, row, rows = i, heads[i, ROW] + done_rows, np.int64(0)
        while i < last and rows < most and events[i, E_TABLE] == table:
            if done_rows == 0:
                at = heads[i, DATA]
                if i + AHEAD_EVENTS < last:
                    prefetch_event(arrays.source, heads[i + AHEAD_EVENTS, DATA])
                if heads[i, PRESENT] >= 0:
                    _copy_bitmaps(arrays.source, i, heads, columns, arrays.arena)
            take = min(heads[i, ROWS] - done_rows, most - rows)
            at = _locate_rows(arrays, log, at, i, take, row + rows, rows * width)
            rows += take
            done_rows += take
            if done_rows == heads[i, ROWS]:
                done_rows = np.int64(0)
                i += 1
        done, code = _fill_window(arrays, shape, table, width, rows, row)
        if code < 0:
            while heads[first, ROW] + heads[first, ROWS] <= row + done:
                first += 1
            return code, first
    return 0, 0


@without_refcounts
def fill_rows(column_arrays, row_events):
    """Write all rows into the arena; return (0 or an error code, index in `events`).

    The arguments are the fields of ColumnArrays and RowEvents. `cells` has room for two images of
    the widest table or more. `close_tables` is to follow. No event may be PARTIAL_UPDATE_ROWS:
    `fill_partial_rows` is for chunks with such, a kernel of its own because its code in this loop
    would cost a tenth of the speed.
    """
    arrays, log = ColumnArrays(*column_arrays), RowEvents(*row_events)
    _open_tables(log.shape, arrays.plan, arrays.dest, arrays.arena)
    if log.events.shape[0] == 0:
        return 0, 0
    return _fill_events(arrays, log, 0, log.events.shape[0])


@inlined
def _fill_image(arrays, at, bitmap, present, columns, line, slot, row):
    """Fill one image, value by value; return the offset after it, or an error code."""
    source, plan, dest, arena = arrays.source, arrays.plan, arrays.dest, arrays.arena
    nulls = at
    at += (present + 7) >> 3
    k = 0
    for c in range(columns):
        if present != columns and not load8(source, bitmap + (c >> 3)) >> (c & 7) & 1:
            put_null(plan, line, dest, slot, arena, row)
        elif load8(source, nulls + (k >> 3)) >> (k & 7) & 1:
            k += 1
            put_null(plan, line, dest, slot, arena, row)
        else:
            k += 1
            at = put_value(arrays, at, line, slot, row)
            if at < 0:
                return at
        line += w.PLAN_FIELDS
        slot += w.COLUMN_DEST
    return at


@without_refcounts
def _mark_partial(arrays, bits, first, columns, row):
    """Mark the JSON values of a row's after image that are diffs, in their notes."""
    plan, dest, deferred = arrays.plan, arrays.dest, arrays.deferred
    k = 0
    for p in range(first, first + columns):
        if word(plan, p * w.PLAN_FIELDS + w.WIRE) != w.READ_JSON:
            continue
        slot = p * w.COLUMN_DEST + w.DEST_FIELDS
        length = 2 * (word(dest, slot + w.DEFERRED) + row) + 1
        if arrays.source[bits + (k >> 3)] >> (k & 7) & 1 and word(deferred, length) >= 0:
            set_word(deferred, length, w.PARTIAL - word(deferred, length))
        k += 1


@without_refcounts
def _fill_partial_event(arrays, log, i):
    """Fill the rows of one PARTIAL_UPDATE_ROWS event; return 0 or an error code."""
    source, heads, table = arrays.source, log.heads, log.events[i, E_TABLE]
    first, columns = log.shape[table, S_FIRST], log.shape[table, S_COLUMNS]
    json_columns = json_columns_of(arrays.plan, first, columns)
    if heads[i, PRESENT] >= 0:
        size = 2 * ((columns + 7) >> 3)
        copy(arrays.arena, heads[i, PRESENT], source, heads[i, BEFORE], size)
    at = heads[i, DATA]
    for row in range(heads[i, ROW], heads[i, ROW] + heads[i, ROWS]):
        owner = log.shape[table, S_ROW_EVENT] + 4 * row
        store32(arrays.arena, owner, log.events[i, E_NUMBER])
        for side in range(2):
            bits = -1
            if side == 1:
                bits, at = partial_bits(source, at, log.events[i, E_END], json_columns)
            at = _fill_image(
                arrays, at, heads[i, BEFORE + side], heads[i, BEFORE_COLUMNS + side], columns,
                first * w.PLAN_FIELDS, first * w.COLUMN_DEST + side * w.DEST_FIELDS, row,
            )  # fmt: skip
            if at < 0:
                return at
            if bits >= 0:
                _mark_partial(arrays, bits, first, columns, row)
    return 0


@without_refcounts
def fill_partial_rows(column_arrays, row_events):
    """Do as `fill_rows` for events of any version."""
    arrays, log = ColumnArrays(*column_arrays), RowEvents(*row_events)
    _open_tables(log.shape, arrays.plan, arrays.dest, arrays.arena)
    for i in range(log.events.shape[0]):
        if log.events[i, E_VERSION] == VERSION_PARTIAL:
            code = _fill_partial_event(arrays, log, i)
        else:
            code, _ = _fill_events(arrays, log, i, i + 1)
        if code < 0:
            return code, i
    return 0, 0
