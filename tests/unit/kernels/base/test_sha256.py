"""SHA-256 and HMAC of a column, against hashlib and hmac."""

from __future__ import annotations

import hashlib
import hmac
import random

import numpy as np
import pytest

from ray_canal.kernels.base.sha256 import HEX_BYTES, INITIAL, SCRATCH_WORDS, hash_column, midstates


def hashed(values: list[bytes], key: bytes) -> list[str]:
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
    data = np.frombuffer(b"".join(values), np.uint8)
    inner, outer = midstates(key) if key else (INITIAL, INITIAL)
    out = np.zeros(HEX_BYTES * len(values), np.uint8)
    scratch = np.zeros(SCRATCH_WORDS, np.uint32)
    hash_column(offsets, data, bool(key), inner, outer, scratch, out)
    return [out[k : k + HEX_BYTES].tobytes().decode() for k in range(0, out.size, HEX_BYTES)]


@pytest.mark.parametrize("key", [b"", b"k", b"a key of many words", bytes(range(64)), b"x" * 99])
def test_values_of_every_length_around_a_block(key: bytes) -> None:
    random_ = random.Random(len(key))
    values = [random_.randbytes(size) for size in [*range(140), 1000, 4096]]
    sha256 = hashlib.sha256
    made = [hmac.new(key, value, sha256) if key else sha256(value) for value in values]
    assert hashed(values, key) == [one.hexdigest() for one in made]


def test_no_values() -> None:
    assert hashed([], b"k") == []
