"""Checksums against zlib's, at every length, alignment and split."""

from __future__ import annotations

import random
import zlib

import numpy as np

from ray_canal.kernels.base.crc import crc32, crc32_byte, crc32_update


def test_every_length_and_alignment_up_to_300_bytes() -> None:
    data = random.Random(1).randbytes(400)
    source = np.frombuffer(data, np.uint8)
    for start in range(17):
        for size in range(300):
            expected = zlib.crc32(data[start : start + size])
            assert crc32(source, start, start + size) == expected, (start, size)


def test_large_and_special_inputs() -> None:
    rng = random.Random(2)
    for data in (bytes(100_000), b"\xff" * 100_001, rng.randbytes(1 << 20), rng.randbytes(65_549)):
        assert crc32(np.frombuffer(data, np.uint8), 0, len(data)) == zlib.crc32(data)


def test_going_on_after_any_split() -> None:
    rng = random.Random(3)
    data = rng.randbytes(5000)
    source = np.frombuffer(data, np.uint8)
    for _ in range(300):
        split, end = sorted(rng.sample(range(5000), 2))
        crc = crc32_update(np.int64(0xFFFFFFFF), source, 0, split)
        crc = crc32_byte(crc, np.int64(source[split]))
        crc = crc32_update(crc, source, split + 1, end) ^ 0xFFFFFFFF
        assert crc == zlib.crc32(data[:end])
