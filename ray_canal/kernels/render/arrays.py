"""Groups of arrays that the rendering kernels pass to each other.

A kernel that Python calls takes such a group as a plain tuple, in the order of its fields, and
names it itself: numba finds out the type of a plain tuple in 2 µs, of a named one in 30.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class RowArrays(NamedTuple):
    """Arrays that rows are rendered with; entry_columns.py and flat_rows.py have the fields of
    `tables` and `columns`."""

    events: Any
    tables: Any
    columns: Any
    widths: Any  # int64: bytes of a slot by storage code
    blobs: Any  # uint8: constant bytes, made beforehand
    arena: Any  # uint8: the decoded chunk
    transitions: Any  # int64: seconds since 1970 at which TIMESTAMP's zone changes its offset
    offsets: Any  # int64: the zone's offset from each of them on, in seconds east of UTC
    limbs: Any  # int64[LIMBS_MAX]: room for a decimal
    scratch: Any  # uint8[VALUE_BYTES_MAX]: room for a float's text


class HeaderArrays(NamedTuple):
    """Arrays that headers of entries are rendered with, and the prefix of each entry."""

    queries: Any
    gtids: Any  # int64: a line of blobs for each of the chunk's GTIDs; none: no GTID fields
    names: Any  # uint8: room for 32 bytes more than the longest names of a query
    journal_bytes: Any  # length of the journal name's field, which is the first blob
    prefix: Any  # 0: nothing, 1: the length as a varint, else this tag and the length


class WindowArrays(NamedTuple):
    """Column messages of a window of rows; entry_columns.py says how they lie."""

    pieces: Any
    marks: Any
    windows: Any


class MessageArrays(NamedTuple):
    """FlatMessages to be written: message i is of the event entries[i], of all its rows (firsts[i]
    WHOLE), or of the counts[i] rows that `order` has from firsts[i] on."""

    entries: Any
    firsts: Any
    counts: Any
    ids: Any
    order: Any


class FlatArrays(NamedTuple):
    """Arrays for the parts of FlatMessages other than rows."""

    queries: Any
    gtids: Any  # blobs of `,"gtid":"…","id":` for each of the chunk's GTIDs; the last: without one
    tails: Any  # blobs of `TS,"type":"…"}` for each event type
    since: Any  # int64[columns]: room for the first row that changes a column
