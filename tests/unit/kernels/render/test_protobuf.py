"""Protobuf's wire format, written backwards, as protobuf's own library reads it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from google.protobuf.internal.decoder import _DecodeSignedVarint, _DecodeVarint  # type: ignore

from ray_canal.canal.generated.EntryProtocol_pb2 import Pair
from ray_canal.kernels.render.protobuf import (
    blob_back,
    close_back,
    number_back,
    short_back,
    text_back,
    varint_back,
)

END = 400
rng = random.Random(7)
NUMBERS = [0, 1, 127, 128, (1 << 14) - 1, 1 << 14, (1 << 31) - 1, (1 << 63) - 1, -1, -(1 << 63)]
NUMBERS += [rng.getrandbits(63) >> rng.randrange(63) for _ in range(100)]


def room() -> np.ndarray:
    """A buffer that held something before."""
    return np.full(END + 8, 0xEE, np.uint8)


@pytest.mark.parametrize("value", NUMBERS)
def test_a_varint_is_read_as_it_was_and_has_no_byte_too_many(value: int) -> None:
    buf = room()
    start = varint_back(np.int64(value), buf, END)
    written = buf[start:END].tobytes()
    assert _DecodeSignedVarint(written, 0) == (value, len(written))
    bits = value.bit_length() if value >= 0 else 64
    assert len(written) == max(1, -(-bits // 7))
    assert (buf[END:] == 0xEE).all(), "nothing behind its end"
    tagged = number_back(0x10, np.int64(value), buf, END)
    assert buf[tagged:END].tobytes() == b"\x10" + written


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 127, 128, 300])
def test_texts_and_messages_have_tag_and_length(size: int) -> None:
    source = np.frombuffer(bytes(32) + rng.randbytes(size), np.uint8)
    buf = room()
    start = text_back(0x0A, source, 32, size, buf, END)
    written = buf[start:END].tobytes()
    length, at = _DecodeVarint(written, 1)
    assert (written[0], length, written[at:]) == (0x0A, size, source[32:].tobytes())
    closed = close_back(0x12, END, buf, start)
    assert _DecodeVarint(buf[closed:END].tobytes(), 1)[0] == len(written)
    for back in (blob_back, short_back):
        other = room()
        at = back(source, 32, size, other, END)
        assert other[at:END].tobytes() == source[32:].tobytes()
        assert (other[END:] == 0xEE).all()


def test_protobufs_own_library_reads_a_message_of_them() -> None:
    buf = room()
    pair = {"key": "rowsCount", "value": "Größe 🔔 " * 20}
    pos = END
    for tag, text in ((0x12, pair["value"]), (0x0A, pair["key"])):
        source = np.frombuffer(bytes(32) + text.encode(), np.uint8)
        pos = text_back(tag, source, 32, len(source) - 32, buf, pos)
    assert Pair.FromString(buf[pos:END].tobytes()) == Pair(**pair)
