"""Keys of rows in decoded chunks, as bytes: equal where the server's bytes are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ray_canal.binlog.chunk import ColumnLayout, DecodedChunk, TableLayout
from ray_canal.errors import TableMetaMismatch
from ray_canal.kernels.base import codes
from ray_canal.model.arrays import Bools, Bytes
from ray_canal.types.charset_tables import shared_characters


def row_keys(
    chunk: DecodedChunk,
    table: TableLayout,
    side: tuple[ColumnLayout, ...],
    key: Sequence[str],
    rows: Bools,
) -> list[bytes]:
    """The keys of the images of one side, of the chosen rows. Raises TableMetaMismatch: the table
    lacks a column of the key."""
    names = [column.name for column in table.meta.columns]
    missing = [name for name in key if name not in names]
    if missing:
        raise TableMetaMismatch(
            f"{table.meta.full_name} has no column {missing[0]} of its key any more"
        )
    chosen = np.flatnonzero(rows).tolist()
    columns = [_values(chunk, side[names.index(name)], table.rows, chosen) for name in key]
    if len(columns) == 1:
        return columns[0]
    return [b"".join(_framed(value) for value in values) for values in zip(*columns, strict=True)]


def _framed(value: bytes) -> bytes:
    return len(value).to_bytes(4, "little") + value


def _values(
    chunk: DecodedChunk, column: ColumnLayout, rows: int, chosen: Sequence[int]
) -> list[bytes]:
    arena, width = chunk.arena, codes.WIDTH_BYTES[column.code]
    if column.code < codes.FIRST_VARIABLE:
        whole = arena[column.values : column.values + width * rows].tobytes()
        return [whole[width * row : width * (row + 1)] for row in chosen]
    ends = arena[column.values : column.values + 4 * (rows + 1)].view("<i4").tolist()
    data = arena[column.data : column.data + column.data_bytes].tobytes()
    return [data[ends[row] : ends[row + 1]] for row in chosen]


def has_lookalikes(
    chunk: DecodedChunk, table: TableLayout, key: Sequence[str], rows: Sequence[int]
) -> bool:
    """Return True if another key may have the same bytes here as one of these rows' after images:
    a text has a character that stands for several sequences of its character set's bytes."""
    for column, layout in zip(table.meta.columns, table.after or (), strict=False):
        if column.name not in key or column.charset in ("", "binary"):
            continue
        shared = shared_characters(column.charset)
        values = _values(chunk, layout, table.rows, rows)
        if any(not shared.isdisjoint(value.decode("utf-8", "replace")) for value in values):
            return True
    return False


def _numbers(
    chunk: DecodedChunk, table: TableLayout, key: Sequence[str]
) -> npt.NDArray[np.unsignedinteger[Any]] | None:
    """Return the keys of all rows as the numbers that their bytes make; None: they are none."""
    names = [column.name for column in table.meta.columns]
    if len(key) != 1 or key[0] not in names or table.after is None:
        return None
    column = table.after[names.index(key[0])]
    width = codes.WIDTH_BYTES[column.code]
    if column.code >= codes.FIRST_VARIABLE or width not in (1, 2, 4, 8):
        return None
    return chunk.arena[column.values : column.values + width * table.rows].view(f"<u{width}")


def kept_rows(
    chunk: DecodedChunk, key: Sequence[str], touched: Collection[bytes]
) -> Bools | None:
    """Return which rows of a chunk of one table have no touched key; None: it cannot be told of
    all."""
    table = chunk.layout.tables[0]
    everything = np.ones(table.rows, np.bool_)
    if not touched:
        return everything
    numbers = _numbers(chunk, table, key)
    if numbers is not None:  # no texts, so no lookalikes
        same_width = (one for one in touched if len(one) == numbers.itemsize)
        wanted: Bytes = np.frombuffer(b"".join(same_width), np.uint8)
        return ~np.isin(numbers, wanted.view(numbers.dtype))
    keys = row_keys(chunk, table, table.after or (), key, everything)
    dropped = [number for number, value in enumerate(keys) if value in touched]
    if has_lookalikes(chunk, table, key, dropped):
        return None
    everything[dropped] = False
    return everything
