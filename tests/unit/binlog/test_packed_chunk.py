"""A chunk in quarantine is the chunk that it was; what is damaged is said to be."""

from __future__ import annotations

import numpy as np
import pytest

from ray_canal.binlog.chunk import ChunkHead, RawChunk
from ray_canal.binlog.packed_chunk import pack, unpack
from ray_canal.errors import CorruptEvent


def test_packed_and_unpacked() -> None:
    head = ChunkHead(3, "bin.000001", 4, 90, 10, True, False, "mariadb", "10.11", b"\n\0\xff")
    raw = RawChunk(head, np.arange(90, dtype=np.uint8))
    again = unpack(pack(raw))
    assert again.head == head
    assert again.data.tolist() == raw.data.tolist()


@pytest.mark.parametrize("cut", [0, 1, 20])
def test_what_is_damaged_is_refused(cut: int) -> None:
    packed = pack(RawChunk(ChunkHead(0, "b.1", 4, 9), np.zeros(50, np.uint8)))
    with pytest.raises(CorruptEvent):
        unpack(packed[:cut])
