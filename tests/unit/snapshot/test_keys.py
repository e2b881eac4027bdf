"""Keys of rows as bytes: rows with a touched key go, all that can be told apart from them stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.model.arrays import Bools
from ray_canal.snapshot.key_numbers import Keys, joined
from ray_canal.snapshot.keys import parted_rows, row_keys
from tests.unit.snapshot.test_log_chunks import framed

COMPOSITE = ("id", "old")
"""A number whose bytes are no text, and é's in latin1."""


def keys_of(chunk: DecodedChunk, key: tuple[str, ...]) -> Keys:
    table = chunk.layout.tables[0]
    return row_keys(chunk, table, table.after or (), key, np.ones(table.rows, np.bool_))


def kept_rows(
    chunk: DecodedChunk, key: tuple[str, ...], touched: tuple[Keys, ...]
) -> Bools | None:
    everything = np.ones(chunk.layout.tables[0].rows, np.bool_)
    parted = parted_rows(chunk, key, everything, touched, ())
    assert parted is None or not parted[1].any()
    return None if parted is None else parted[0]


def with_charset(chunk: DecodedChunk, charset: str) -> DecodedChunk:
    """As if the text columns were of another character set."""
    table = chunk.layout.tables[0]
    columns = tuple(
        replace(column, charset=charset) if column.charset else column
        for column in table.meta.columns
    )
    table = table._replace(meta=replace(table.meta, columns=columns))
    return DecodedChunk(chunk.layout._replace(tables=(table,)), chunk.arena)


def test_rows_with_a_touched_key_go() -> None:
    chunk = framed(300)
    keys = keys_of(chunk, COMPOSITE)
    assert joined([keys]).shape == (2, 300)
    kept = kept_rows(chunk, COMPOSITE, (joined([keys[:, [250]], keys[:, [3]]]), keys[:, :0]))
    assert kept is not None
    assert np.flatnonzero(~kept).tolist() == [3, 250]
    everything = kept_rows(chunk, COMPOSITE, ())
    assert everything is not None
    assert everything.all()


def test_it_cannot_be_told_of_characters_that_a_set_has_twice() -> None:
    backslashes = with_charset(framed(12), "sjis")  # which has its backslash twice
    table = backslashes.layout.tables[0]
    assert table.after is not None
    old = table.after[-1]
    text = backslashes.arena[old.data : old.data + old.data_bytes]
    text[:] = ord("\\")
    keys = keys_of(backslashes, COMPOSITE)
    assert kept_rows(backslashes, COMPOSITE, (keys[:, [3]],)) is None  # three of them
    kept = kept_rows(backslashes, COMPOSITE, (keys[:, [4]],))  # an empty text
    assert kept is not None
    assert np.flatnonzero(~kept).tolist() == [4]


def test_keys_of_one_number_are_compared_as_numbers() -> None:
    chunk = framed(300)
    keys = keys_of(chunk, ("id",))
    assert keys.dtype.kind == "u"
    kept = kept_rows(chunk, ("id",), (joined([keys[:, [3, 250, 3]]]), keys[:, :0]))
    assert kept is not None
    assert np.flatnonzero(~kept).tolist() == [3, 250]


def test_rows_in_doubt_are_told_from_those_that_go() -> None:
    chunk = framed(300)
    keys, rows = keys_of(chunk, ("id",)), np.arange(300) < 200
    parted = parted_rows(chunk, ("id",), rows, (keys[:, [3, 9]],), (keys[:, [9, 11, 250]],))
    assert parted is not None
    kept, in_doubt = parted
    assert np.flatnonzero(in_doubt).tolist() == [11]
    assert np.flatnonzero(rows & ~kept).tolist() == [3, 9, 11]
    assert not (kept & ~rows).any()
