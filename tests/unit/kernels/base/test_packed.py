"""Length-encoded integers, of each length and cut off."""

from __future__ import annotations

import numpy as np
import pytest

from ray_canal.kernels.base.packed import packed_integer


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (b"\0", 0), (b"\xfa", 250), (b"\xfc\xfb\0", 251), (b"\xfd\0\0\1", 65536),
        (b"\xfe\0\0\0\0\1\0\0\0", 1 << 32),
    ],
)  # fmt: skip
def test_numbers_and_what_is_cut_off(data: bytes, number: int) -> None:
    source = np.frombuffer(data + bytes(9), np.uint8)
    assert packed_integer(source, 0, len(data)) == (number, len(data))
    for end in range(len(data)):
        assert packed_integer(source, 0, end)[0] < 0


@pytest.mark.parametrize("data", [b"\xfb", b"\xff", b"\xfe" + b"\xff" * 8])
def test_no_numbers(data: bytes) -> None:
    assert packed_integer(np.frombuffer(data + bytes(9), np.uint8), 0, len(data) + 9)[0] < 0
