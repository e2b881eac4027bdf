"""Filling columns: the second pass over row events (rows.py says how they stand in the log).

Windows of rows of one table are taken column by column (columns.py). What changed partially goes
row by row.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.jit import bare, inlined
from ray_canal.kernels.base.memory import copy, load8, load64, set_word, store32, word
from ray_canal.kernels.rows import wire as w
from ray_canal.kernels.rows.cells import (
    clear_behind,
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
    """As `_locate_image`, of an image that `has_whole_words`."""
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
def _locate_image(source, at, bitmap, present, columns, plan, line, cells, cell):
    """Note where each value of an image lies, -1 for one that is not there. Offset behind it."""
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
                at += size & (null - 1)  # without a branch: which values are NULL, nobody foresees
            elif not null:
                at += string_length(source, at, -size) - size
        line += w.PLAN_FIELDS
    return at


@inlined
def _nowhere(cells, cell, columns):
    for c in range(cell, cell + columns):
        set_word(cells, c, _NOWHERE)


@bare
def _fill_window(
    source, cells, width, rows, shape, table, plan, tables, dest, arena, row, deferred
):
    """Fill a window's columns. (Rows that were filled, 0 or the error code of the next one.)"""
    columns, cell, code = shape[table, S_COLUMNS], 0, 0
    for side in range(2):
        if shape[table, S_BEFORE + side] == 0:
            continue
        line = shape[table, S_FIRST] * w.PLAN_FIELDS
        slot = shape[table, S_FIRST] * w.COLUMN_DEST + side * w.DEST_FIELDS
        for _ in range(columns):
            done, failed = fill_column(
                source, cells, cell, width, rows, plan, line, tables, dest, slot, arena, row,
                deferred,
            )  # fmt: skip
            if failed < 0:  # of the columns behind it only earlier rows matter
                rows, code = done, failed
            line += w.PLAN_FIELDS
            slot += w.COLUMN_DEST
            cell += 1
    return rows, code


@bare
def _open_tables(shape, plan, dest, arena):
    for table in range(shape.shape[0]):
        first, rows = shape[table, S_FIRST], shape[table, S_ROWS]
        end = shape[table, S_ROW_EVENT] + 4 * rows
        clear_behind(arena, end, end)
        for side in range(2):
            if shape[table, S_BEFORE + side] > 0:
                for p in range(first, first + shape[table, S_COLUMNS]):
                    slot = p * w.COLUMN_DEST + side * w.DEST_FIELDS
                    open_column(plan, p * w.PLAN_FIELDS, dest, slot, arena, rows)


@bare
def close_tables(shape, plan, dest, arena):
    """After all columns are filled: zero what is left of their data areas."""
    for table in range(shape.shape[0]):
        first = shape[table, S_FIRST]
        for side in range(2):
            for p in range(first, first + shape[table, S_COLUMNS]):
                is_variable = word(plan, p * w.PLAN_FIELDS + w.NULL) == w.NULL_OFFSET
                if is_variable and shape[table, S_BEFORE + side] > 0:
                    slot = p * w.COLUMN_DEST + side * w.DEST_FIELDS
                    used = word(dest, slot + w.DATA) + word(dest, slot + w.USED)
                    clear_behind(arena, used, word(dest, slot + w.DATA_END))


@bare
def _copy_bitmaps(source, i, heads, columns, arena):
    """An event's bitmaps of present columns."""
    present, size = heads[i, PRESENT], (columns + 7) >> 3
    for side in range(2):
        if heads[i, BEFORE + side] >= 0:
            copy(arena, present + side * size, source, heads[i, BEFORE + side], size)


@inlined
def _locate_rows(
    source, at, i, rows, row, heads, shape, table, number, plan, cells, cell, arena
):
    """The cells of `rows` rows of event i, whose table's `row` is the first of them: of each row
    the before images first, if the table has any. Offset behind the rows."""
    columns = shape[table, S_COLUMNS]
    line = shape[table, S_FIRST] * w.PLAN_FIELDS
    owner = shape[table, S_ROW_EVENT] + 4 * row
    before, after = heads[i, BEFORE], heads[i, AFTER]
    before_columns, after_columns = heads[i, BEFORE_COLUMNS], heads[i, AFTER_COLUMNS]
    has_before, has_after = shape[table, S_BEFORE] > 0, shape[table, S_AFTER] > 0
    for k in range(rows):
        store32(arena, owner + 4 * k, number)
        if before >= 0:
            at = _locate_image(
                source, at, before, before_columns, columns, plan, line, cells, cell
            )
        elif has_before:
            _nowhere(cells, cell, columns)
        cell += columns if has_before else 0
        if after >= 0:
            at = _locate_image(source, at, after, after_columns, columns, plan, line, cells, cell)
        elif has_after:
            _nowhere(cells, cell, columns)
        cell += columns if has_after else 0
    return at


