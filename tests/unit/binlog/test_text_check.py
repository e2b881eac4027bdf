"""Broken text is found in the row that has it, and only where text is copied as it is."""

from __future__ import annotations

import numpy as np
import pytest

from ray_canal.binlog.text_check import broken_row, read_by_character
from ray_canal.kernels.base import codes
from ray_canal.kernels.rows import wire
from ray_canal.kernels.rows.charset import UTF8


def row_of(*values: bytes) -> int:
    """The first broken row of a column of these values."""
    data, offsets = b"".join(values), np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    arena = np.frombuffer(offsets.tobytes() + data, np.uint8)
    dest = np.zeros(wire.COLUMN_DEST, np.int64)
    dest[[wire.VALUES, wire.DATA, wire.USED]] = 0, offsets.nbytes, len(data)
    return broken_row(dest, 0, len(values), arena)


@pytest.mark.parametrize(
    ("values", "row"),
    [
        ((b"plain", b"", "größe 😀".encode()), -1),
        ((b"plain", b"a\xff", b"b\xff"), 1),
        (("ö".encode()[:1], "ö".encode()[1:]), 0),  # together they are UTF-8, each alone is not
        ((b"x" * 40, b"\xed\xa0\x80"), 1),  # a surrogate
        ((b"\xc0\x80",), 0),  # an overlong zero
        ((b"\xf4\x90\x80\x80",), 0),  # above U+10FFFF
    ],
)
def test_the_first_broken_row(values: tuple[bytes, ...], row: int) -> None:
    assert row_of(*values) == row
    by_python = [k for k, value in enumerate(values) if "\ufffd" in value.decode(errors="replace")]
    assert [row] == (by_python[:1] or [-1])


def test_only_text_that_is_copied_is_read_by_character() -> None:
    plan = np.zeros((3, wire.PLAN_FIELDS), np.int64)
    plan[:, wire.WIRE] = wire.READ_COPY
    plan[0, wire.CODE], plan[1, wire.CODE] = codes.TEXT, codes.BYTES
    plan[2, [wire.CODE, wire.CHARSET]] = codes.TEXT, 99
    before = plan.copy()
    read_by_character(plan)
    assert plan[0, [wire.WIRE, wire.CHARSET]].tolist() == [wire.READ_TRANSCODED, UTF8]
    assert (plan[1:] == before[1:]).all()
