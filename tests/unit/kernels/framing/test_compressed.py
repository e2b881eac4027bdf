"""Compressed events are found up to one that has to be read alone, and put in place."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from ray_canal.kernels.framing import compressed
from ray_canal.model.arrays import Bytes, Int64s

HEADER = struct.Struct("<IBIIIH")
PLAIN = HEADER.pack(7, 2, 1, 25, 0, 0) + b"a word"


def with_checksum(kind: int, body: bytes) -> bytes:
    made = HEADER.pack(7, kind, 1, 19 + len(body) + 4, 0, 0) + body
    return made + zlib.crc32(made).to_bytes(4, "little")


def payload(size: int, method: int = 0) -> bytes:
    """A TRANSACTION_PAYLOAD of 10 bytes that are said to become `size`."""
    head = bytes([2, 1, method, 1, 1, 10, 3, 3, 252]) + size.to_bytes(2, "little") + b"\0"
    return with_checksum(40, head + b"0123456789")


def found(data: bytes, room: int = 1 << 20, most: int = 9) -> tuple[Int64s, int]:
    table = np.empty((most, compressed.FIELDS), np.int64)
    count, end = compressed.find_compressed(as_array(data), 0, 4, 6, room, 1000, table)
    return table[:count], int(end)


def as_array(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


@pytest.mark.parametrize(
    "alone",
    [payload(1001), payload(300, method=1), payload(300)[:-1] + b"?", with_checksum(40, b"\1")],
)
def test_one_that_is_large_unknown_or_broken_is_left_out(alone: bytes) -> None:
    start = payload(300) + with_checksum(2, b"plain") + payload(400)
    table, end = found(start + alone + payload(500))
    assert table[:, compressed.BYTES].tolist() == [300, 400]
    assert end == len(start)


def test_it_stops_where_a_chunk_is_full_but_not_before_a_query() -> None:
    query = with_checksum(165, bytes(13) + b"\0" + b"\x81\x05" + b"......")
    data = payload(600) + query + payload(600) + payload(600)
    table, end = found(data, room=600)
    assert table[:, compressed.KIND].tolist() == [40, 2]
    assert end == len(payload(600) + query)
    assert found(data, most=1)[1] == len(payload(600))


def test_texts_take_the_place_of_what_was_compressed() -> None:
    rows = bytes(6) + b"\1\0" + b"\1" + b"\xff"  # table id, flags, a column, its bitmap
    first, second = payload(25), with_checksum(166, rows + b"\x81\x04....")
    third = with_checksum(2, b"plain")
    data, start = first + second + third, 5000
    table, end = found(data)
    assert end == len(data)
    texts = as_array(PLAIN + b"rows")
    assert compressed.sound_payloads(table, texts) == 2
    broken = as_array(PLAIN[:9] + b"\x18\0\0\0" + PLAIN[13:] + b"rows")
    assert compressed.sound_payloads(table, broken) == 0
    out = np.zeros(compressed.opened_bytes(table, 0, end), np.uint8)
    compressed.place_opened(as_array(data), 0, end, start, table, texts, out)
    expected = b""
    plain_rows = HEADER.pack(7, 23, 1, 19 + len(rows) + 4, 0, 0) + rows + b"rows"
    for event, place, text in ((first, start, PLAIN), (second, start + len(first), plain_rows)):
        expected += HEADER.pack(7, 40, 1, 51, 0, 0)
        expected += struct.pack("<4q", place, len(event), 0, len(text)) + text
    assert out.tobytes() == expected + third