@inlined
def _fill_events(
    source, events, i, last, heads, shape, plan, tables, dest, deferred, cells, arena
):
    """Fill the rows of the events [i, last), in windows of rows of one table. (0 or an error code,
    index in `events`)."""
    done_rows = np.int64(0)  # of event i
    at = heads[i, DATA]
    while i < last:
        table = events[i, E_TABLE]
        columns = shape[table, S_COLUMNS]
        sides = (1 if shape[table, S_BEFORE] else 0) + (1 if shape[table, S_AFTER] else 0)
        width = sides * columns
        most = min(cells.size // max(width, 1), _WINDOW_ROWS)
        first, row, rows = i, heads[i, ROW] + done_rows, np.int64(0)
        while i < last and rows < most and events[i, E_TABLE] == table:
            if done_rows == 0:
                at = heads[i, DATA]
                if i + AHEAD_EVENTS < last:
                    prefetch_event(source, heads[i + AHEAD_EVENTS, DATA])
                if heads[i, PRESENT] >= 0:
                    _copy_bitmaps(source, i, heads, columns, arena)
            take = min(heads[i, ROWS] - done_rows, most - rows)
            at = _locate_rows(
                source, at, i, take, row + rows, heads, shape, table, events[i, E_NUMBER], plan,
                cells, rows * width, arena,
            )  # fmt: skip
            rows += take
            done_rows += take
            if done_rows == heads[i, ROWS]:
                done_rows = np.int64(0)
                i += 1
        done, code = _fill_window(
            source, cells, width, rows, shape, table, plan, tables, dest, arena, row, deferred
        )
        if code < 0:
            while heads[first, ROW] + heads[first, ROWS] <= row + done:
                first += 1
            return code, first
    return 0, 0


@bare
def fill_rows(
    source, events, heads, shape, plan, tables, dest, deferred, cells, arena
):
    """Write all rows into the arena; `close_tables` is to follow. (0 or an error code, index in
    `events`).

    `cells` is room for where a window's values lie: for two images of the widest table or more.
    No event is PARTIAL_UPDATE_ROWS: `fill_partial_rows` is for chunks with such. It is a kernel of
    its own because a tenth of this one's speed hangs on what else stands in its loop.
    """
    _open_tables(shape, plan, dest, arena)
    if events.shape[0] == 0:
        return 0, 0
    return _fill_events(
        source, events, 0, events.shape[0], heads, shape, plan, tables, dest, deferred, cells, arena
    )


@inlined
def _fill_image(
    source, at, bitmap, present, columns, line, plan, tables, dest, slot, arena, row, deferred
):
    """Offset behind the image, or an error code."""
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
            at = put_value(source, at, plan, line, tables, dest, slot, arena, row, deferred)
            if at < 0:
                return at
        line += w.PLAN_FIELDS
        slot += w.COLUMN_DEST
    return at


@bare
def _mark_partial(source, bits, first, columns, plan, dest, row, deferred):
    """Say in the notes of a row's after image which JSON values are diffs."""
    k = 0
    for p in range(first, first + columns):
        if word(plan, p * w.PLAN_FIELDS + w.WIRE) != w.READ_JSON:
            continue
        slot = p * w.COLUMN_DEST + w.DEST_FIELDS
        length = 2 * (word(dest, slot + w.DEFERRED) + row) + 1
        if source[bits + (k >> 3)] >> (k & 7) & 1 and word(deferred, length) >= 0:
            set_word(deferred, length, w.PARTIAL - word(deferred, length))
        k += 1


@bare
def _fill_partial_event(
    source, events, heads, shape, plan, tables, dest, deferred, arena, i
):
    """One PARTIAL_UPDATE_ROWS event's rows; 0 or an error code."""
    table = events[i, E_TABLE]
    first, columns = shape[table, S_FIRST], shape[table, S_COLUMNS]
    json_columns = json_columns_of(plan, first, columns)
    if heads[i, PRESENT] >= 0:
        copy(arena, heads[i, PRESENT], source, heads[i, BEFORE], 2 * ((columns + 7) >> 3))
    at = heads[i, DATA]
    for row in range(heads[i, ROW], heads[i, ROW] + heads[i, ROWS]):
        store32(arena, shape[table, S_ROW_EVENT] + 4 * row, events[i, E_NUMBER])
        for side in range(2):
            bits = -1
            if side == 1:
                bits, at = partial_bits(source, at, events[i, E_END], json_columns)
            at = _fill_image(
                source, at, heads[i, BEFORE + side], heads[i, BEFORE_COLUMNS + side], columns,
                first * w.PLAN_FIELDS, plan, tables, dest,
                first * w.COLUMN_DEST + side * w.DEST_FIELDS, arena, row, deferred,
            )  # fmt: skip
            if at < 0:
                return at
            if bits >= 0:
                _mark_partial(source, bits, first, columns, plan, dest, row, deferred)
    return 0


@bare
def fill_partial_rows(
    source, events, heads, shape, plan, tables, dest, deferred, cells, arena
):
    """`fill_rows` for events of any version."""
    _open_tables(shape, plan, dest, arena)
    for i in range(events.shape[0]):
        if events[i, E_VERSION] == VERSION_PARTIAL:
            code = _fill_partial_event(
                source, events, heads, shape, plan, tables, dest, deferred, arena, i
            )
        else:
            code, _ = _fill_events(
                source, events, i, i + 1, heads, shape, plan, tables, dest, deferred, cells, arena
            )
        if code < 0:
            return code, i
    return 0, 0
