"""An upstream whose fetcher parses and decodes, too; the transaction buffer is in this process."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.config import InstanceConfig
from ray_canal.destination.ports import Answer, FetcherCalls
from ray_canal.limits import chunks_ahead
from ray_canal.log.transaction_buffer import LogChunk, TransactionBuffer
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.schema_record import Records
from ray_canal.model.start import Start, StartOptions
from ray_canal.source.port import SourceStatus


def transaction_buffer(
    config: InstanceConfig, start: EntryPosition, gtid_set: str
) -> TransactionBuffer:
    """Return the buffer of a generation that starts at `start`, before which `gtid_set` was
    executed."""
    return TransactionBuffer(
        start,
        gtid_set,
        thin_empty_transactions=config.store.thin_empty_transactions,
        drop_transaction_entries=config.filter.transaction_entry,
        transaction_size=config.store.transaction_size,
    )


class FusedUpstream:
    """One generation's. See ports.py `Upstream`."""

    calls_ahead = chunks_ahead(0)

    def __init__(self, config: InstanceConfig, fetcher: FetcherCalls) -> None:
        self._config = config
        self._fetcher = fetcher
        self._buffer: TransactionBuffer | None = None

    async def open(
        self,
        cursors: tuple[LogPosition, ...],
        delivered: str,
        records: Records,
        options: StartOptions,
    ) -> tuple[Start, SourceIdentity, Records]:
        start, identity, new = await self._fetcher.open(cursors, delivered, records, options)
        self._buffer = transaction_buffer(self._config, start.position, start.position.gtid)
        return start, identity, new

    def next(self) -> Answer:
        return self._fetcher.next_decoded()

    async def add(self, info: ChunkInfo | Awaitable[ChunkInfo]) -> LogChunk:
        assert self._buffer is not None
        assert isinstance(info, ChunkInfo)  # the fetcher has decoded it
        began_s = time.perf_counter()
        added = self._buffer.add(info)
        added.info.stage_seconds["buffer"] = time.perf_counter() - began_s
        return added

    @property
    def decoding_bytes(self) -> int:
        decoding = self._fetcher.decoding
        return decoding[0] if decoding else 0  # another thread appends, only this one takes off

    def appended(self) -> None:
        self._fetcher.appended()

    def hurry(self) -> None:
        self._fetcher.hurry()

    def processes(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        return self._fetcher.processes()

    async def status(self, oldest: EntryPosition | None) -> SourceStatus | None:
        return await self._fetcher.status(oldest)

    async def close(self) -> None:
        await self._fetcher.close()
