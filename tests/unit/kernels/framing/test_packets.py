"""Packet unpacking: any split of the stream gives the same events."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ray_canal.kernels.framing import packets


def packet(body: bytes, sequence: int = 0) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([sequence & 255]) + body


def framed(event: bytes, head: bytes = b"\0") -> bytes:
    body, out, sequence = head + event, b"", 1
    while True:
        part, body = body[:0xFFFFFF], body[0xFFFFFF:]
        out += packet(part, sequence)
        sequence += 1
        if len(part) < 0xFFFFFF:
            return out


def unpack_all(stream: bytes, sizes: list[int], semi_sync: bool = False) -> tuple[bytes, list[int]]:
    state = np.zeros(packets.STATE_SIZE, np.int64)
    left, out, codes, at = b"", b"", [], 0
    while at < len(stream):
        piece = left + stream[at : at + sizes[0]]
        at += sizes[0]
        sizes = [*sizes[1:], sizes[0]]
        source = np.frombuffer(piece, np.uint8)
        place = 0
        while True:
            target = np.empty(len(piece) + 1, np.uint8)
            code, place = packets.unpack(source, place, len(piece), target, state, semi_sync)
            out += target[: state[packets.WRITTEN_BYTES]].tobytes()
            codes.append(int(code))
            if code != packets.ACK:
                break
        left = piece[place:]
    return out, codes


def test_any_split() -> None:
    rng = random.Random(2)
    events = [rng.randbytes(rng.choice([19, 30, 300, 5000])) for _ in range(50)]
    stream = b"".join(framed(event) for event in events)
    for _ in range(20):
        sizes = [rng.choice([1, 2, 3, 4, 5, 100, 6000]) for _ in range(7)]
        assert unpack_all(stream, sizes)[0] == b"".join(events)


@pytest.mark.parametrize("size", [0xFFFFFF - 2, 0xFFFFFF - 1, 0xFFFFFF, 2 * 0xFFFFFF - 1, 40 << 20])
def test_events_over_many_packets(size: int) -> None:
    events = [np.random.default_rng(size).bytes(size), b"x" * 25]
    stream = b"".join(framed(event) for event in events)
    assert unpack_all(stream, [3 << 20])[0] == b"".join(events)


def test_semi_sync() -> None:
    stream = (
        framed(b"a" * 30, b"\0\xef\0")
        + framed(b"b" * 30, b"\0\xef\1")
        + framed(b"c" * 20, b"\0\xef\1")
    )
    for sizes in ([1], [1000], [7, 13]):
        out, codes = unpack_all(stream, sizes, semi_sync=True)
        assert out == b"a" * 30 + b"b" * 30 + b"c" * 20
        assert codes.count(packets.ACK) == 2


@pytest.mark.parametrize(
    ("tail", "code"),
    [
        (packet(b"\xff\xd4\x04#HY000purged"), packets.ERROR),
        (packet(b"\xfe\0\0\2\0"), packets.END),
        (packet(b"\x07nonsense"), packets.BROKEN),
        (packet(b""), packets.MORE),
    ],
)
def test_other_packets(tail: bytes, code: int) -> None:
    out, codes = unpack_all(framed(b"a" * 30) + tail, [1000])
    assert out == b"a" * 30
    assert codes[-1] == code
