"""A reader of tables' rows as a thread of the destination's process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.config import InstanceConfig
from ray_canal.destination.backend_thread import BackendThread
from ray_canal.destination.fetcher import SMALL_CHUNK_BYTES
from ray_canal.model.message import Payload
from ray_canal.snapshot.key_numbers import Keys
from ray_canal.snapshot.log_chunks import LogPlace
from ray_canal.snapshot.row_reader import RangeOrder, RangeRead, RowReader


class RowReaderThread:
    """See destination/ports.py `RowReaderHandle`. `keep`: makes of a chunk what the log keeps."""

    def __init__(self, config: InstanceConfig, keep: Callable[[DecodedChunk], Payload]) -> None:
        self._config = config
        self._keep = keep
        self._thread = BackendThread("row reader")
        self._reader: RowReader | None = None

    async def open(self) -> None:
        await self._thread.run(self._opened)

    def _opened(self) -> RowReader:
        if self._reader is None:
            self._reader = RowReader(self._config)
        return self._reader

    async def read(self, order: RangeOrder) -> RangeRead:
        return await self._thread.run(self._read, order)

    def _read(self, order: RangeOrder) -> RangeRead:
        return self._opened().read(order)

    async def place(
        self, number: int, touched: tuple[Keys, ...], doubted: tuple[Keys, ...], place: LogPlace
    ) -> tuple[list[tuple[ChunkInfo, Payload]], bool]:
        # Not in the thread: it may be in the midst of the next range, and the log waits for this.
        return await asyncio.to_thread(self._place, number, touched, doubted, place)

    def _place(
        self, number: int, touched: tuple[Keys, ...], doubted: tuple[Keys, ...], place: LogPlace
    ) -> tuple[list[tuple[ChunkInfo, Payload]], bool]:
        placed = self._opened().place(number, touched, doubted, place)
        pieces: list[tuple[ChunkInfo, Payload]] = [
            (info, chunk if chunk.arena.size <= SMALL_CHUNK_BYTES else self._keep(chunk))
            for info, chunk in placed.pieces
        ]
        return pieces, placed.is_whole

    async def close(self) -> None:
        await self._thread.close(self._close)

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
