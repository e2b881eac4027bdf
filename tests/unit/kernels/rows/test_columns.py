"""A column of a window of rows, filled in one loop: texts, numbers, NULLs, bad values."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.rows import wire as w
from ray_canal.kernels.rows.arrays import ColumnArrays, Window
from ray_canal.kernels.rows.cells import open_column
from ray_canal.kernels.rows.columns import fill_column
from ray_canal.kernels.rows.decimals import decimal_groups
from ray_canal.types.charset_tables import tables

ROWS, VALUES, DATA, END = 64, 64, 1024, 20_000


class Filled:
    """Values (None: NULL) as a row image has them, filled as two windows of rows."""

    def __init__(self, read: int, size: int, null: int, values: list[bytes | None]) -> None:
        self.plan, self.dest = np.zeros(w.PLAN_FIELDS, np.int64), np.zeros(w.DEST_FIELDS, np.int64)
        self.plan[[w.WIRE, w.SIZE, w.NULL, w.GROUPS]] = read, size, null, decimal_groups(9, 0)
        self.dest[[w.VALUES, w.DATA, w.DATA_END]] = VALUES, DATA, END
        self.arena = np.full(END + 64, 0xEE, np.uint8)
        self.deferred = np.full(2 * ROWS, -7, np.int64)
        data, places = b"\xaa", []
        for value in values:
            places.append(-1 if value is None else len(data))
            if value is not None:
                data += (len(value).to_bytes(-size, "little") if size < 0 else b"") + value
        cells = np.full(2 * ROWS, -9, np.int64)
        cells[1 : 2 * len(values) : 2] = places  # the second column of two
        arrays = ColumnArrays(
            read_only(np.frombuffer(data + bytes(8), np.uint8)), self.plan,
            tables(), self.dest, self.deferred, cells, self.arena,
        )  # fmt: skip
        self.data = data
        open_column(self.plan, 0, self.dest, 0, self.arena, len(values))
        half = len(values) // 2
        self.done = [
            fill_column(arrays, Window(1 + 2 * first, 2, rows, first), 0, 0)
            for first, rows in ((0, half), (half, len(values) - half))
        ]

    def valid(self, rows: int) -> list[bool]:
        bits = np.unpackbits(self.arena[:VALUES], bitorder="little")[:rows]
        return bits.astype(bool).tolist()


@pytest.mark.parametrize("prefix", [1, 2, 4])
def test_texts_follow_each_other(prefix: int) -> None:
    """Also where more is copied than they have, up to the end of their room."""
    rng = random.Random(prefix)
    texts = [None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 1, 63, 64, 65, 128, 200)))
             for _ in range(ROWS)]  # fmt: skip
    found = Filled(w.READ_COPY, -prefix, w.NULL_OFFSET, texts)
    assert found.done == [(ROWS // 2, 0)] * 2
    assert found.valid(ROWS) == [text is not None for text in texts]
    offsets = found.arena[VALUES : VALUES + 4 * (ROWS + 1)].view(np.int32).tolist()
    told = [found.arena[DATA + a : DATA + b].tobytes() for a, b in pairwise(offsets)]
    assert told == [text or b"" for text in texts]
    assert found.dest[w.USED] == sum(len(text or b"") for text in texts)
    assert (found.arena[END:] == 0xEE).all()


@pytest.mark.parametrize(
    ("read", "kind"),
    [(w.READ_8, np.int8), (w.READ_16, np.int16), (w.READ_32, np.int32), (w.READ_64, np.int64)],
)
def test_numbers_of_each_width(read: int, kind: type) -> None:
    size = np.dtype(kind).itemsize
    rng = random.Random(size)
    numbers = [None if rng.random() < 0.2 else rng.randbytes(size) for _ in range(ROWS)]
    found = Filled(read, size, -size, numbers)
    told = found.arena[VALUES : VALUES + size * ROWS].tobytes()
    assert told == b"".join(each or bytes(size) for each in numbers)
    assert found.valid(ROWS) == [each is not None for each in numbers]


def test_the_row_of_a_bad_value_is_told() -> None:
    good, bad = b"\x80\x00\x00\x01", b"\xff\xff\xff\xff"  # more than nine digits
    found = Filled(w.READ_DECIMAL64, 4, -16, [good, None, good, good, bad, good])
    assert found.done == [(3, 0), (1, w.BAD_DECIMAL)]


def test_json_is_noted_for_its_own_kernel() -> None:
    found = Filled(w.READ_JSON, -4, w.NULL_OFFSET, [b"one", None, b"", b"three"])
    notes = found.deferred.reshape(-1, 2)[:4].tolist()
    texts = [found.data[at : at + size] for at, size in (notes[0], notes[2], notes[3])]
    assert texts == [b"one", b"", b"three"]
    assert notes[1] == [-7, -7]
