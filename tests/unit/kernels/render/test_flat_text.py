"""Text in JSON against Python's own, and hashes against views/routing.py."""

from __future__ import annotations

import json
import random

import numpy as np

from ray_canal.kernels.render.flat_text import escaped_back, java_hash, partition_of
from ray_canal.views import routing

ROOM = 4096
LETTERS = ['"', "\\", "\b", "\f", "\n", "\r", "\t", "\0", "\x1f", " ", "\x7f", "a", "é", "漢", "😀"]


def escaped(data: bytes, is_latin1: bool) -> str:
    source = np.frombuffer(b"x" * 16 + data, np.uint8).copy()
    room = np.zeros(ROOM, np.uint8)
    start = escaped_back(source, 16, len(data), is_latin1, room, ROOM)
    return bytes(room[start:]).decode()


def test_every_byte() -> None:
    for byte in range(256):
        for data in (bytes([byte]), b"before " + bytes([byte]) + b" and behind"):
            text = json.dumps(data.decode("latin-1"), ensure_ascii=False)[1:-1]
            assert escaped(data, True) == text
            if byte < 0x80:
                assert escaped(data, False) == text


def test_texts_of_all_lengths() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        plain = "".join(rng.choice("abcxyz01é漢") for _ in range(rng.randrange(40)))
        mixed = "".join(rng.choice(LETTERS) for _ in range(rng.randrange(20)))
        for text in (plain, mixed, plain + mixed):
            data = text.encode()
            assert escaped(data, False) == json.dumps(text, ensure_ascii=False)[1:-1]
            source = np.frombuffer(b"." + data, np.uint8).copy()
            code = java_hash(source, 1, len(data), False)
            assert code == routing.java_hash(text)
            assert java_hash(source, 1, len(data), True) == routing.java_hash(
                data.decode("latin-1")
            )
            assert partition_of(code, 7) == routing.java_partition(code, 7)
