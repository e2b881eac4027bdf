"""Keys of rows in decoded chunks: equal where the bytes are that the server stores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ray_canal.binlog.chunk import ColumnLayout, DecodedChunk, TableLayout
from ray_canal.errors import TableMetaMismatch, UnsupportedEvent
from ray_canal.kernels.base import codes
from ray_canal.model.arrays import Bools, Bytes, Int64s
from ray_canal.snapshot.key_numbers import Hasher, Keys, are_among
from ray_canal.types.charset_tables import shared_characters

_NUMBERS = (1, 2, 4, 8)
"""Sizes in bytes of what is a number as it is."""


def ambiguous_keys(table: str) -> UnsupportedEvent:
    """Return the error of a table in which `parted_rows` found keys that it cannot tell apart."""
    return UnsupportedEvent(
        f"{table}: keys that change while they are read have the same characters as others, or "
        "broken ones, so they cannot be told apart"
    )


def undone_meanwhile(table: str) -> UnsupportedEvent:
    """Return the error of a table without transactions of which rows were read next to one that
    ends with ROLLBACK in the log."""
    return UnsupportedEvent(
        f"{table}: a transaction that has changed it was rolled back while its rows were read; its "
        "engine undoes nothing, and the log does not tell readers so, so they are to be read again"
    )


def row_keys(
    chunk: DecodedChunk,
    table: TableLayout,
    side: tuple[ColumnLayout, ...],
    key: Sequence[str],
    rows: Bools,
) -> Keys:
    """Return the keys of the images of one side, of the chosen rows. Raises TableMetaMismatch: the
    table lacks a column of the key."""
    names = [column.name for column in table.meta.columns]
    missing = [name for name in key if name not in names]
    if missing:
        raise TableMetaMismatch(
            f"{table.meta.full_name} has no column {missing[0]} of its key any more"
        )
    columns = [side[names.index(name)] for name in key]
    width = codes.WIDTH_BYTES[columns[0].code]
    if len(columns) == 1 and columns[0].code < codes.FIRST_VARIABLE and width in _NUMBERS:
        numbers: Keys = _slots(chunk, columns[0], table.rows).view(f"<u{width}")[rows].T
        return numbers
    hasher = Hasher(int(rows.sum()))
    for column in columns:
        if column.code < codes.FIRST_VARIABLE:
            hasher.fixed(_slots(chunk, column, table.rows)[rows])
        else:
            ends, data = _texts(chunk, column, table.rows)
            hasher.texts(data, ends[:-1][rows], np.diff(ends)[rows])
    return hasher.hashes()


def _slots(chunk: DecodedChunk, column: ColumnLayout, rows: int) -> Bytes:
    """Return the values of a column of fixed size: uint8[rows, size]."""
    width = codes.WIDTH_BYTES[column.code]
    return chunk.arena[column.values : column.values + width * rows].reshape(rows, width)


def _texts(chunk: DecodedChunk, column: ColumnLayout, rows: int) -> tuple[Int64s, Bytes]:
    """Return where the values of any other column begin and end in its data, and those."""
    ends = chunk.arena[column.values : column.values + 4 * (rows + 1)].view("<i4")
    return ends.astype(np.int64), chunk.arena[column.data : column.data + column.data_bytes]


def has_lookalikes(
    chunk: DecodedChunk, table: TableLayout, key: Sequence[str], rows: Sequence[int]
) -> bool:
    """Return True if another key may have the same bytes here as one of these rows' after images:
    a text has a character that stands for several sequences of its character set's bytes."""
    for column, layout in zip(table.meta.columns, table.after or (), strict=False):
        if column.name not in key or column.charset in ("", "binary"):
            continue
        shared = shared_characters(column.charset)
        ends, data = _texts(chunk, layout, table.rows)
        values = (data[ends[row] : ends[row + 1]].tobytes() for row in rows)
        if any(not shared.isdisjoint(value.decode("utf-8", "replace")) for value in values):
            return True
    return False


def parted_rows(
    chunk: DecodedChunk,
    key: Sequence[str],
    rows: Bools,
    touched: Sequence[Keys],
    doubted: Sequence[Keys],
) -> tuple[Bools, Bools] | None:
    """Return which of these rows of a chunk of one table have no key in either (sorted runs), and
    which have one that is doubted and not touched; None: it cannot be told of all."""
    if not touched and not doubted:
        return rows, np.zeros_like(rows)
    table = chunk.layout.tables[0]
    keys = row_keys(chunk, table, table.after or (), key, np.ones(table.rows, np.bool_))
    dropped = rows & are_among(keys, touched)
    if has_lookalikes(chunk, table, key, np.flatnonzero(dropped).tolist()):
        return None
    in_doubt = rows & ~dropped & are_among(keys, doubted)
    return rows & ~dropped & ~in_doubt, in_doubt
