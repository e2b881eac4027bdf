"""The transaction-buffer actor: puts chunks' infos into transactions, in order. It sees no
payload."""

from __future__ import annotations

import time

from ray_canal.actors.priority import as_ray_itself
from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.config import InstanceConfig
from ray_canal.log.transaction_buffer import LogChunk, TransactionBuffer
from ray_canal.model.position import EntryPosition


def transaction_buffer(
    config: InstanceConfig, start: EntryPosition, gtid_set: str
) -> TransactionBuffer:
    """A generation's buffer, as the configuration has it."""
    return TransactionBuffer(
        start,
        gtid_set,
        thin_empty_transactions=config.store.thin_empty_transactions,
        drop_transaction_entries=config.filter.transaction_entry,
        transaction_size=config.store.transaction_size,
    )


class TransactionBufferActor:
    """One generation's TransactionBuffer behind a handle."""

    def __init__(self, config_json: str, start: EntryPosition, gtid_set: str) -> None:
        as_ray_itself()
        config = InstanceConfig.model_validate_json(config_json)
        self._buffer = transaction_buffer(config, start, gtid_set)

    def alive(self) -> None:
        """Answer: this process is not stopped. Runs beside everything else."""

    def add(self, info: ChunkInfo) -> LogChunk:
        """Take the next chunk's info; see TransactionBuffer.add."""
        began_s = time.perf_counter()
        added = self._buffer.add(info)
        added.info.stage_seconds["buffer"] = time.perf_counter() - began_s
        return added
