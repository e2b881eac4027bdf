"""Rows go once, those in doubt when it is known what became of them."""

from __future__ import annotations

import numpy as np

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.model.arrays import Bools
from ray_canal.snapshot.unplaced_rows import UnplacedRows
from tests.unit.snapshot.test_keys import keys_of, with_charset
from tests.unit.snapshot.test_log_chunks import framed

KEY = ("id",)


def rows_in(taken: list[tuple[DecodedChunk, Bools]] | None) -> list[list[int]]:
    return [np.flatnonzero(rows).tolist() for _, rows in taken or ()]


def test_rows_in_doubt_stay() -> None:
    chunks = [framed(3), framed(5)]
    three, four = (keys_of(chunks[1], KEY)[:, [number]] for number in (3, 4))
    rows = UnplacedRows(chunks, KEY)
    assert rows.chunks == 2
    assert rows_in(rows.take((), (three, four))) == [[0, 1, 2], [0, 1, 2]]
    assert rows.chunks == 1
    assert rows_in(rows.take((), (four,))) == [[3]]
    assert rows.chunks == 1
    assert rows_in(rows.take((four,), ())) == []
    assert rows.chunks == 0


def test_it_cannot_be_told_of_rows_alone_that_are_touched() -> None:
    chunk = with_charset(framed(12), "sjis")  # which has its backslash twice
    old = (chunk.layout.tables[0].after or ())[-1]
    chunk.arena[old.data : old.data + old.data_bytes] = ord("\\")
    key = ("id", "old")
    three, four = (keys_of(chunk, key)[:, [number]] for number in (3, 4))
    rows = UnplacedRows([chunk], key)
    assert rows_in(rows.take((), (three,))) == [[0, 1, 2, *range(4, 12)]]
    assert rows.take((four,), (three,)) == []
    assert rows.take((three,), ()) is None
