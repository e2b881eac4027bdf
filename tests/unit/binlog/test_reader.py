"""The cursor over a small byte string: length-encoded integers, and what is cut off."""

from __future__ import annotations

import pytest

from ray_canal.binlog.reader import Reader
from ray_canal.errors import CorruptEvent


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("fa", 250),
        ("fc fb00", 251),
        ("fc ffff", 0xFFFF),
        ("fd 000001", 0x10000),
        ("fe 0000000100000000", 1 << 24),
        ("fe ffffffffffffffff", (1 << 64) - 1),
    ],
)
def test_length_encoded_integers(data: str, value: int) -> None:
    """As MySQL's documentation of its protocol has them: each length's smallest and largest."""
    reader = Reader(bytes.fromhex(data), "TABLE_MAP")
    assert reader.packed() == value
    assert reader.left == 0


@pytest.mark.parametrize("data", ["", "fc fb", "fd 0000", "fe 00000000000000", "fb", "ff"])
def test_a_cut_or_reserved_one_is_corrupt_and_names_its_event(data: str) -> None:
    with pytest.raises(CorruptEvent, match=r"^TABLE_MAP: "):
        Reader(bytes.fromhex(data), "TABLE_MAP").packed()


def test_what_is_refused_is_not_taken() -> None:
    reader = Reader(b"abc", "x")
    reader.skip(1)
    with pytest.raises(CorruptEvent, match="3 bytes wanted, 2 left"):
        reader.take(3)
    assert reader.take(2) == b"bc"
    assert reader.integer(0) == 0
