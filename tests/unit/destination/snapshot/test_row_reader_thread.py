"""A reader of rows in a thread: small chunks go along, large ones are kept, none before a read."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import ChunkLayout, DecodedChunk
from ray_canal.destination.fetcher import SMALL_CHUNK_BYTES
from ray_canal.destination.snapshot import row_reader_thread
from ray_canal.destination.snapshot.row_reader_thread import RowReaderThread
from ray_canal.snapshot.row_reader import RangePlaced
from tests.local_destination import instance, run


def chunk(size: int) -> DecodedChunk:
    return DecodedChunk(ChunkLayout("b.000001", 0, 0, 0, 0, 0, 0, ()), np.zeros(size, np.uint8))


class Reader:
    """Reads two chunks; notes in which threads it was called."""

    threads: list[str]

    def __init__(self, config: object) -> None:
        self.threads = [threading.current_thread().name]
        Reader.last = self

    def read(self, order: str) -> str:
        self.threads.append(threading.current_thread().name)
        return f"read {order}"

    def place(self, number: int, touched: object, doubted: object, place: object) -> Any:
        pieces: list[Any] = [("small", chunk(10)), ("large", chunk(SMALL_CHUNK_BYTES + 1))]
        return RangePlaced(pieces, is_whole=number == 1)

    def close(self) -> None:
        self.threads.append("closed")

    last: Reader


def test_rows_are_read_in_its_own_thread_and_placed_in_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_reader_thread, "RowReader", Reader)

    async def story() -> None:
        thread: Any = RowReaderThread(instance(), lambda kept: ("kept", kept.arena.size))
        await thread.open()
        assert await thread.read("a") == "read a"
        pieces, is_whole = await thread.place(1, (), (), None)
        found = dict(pieces)
        assert is_whole
        assert found["large"] == ("kept", SMALL_CHUNK_BYTES + 1)
        assert isinstance(found["small"], DecodedChunk)
        await thread.close()

    run(story())
    assert Reader.last.threads == ["row reader", "row reader", "closed"]
