"""The transaction-buffer actor: puts chunks' infos into transactions, in order. It sees no
payload."""

from __future__ import annotations

import time

from ray_canal.actors.log_settings import StageActor
from ray_canal.actors.priority import as_ray_itself
from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.config import InstanceConfig
from ray_canal.log.transaction_buffer import LogChunk, TransactionBuffer
from ray_canal.model.position import EntryPosition


class TransactionBufferActor(StageActor):
    """One generation's TransactionBuffer behind a handle."""

    def __init__(self, config_json: str, start: EntryPosition, gtid_set: str) -> None:
        as_ray_itself()
        config = InstanceConfig.model_validate_json(config_json)
        self._buffer = TransactionBuffer.configured(config, start, gtid_set)

    def add(self, info: ChunkInfo) -> LogChunk:
        """Take the next chunk's info; see TransactionBuffer.add."""
        began_s = time.perf_counter()
        added = self._buffer.add(info)
        added.info.stage_seconds["buffer"] = time.perf_counter() - began_s
        return added
