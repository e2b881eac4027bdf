"""Measure row events: the first of two passes; fill.py, the second one, writes their columns.

A row event's body: table id, two bytes of flags, in version 2 extra data, the packed column count,
one bitmap of present columns per image (UPDATE has two), then rows: per image a bitmap of NULLs
among the present columns, and the values.

PARTIAL_UPDATE_ROWS has version 2's body (VERSION_PARTIAL here), but each after image begins with a
packed integer of options. If its PARTIAL_JSON bit is set, a bitmap follows with one bit for each of
the table's JSON columns, present or not: set where the value is a sequence of diffs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ray_canal.kernels.base.jit import inlined, without_refcounts
from ray_canal.kernels.base.memory import (
    load8,
    load16,
    load64,
    load_le,
    next_bit,
    prefetch,
    set_word,
    word,
)
from ray_canal.kernels.rows import wire as w
from ray_canal.kernels.rows.addresses import address_bytes
from ray_canal.kernels.rows.arrays import MeasureArrays
from ray_canal.kernels.rows.cells import string_length
from ray_canal.kernels.rows.charset import utf8_bytes
from ray_canal.kernels.rows.inflate import inflated_bytes

INSERT: Final = 1
UPDATE: Final = 2
DELETE: Final = 3
VERSION_PARTIAL: Final = 3

# Fields of `heads`, one line per row event.
ROWS: Final = 0
ROW: Final = 1  # first row in the table's columns
DATA: Final = 2  # offset of the first row image
BEFORE: Final = 3  # offset of the bitmap of present columns, -1: no such image
AFTER: Final = 4
BEFORE_COLUMNS: Final = 5  # how many are present
AFTER_COLUMNS: Final = 6
PRESENT: Final = 7  # arena offset of the two bitmaps, -1: all columns present
HEAD_FIELDS: Final = 8

# Fields of `events`, the lines that the kernels are given.
E_START: Final = 0
E_END: Final = 1
E_VERSION: Final = 2
E_TYPE: Final = 3
E_TABLE: Final = 4
E_NUMBER: Final = 5  # index among all of the chunk's entries
EVENT_FIELDS: Final = 6

# Fields of `shape`, one line per table.
S_FIRST: Final = 0  # first line in the plan
S_COLUMNS: Final = 1
S_ROWS: Final = 2
S_BEFORE: Final = 3  # rows with such an image
S_AFTER: Final = 4
S_ROW_EVENT: Final = 5  # arena offset
SHAPE_FIELDS: Final = 6

_JSON_SLACK_BYTES: Final = 32
_UTF8_FACTOR: Final = 3  # no character set takes fewer than a third of its bytes in UTF-8
_OPTION_PARTIAL_JSON: Final = 1
_NO_OPTIONS: Final = -1  # a constant, so that the branch on it is compiled away


AHEAD_EVENTS: Final = 8


@inlined
def prefetch_event(source, at):
    """Fetch an event's first bytes ahead: events of one row lie too unevenly for the processor's
    own prefetcher."""
    prefetch(source, at)
    prefetch(source, at + 64)
    prefetch(source, at + 128)


@without_refcounts
def _rows_head(source, at, end, version, id_bytes, bitmaps, columns):
    """Return the offset of the first bitmap, or an error code."""
    at += id_bytes + 2
    if version >= 2:
        if end - at < 2:
            return w.TRUNCATED
        extra = load16(source, at)
        if extra < 2 or extra > end - at:
            return w.TRUNCATED
        at += extra
    if at >= end:
        return w.TRUNCATED
    width = np.int64(source[at])
    at += 1
    if width > 250:
        count = 2 if width == 252 else (3 if width == 253 else 8)
        if end - at < count:
            return w.TRUNCATED
        width = load_le(source, at, count)
        at += count
    if width != columns:
        return w.BAD_WIDTH
    return at if end - at >= bitmaps * ((columns + 7) >> 3) else w.TRUNCATED


@without_refcounts
def _present_columns(source, bitmap, columns):
    """Count the columns of a bitmap of present ones; 0 if there is no bitmap."""
    count = 0
    if bitmap >= 0:
        for c in range(columns):
            count += np.int64(source[bitmap + (c >> 3)]) >> (c & 7) & 1
    return count


@without_refcounts
def _packed_bytes(source, at, count, read, charset):
    """Return the most bytes that a value of the rarer types takes, or BAD_PACKED."""
    if read == w.READ_VECTOR:
        return w.BAD_PACKED if count & 3 else count
    if read == w.READ_INFLATED:
        size = inflated_bytes(source, at, count)
        return size * _UTF8_FACTOR if size > 0 and charset else size
    return address_bytes(read, count)


@without_refcounts
def partial_bits(source, at, end, json_columns):
    """Return (offset of the bitmap of JSON diffs or -1, offset after the options or TRUNCATED)."""
    if at >= end:
        return -1, w.TRUNCATED
    options = np.int64(source[at])
    at += 1
    if options > 250:
        count = 2 if options == 252 else (3 if options == 253 else 8)
        if end - at < count:
            return -1, w.TRUNCATED
        options = load_le(source, at, count)
        at += count
    if not options & _OPTION_PARTIAL_JSON:
        return -1, at
    size = (json_columns + 7) >> 3
    return (at, at + size) if size <= end - at else (-1, w.TRUNCATED)


@without_refcounts
def json_columns_of(plan, first, columns):
    """Count a table's JSON columns."""
    count = 0
    for p in range(first, first + columns):
        count += word(plan, p * w.PLAN_FIELDS + w.WIRE) == w.READ_JSON
    return count


