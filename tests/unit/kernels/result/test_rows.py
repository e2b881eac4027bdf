"""Rows of a result set: each value's place, why reading stops, packets that follow each other."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from ray_canal.kernels.base.jit import read_only
from ray_canal.kernels.result import rows as k
from ray_canal.kernels.rows import wire as w
from ray_canal.types.charset_tables import tables

PLAN = np.zeros((3, w.PLAN_FIELDS), np.int64)  # an INT, a text, a DATETIME
PLAN[:, w.WIRE] = w.READ_32, w.READ_COPY, w.READ_DATETIME
PLAN[:, w.SIZE] = 4, k.PACKED, k.SHORT


def packet(body: bytes) -> bytes:
    return struct.pack("<I", len(body))[:3] + b"\x07" + body


def row(number: int | None, text: bytes | None, moment: bytes | None) -> bytes:
    values = (number is None) << 2 | (text is None) << 3 | (moment is None) << 4
    body = b"" if number is None else struct.pack("<i", number)
    if text is not None:
        size = len(text)
        body += (bytes([size]) if size < 251 else b"\xfc" + struct.pack("<H", size)) + text
    body += b"" if moment is None else bytes([len(moment)]) + moment
    return packet(b"\0" + bytes([values]) + body)


MOMENT = struct.pack("<HBBBBB", 2026, 2, 3, 4, 5, 6)
ROWS = [row(7, b"one", MOMENT), row(None, b"x" * 300, b""), row(-1, None, None)]
END, ERROR = packet(b"\xfe\0\0\0\0"), packet(b"\xff\x15\x04no")


def located(data: bytes, most: int = 10, body: int = 0) -> tuple[Any, list[int], list[int]]:
    cells, sizes = np.full(3 * most, -9, np.int64), np.zeros(6, np.int64)
    source = read_only(np.frombuffer(data, np.uint8))
    end = k.locate_rows(
        source, 0, len(data), body, PLAN.reshape(-1), tables(), cells, sizes
    )  # fmt: skip
    return tuple(map(int, end)), cells[: 3 * end[2]].tolist(), sizes.tolist()


def test_each_value_has_its_place_and_texts_are_measured() -> None:
    data = b"".join(ROWS)
    end, cells, sizes = located(data)
    assert end == (k.MORE, len(data), 3)
    second, third = len(ROWS[0]), len(ROWS[0]) + len(ROWS[1])
    assert cells == [6, 10, 14, -1, second + 6, second + 6 + 303, third + 6, -1, -1]
    assert data[6:10] == struct.pack("<i", 7)
    assert sizes[1::2] == [0, 303, 0], "bytes of text, of the second column alone"


@pytest.mark.parametrize(
    ("behind", "why"),
    [
        (b"", k.MORE), (END, k.END), (ERROR, k.ERROR), (ROWS[0][:-1], k.MORE), (b"\x05\0", k.MORE),
        (b"\xff\xff\xff\0" + bytes(9), k.LONG), (packet(b""), w.TRUNCATED),
        (packet(b"\x01\0"), w.TRUNCATED), (packet(b"\0\0" + bytes(3)), w.TRUNCATED),
        (packet(b"\0\x18" + bytes(5)), w.BAD_WIDTH), (packet(b"\0\x14\x09ab"), w.TRUNCATED),
    ],
)  # fmt: skip
def test_why_it_stops_and_where(behind: bytes, why: int) -> None:
    """The rows before it count."""
    end, _, _ = located(ROWS[0] + behind)
    assert end == (why, len(ROWS[0]), 1)


def test_no_more_rows_than_there_is_room_for() -> None:
    assert located(b"".join(ROWS), most=2)[0] == (k.FULL, len(ROWS[0] + ROWS[1]), 2)


def test_a_row_of_several_packets_comes_as_one_body() -> None:
    """Which has no head of a packet."""
    body = ROWS[1][4:]
    end, cells, _ = located(body, body=len(body))
    assert end == (k.MORE, len(body), 1)
    assert cells[0] == -1
