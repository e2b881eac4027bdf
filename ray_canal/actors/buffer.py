"""The transaction-buffer actor: puts chunks' infos into transactions, in order. It sees no
payload."""

from __future__ import annotations

from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.protocol.position import EntryPosition
from ray_canal.store.transaction_buffer import LogChunk, TransactionBuffer


class TransactionBufferActor:
    """One generation's TransactionBuffer behind a handle."""

    def __init__(self, start: EntryPosition, gtid_set: str) -> None:
        self._buffer = TransactionBuffer(start, gtid_set)

    def add(self, info: ChunkInfo) -> LogChunk:
        """Take the next chunk's info; see TransactionBuffer.add."""
        return self._buffer.add(info)
