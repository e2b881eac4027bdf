"""One value into its slot: validity, NULLs of each kind of slot, numbers of each width."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from ray_canal.kernels.base.codes import NULL_SLOT32, NULL_SLOT64
from ray_canal.kernels.rows import cells
from ray_canal.kernels.rows import wire as w

ROWS, VALUES = 11, 64


def column(null: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A plan, a destination and an arena that held something before."""
    plan, dest = np.zeros(w.PLAN_FIELDS, np.int64), np.zeros(w.DEST_FIELDS, np.int64)
    plan[w.NULL], dest[w.VALUES], dest[w.DATA] = null, VALUES, 512
    return plan, dest, np.full(1024, 0xEE, np.uint8)


def valid(arena: np.ndarray) -> list[bool]:
    return np.unpackbits(arena[: (ROWS + 7) // 8], bitorder="little")[:ROWS].astype(bool).tolist()


@pytest.mark.parametrize(
    ("null", "size", "slot"),
    [
        (-1, 1, b"\0"), (-2, 2, bytes(2)), (-4, 4, bytes(4)), (-8, 8, bytes(8)),
        (-16, 16, bytes(16)), (w.NULL_32, 4, struct.pack("<i", NULL_SLOT32)),
        (w.NULL_64, 8, struct.pack("<q", NULL_SLOT64)),
    ],
)  # fmt: skip
def test_a_null_clears_its_bit_and_leaves_no_old_bytes(null: int, size: int, slot: bytes) -> None:
    plan, dest, arena = column(null)
    cells.open_column(plan, 0, dest, 0, arena, ROWS)
    assert valid(arena) == [True] * ROWS
    assert arena[1] >> 3 == 0, "the bits behind the last row"
    end = VALUES + ROWS * size if null < 0 else VALUES + ROWS * (8 if null == w.NULL_64 else 4)
    assert not arena[end : -(-end // 64) * 64].any(), "the gap to the next region"
    for row in (0, 7, 10):
        cells.put_null(plan, 0, dest, 0, arena, row)
        assert arena[VALUES + row * size :][:size].tobytes() == slot
    assert [row for row, known in enumerate(valid(arena)) if not known] == [0, 7, 10]
    assert dest[w.VALID] == ROWS - 3


def test_a_null_text_ends_where_the_one_before_it_does() -> None:
    plan, dest, arena = column(w.NULL_OFFSET)
    cells.open_column(plan, 0, dest, 0, arena, ROWS)
    dest[w.USED] = 77
    cells.put_null(plan, 0, dest, 0, arena, 4)
    offsets = arena[VALUES : VALUES + 4 * (ROWS + 1)].view(np.int32)
    assert (offsets[0], offsets[5]) == (0, 77)


@pytest.mark.parametrize(
    ("read", "data", "size", "kind", "number"),
    [
        (w.READ_8, b"\x80", 1, np.int8, -128),
        (w.READ_16, b"\x34\x12", 2, np.int16, 0x1234),
        (w.READ_32, b"\x78\x56\x34\x92", 4, np.int32, 0x92345678 - (1 << 32)),
        (w.READ_64, bytes(7) + b"\x80", 8, np.int64, -(1 << 63)),
        (w.READ_S24, b"\xff\xff\xff", 3, np.int32, -1),
        (w.READ_S24, b"\xff\xff\x7f", 3, np.int32, (1 << 23) - 1),
        (w.READ_U24, b"\xff\xff\xff", 3, np.int32, (1 << 24) - 1),
        (w.READ_YEAR, b"\x00", 1, np.int16, 0),
        (w.READ_YEAR, b"\xff", 1, np.int16, 2155),
        (w.READ_ENUM, b"\x07", 1, np.int16, 7),
        (w.READ_SET, b"\x01\x02\x03", 3, np.int64, 0x030201),
        (w.READ_BIT, b"\x01\x02", 2, np.int64, 0x0102),  # big-endian
    ],
)
def test_numbers(read: int, data: bytes, size: int, kind: type, number: int) -> None:
    _, _, arena = column(-1)
    source = np.frombuffer(b"\xaa" + data + b"\xaa" * 8, np.uint8)
    row, width = 3, np.dtype(kind).itemsize
    cells.put_fixed(source, 1, read, size, arena, VALUES, row)
    at = VALUES + row * width
    assert arena[at : at + width].view(kind)[0] == number
    assert arena[at - 1] == arena[at + width] == 0xEE, "its neighbours"


@pytest.mark.parametrize("prefix", [1, 2, 3, 4])
def test_a_strings_length_stands_before_it(prefix: int) -> None:
    number = 0x04030201 & ((1 << 8 * prefix) - 1)
    source = np.frombuffer(b"\xff" + number.to_bytes(prefix, "little") + b"\xff" * 8, np.uint8)
    assert cells.string_length(source, 1, prefix) == number