@inlined
def _measure_string(arrays, at, end, p, side):
    """Add the bytes of a value with a length before it to `sizes`; return the offset after it, or
    an error code."""
    source, plan, sizes = arrays.source, arrays.plan, arrays.sizes
    line = p * w.PLAN_FIELDS
    size = word(plan, line + w.SIZE)
    if end - at < -size:
        return w.TRUNCATED
    count = string_length(source, at, -size)
    at -= size
    if count > end - at:
        return w.TRUNCATED
    read = word(plan, line + w.WIRE)
    taken = count
    if read == w.READ_COPY:
        pass
    elif read == w.READ_PADDED:
        taken = max(count, word(plan, line + w.PRECISION))
    elif read == w.READ_TRANSCODED:
        kind, table = word(plan, line + w.CHARSET), word(plan, line + w.TABLE)
        taken = utf8_bytes(source, at, at + count, kind, arrays.tables, table)
    elif read == w.READ_JSON:
        taken = count * arrays.json_factor + _JSON_SLACK_BYTES
    else:
        taken = _packed_bytes(source, at, count, read, word(plan, line + w.CHARSET))
        if taken < 0:
            return taken
    set_word(sizes, 2 * p + side, word(sizes, 2 * p + side) + taken)
    return at + count


@inlined
def has_whole_words(source, nulls, present, columns):
    """Tell if an image has all columns, and the bits of its NULLs can be loaded by the word."""
    return present == columns and nulls + (columns >> 3) + 8 <= source.size


@inlined
def _measure_whole(arrays, nulls, end, first, columns, side):
    """Do as `_measure_image` for an image that `has_whole_words`, from string to string."""
    at = nulls + ((columns + 7) >> 3)
    c = np.int64(0)
    while c < columns:
        is_null = load64(arrays.source, nulls + (c >> 3)) >> (c & 7)
        line = (first + c) * w.PLAN_FIELDS
        run = word(arrays.plan, line + w.RUN)
        if run == 0:
            if not is_null & 1:
                at = _measure_string(arrays, at, end, first + c, side)
                if at < 0:
                    return at
            c += 1
            continue
        at += word(arrays.plan, line + w.RUN_BYTES)
        left = is_null & ((1 << run) - 1)
        while left:
            k, left = next_bit(left)
            at -= word(arrays.plan, line + k * w.PLAN_FIELDS + w.SIZE)
        c += run
    return at if at <= end else w.TRUNCATED


