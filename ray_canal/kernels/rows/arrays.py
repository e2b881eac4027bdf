"""Groups of arrays and numbers that the row kernels pass to each other.

A kernel that Python calls takes such a group as a plain tuple, in the order of its fields, and
names it itself: numba finds out the type of a plain tuple in 2 µs, of a named one in 30. Inside
inlined kernels, a field costs what a parameter costs.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class ColumnArrays(NamedTuple):
    """Arrays that columns are filled from and into; two-dimensional ones are flat."""

    source: Any  # uint8: a chunk's events, or packets
    plan: Any  # int64: how each column is written in a row (wire.py)
    tables: Any  # int32: character tables (charset.py)
    dest: Any  # int64: the regions of each column and side (wire.py)
    deferred: Any  # int64: offset and length of each value that a kernel of its own writes
    cells: Any  # int64: offset of each value of a window of rows, -1 for none
    arena: Any  # uint8: the decoded chunk


class RowEvents(NamedTuple):
    """Row events and their tables; rows.py has the fields of each line."""

    events: Any
    heads: Any
    shape: Any


class MeasureArrays(NamedTuple):
    """Arrays that rows are measured with, and text bytes laid out per byte of binary JSON."""

    source: Any  # uint8: a chunk's events
    plan: Any  # int64, flat: how each column is written in a row (wire.py)
    tables: Any  # int32: character tables (charset.py)
    sizes: Any  # int64, flat: bytes of text by column and side
    json_factor: Any


class Window(NamedTuple):
    """Rows of one column: `rows` values from cells[cell] on, `width` apart, go to the slots from
    `row` on."""

    cell: Any
    width: Any
    rows: Any
    row: Any
