"""Compressed columns against zlib, and what is broken in them."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from ray_canal.kernels.rows import wire
from ray_canal.kernels.rows.inflate import inflate, inflated_bytes


def source_of(data: bytes) -> np.ndarray:
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


def inflated(data: bytes, size: int) -> bytes | None:
    out = np.zeros(size + 8, np.uint8)
    whole = inflate(source_of(data), 0, len(data), out, 0, size)
    assert not out[size:].any(), "written behind the limit"
    return out[:size].tobytes() if whole else None


def samples() -> list[bytes]:
    rng = random.Random(7)
    words = [rng.randbytes(rng.randrange(1, 40)) for _ in range(30)]
    return [
        b"", b"a", b"x" * 100_000, bytes(range(256)) * 3, rng.randbytes(70_000),
        b"".join(rng.choice(words) for _ in range(3000)),
        "".join(rng.choice("etaoin shrdlu") for _ in range(20_000)).encode(),
    ]  # fmt: skip


@pytest.mark.parametrize("level", [0, 1, 6, 9])
@pytest.mark.parametrize("strategy", [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY])
def test_as_zlib(level: int, strategy: int) -> None:
    for data in samples():
        packer = zlib.compressobj(level, zlib.DEFLATED, -15, 8, strategy)
        packed = packer.compress(data) + packer.flush()
        assert inflated(packed, len(data)) == data
        assert inflated(packed, len(data) + 1) is None
        if data:
            assert inflated(packed, len(data) - 1) is None
            assert inflated(packed[: len(packed) // 2], len(data)) is None


def test_random_damage_is_bounded() -> None:
    rng = random.Random(11)
    data = samples()[5][:3000]
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    packed = packer.compress(data) + packer.flush()
    changed = 0
    for _ in range(3000):
        broken = bytearray(packed)
        for _ in range(rng.choice([1, 1, 5])):
            broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        found = inflated(bytes(broken), len(data))
        try:
            wanted = zlib.decompressobj(-15).decompress(bytes(broken))
        except zlib.error:
            wanted = b""
        if len(wanted) == len(data):
            assert found in (wanted, None)
        else:
            assert found is None
        changed += found is None
    assert changed > 1000


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", 0),
        (b"\x00abc", 3),
        (b"\x00", 0),
        (b"\x89\x78\xab\xa8\x18\x18\x00", 120),
        (b"\x8a\x03\xe8" + bytes(20), 1000),
        (b"\x8c\x7f\xff\xff\xff" + bytes(20), wire.BAD_PACKED),
        (b"\x8d\x00\x00\x00\x00\x01" + bytes(9), wire.BAD_PACKED),
        (b"\x88\x01", wire.BAD_PACKED),
        (b"\x89", wire.BAD_PACKED),
        (b"\x79\x05aaaaa", wire.BAD_PACKED),
    ],
)
def test_lengths(data: bytes, wanted: int) -> None:
    assert inflated_bytes(source_of(data), 0, len(data)) == wanted
