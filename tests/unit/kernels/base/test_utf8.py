"""UTF-8 as RFC 3629 has it: Python's own codec is the reference."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ray_canal.kernels.base.utf8 import first_broken_row
from ray_canal.kernels.rows.charset import UTF8, to_utf8, utf8_bytes

NO_TABLES = np.zeros(0, np.int32)
SAMPLES = (
    b"plain", "Grüße, 日本語, 🐳".encode(), b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
    b"\xe2\x82", b"\xf0\x9f\x90", b"\x80", b"\xff", b"12345678\xe2\x82\xac", b"\xe0\x80\x80x", b"",
)  # fmt: skip


def column(texts: list[bytes]) -> tuple[np.ndarray, int, int, int, int]:
    """(arena, data, used, offsets, rows)"""
    offsets = np.cumsum([0, *map(len, texts)]).astype("<i4").tobytes()
    data = b"".join(texts)
    arena = np.frombuffer(offsets + data + bytes(16), np.uint8).copy()
    return arena, len(offsets), len(data), 0, len(texts)


def is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("seed", range(20))
def test_the_first_broken_row_is_found(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        texts = [rng.choice(SAMPLES) for _ in range(rng.randrange(1, 6))]
        broken = [row for row, text in enumerate(texts) if not is_utf8(text)]
        assert first_broken_row(*column(texts)) == (broken[0] if broken else -1), texts


def test_a_character_cut_by_rows_is_broken_in_both() -> None:
    assert first_broken_row(*column([b"a\xe2", b"\x82\xac"])) == 0


@pytest.mark.parametrize("seed", range(20))
def test_what_is_broken_becomes_the_replacement_character(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        text = b"".join(rng.choice((*SAMPLES, rng.randbytes(2))) for _ in range(5))
        source = np.frombuffer(text, np.uint8)
        expected = text.decode("utf-8", "replace").encode()
        target = np.zeros(3 * len(text) + 8, np.uint8)
        size = utf8_bytes(source, 0, len(text), UTF8, NO_TABLES, 0)
        assert to_utf8(source, 0, len(text), UTF8, NO_TABLES, 0, target, 0) == size
        assert target[:size].tobytes() == expected