@inlined
def _measure_image(arrays, at, end, bitmap, present, first, columns, side):
    """Add the bytes of an image's strings to `sizes`; return the offset after the image, or an
    error code."""
    source, plan = arrays.source, arrays.plan
    nulls = at
    at += (present + 7) >> 3
    if at > end:
        return w.TRUNCATED
    if has_whole_words(source, nulls, present, columns):
        return _measure_whole(arrays, nulls, end, first, columns, side)
    k = 0
    for c in range(columns):
        if present != columns and not load8(source, bitmap + (c >> 3)) >> (c & 7) & 1:
            continue
        null = load8(source, nulls + (k >> 3)) >> (k & 7) & 1
        k += 1
        p = first + c
        line = p * w.PLAN_FIELDS
        size = word(plan, line + w.SIZE)
        if size >= 0:
            at += size & (null - 1)  # no branch: the processor cannot predict NULLs
            continue
        if null:
            continue
        at = _measure_string(arrays, at, end, p, side)
        if at < 0:
            return at
    return at if at <= end else w.TRUNCATED


@inlined
def _measure_rows(arrays, at, end, i, heads, first, columns, json_columns):
    """Return (offset after the event's last row or an error code, number of rows)."""
    empty = heads[i, BEFORE_COLUMNS] + heads[i, AFTER_COLUMNS] == 0
    rows = 0
    while at < end or (empty and rows == 0):
        for side in range(2):
            bitmap = heads[i, BEFORE + side]
            if bitmap >= 0:
                if json_columns >= 0 and side == 1:
                    _, at = partial_bits(arrays.source, at, end, json_columns)
                    if at < 0:
                        return at, rows
                present = heads[i, BEFORE_COLUMNS + side]
                at = _measure_image(arrays, at, end, bitmap, present, first, columns, side)
                if at < 0:
                    return at, rows
        rows += 1
    return at, rows


@without_refcounts
def _measure_partial_rows(arrays, at, end, i, heads, first, columns):
    """Do as `_measure_rows` for PARTIAL_UPDATE_ROWS; apart, so that other events' loop is short."""
    json_columns = json_columns_of(arrays.plan, first, columns)
    return _measure_rows(arrays, at, end, i, heads, first, columns, json_columns)


@without_refcounts
def count_rows(measure_arrays, events, id_bytes, shape, heads):
    """Fill `heads`, `sizes` (bytes of text by column and side) and the rows of `shape`; return (0
    or an error code, index in `events`).

    The first argument is the fields of MeasureArrays; `id_bytes` is the length of a table id.
    """
    arrays = MeasureArrays(*measure_arrays)
    source = arrays.source
    for i in range(events.shape[0]):
        if i + AHEAD_EVENTS < events.shape[0]:
            prefetch_event(source, events[i + AHEAD_EVENTS, E_START])
        kind, table = events[i, E_TYPE], events[i, E_TABLE]
        first, columns = shape[table, S_FIRST], shape[table, S_COLUMNS]
        start, end = events[i, E_START], events[i, E_END]
        images = 2 if kind == UPDATE else 1
        bitmaps = images if events[i, E_VERSION] > 0 else 1  # version 0: one for both images
        at = _rows_head(source, start, end, events[i, E_VERSION], id_bytes, bitmaps, columns)
        if at < 0:
            return at, i
        bitmap_bytes = (columns + 7) >> 3
        before = -1 if kind == INSERT else at
        after = at + (bitmaps - 1) * bitmap_bytes if kind != DELETE else -1
        at += bitmaps * bitmap_bytes
        before_columns = _present_columns(source, before, columns)
        after_columns = _present_columns(source, after, columns)
        heads[i, DATA] = at
        heads[i, BEFORE] = before
        heads[i, AFTER] = after
        heads[i, BEFORE_COLUMNS] = before_columns
        heads[i, AFTER_COLUMNS] = after_columns
        whole = before_columns + after_columns == images * columns
        heads[i, PRESENT] = -1 if whole else 0
        if before_columns + after_columns == 0 and at < end:
            return w.NO_PROGRESS, i
        if events[i, E_VERSION] == VERSION_PARTIAL:
            at, rows = _measure_partial_rows(arrays, at, end, i, heads, first, columns)
        else:
            at, rows = _measure_rows(arrays, at, end, i, heads, first, columns, _NO_OPTIONS)
        if at < 0:
            return at, i
        heads[i, ROWS] = rows
        heads[i, ROW] = shape[table, S_ROWS]
        shape[table, S_ROWS] += rows
        shape[table, S_BEFORE] += rows if before >= 0 else 0
        shape[table, S_AFTER] += rows if after >= 0 else 0
    return 0, 0
