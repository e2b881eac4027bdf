"""The ground of a destination in this process: threads, memory and a folder, no Ray.

See ray_canal/destination/ports.py, whose `Runtime` this is. A chunk's payload is the chunk itself,
so what a client loads is what the log has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.config import InstanceConfig
from ray_canal.destination.fetcher_thread import FetcherThread
from ray_canal.destination.ports import Upstream
from ray_canal.destination.pump import FusedUpstream
from ray_canal.destination.snapshot.row_reader_thread import RowReaderThread
from ray_canal.log.segment import Segment, SegmentFolder
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.snapshot.moment_reader import MomentReader


@dataclass(frozen=True)
class OnDisk:
    """The payload of a chunk on disk."""

    folder: SegmentFolder
    segment: Segment

    def read(self) -> DecodedChunk:
        return self.folder.read_decoded(self.segment)


class LocalSpill:
    """The part of a log on disk."""

    def __init__(self, folder: str) -> None:
        self._folder = SegmentFolder(folder)

    async def write(self, chunk: LogChunk, payload: Any) -> Segment:
        return self._folder.write(chunk, payload)

    def read_log_chunk(self, segment: Segment) -> Awaitable[LogChunk]:
        read: asyncio.Future[LogChunk] = asyncio.get_running_loop().create_future()
        read.set_result(self._folder.read_log_chunk(segment))
        return read

    def payload(self, segment: Segment) -> OnDisk:
        return OnDisk(self._folder, segment)

    def drop(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._folder.drop(segment)

    async def close(self) -> None:
        self._folder.close()


class NeverLost:
    """Chunks in memory are lost with their log only. `gone`: as if these were lost."""

    def __init__(self) -> None:
        self.gone: list[Any] = []

    async def lost(self, payloads: Iterable[Any]) -> bool:
        return any(each is gone for each in payloads for gone in self.gone)

    async def unreadable(self, payloads: Iterable[Any], told: Sequence[Any]) -> bool:
        return await self.lost(each for each in payloads if any(each is one for one in told))


class KeptStatus:
    """Metrics: the last status that was published."""

    def __init__(self) -> None:
        self.last: Mapping[str, Any] | None = None

    def publish(self, status: Mapping[str, Any]) -> None:
        self.last = status

    def gone(self) -> None:
        self.last = None


class LocalRuntime:
    """Makes what a destination runs on."""

    def decoders(self, config: InstanceConfig) -> int:
        return 0

    async def upstream(self, config: InstanceConfig) -> Upstream:
        return FusedUpstream(config, FetcherThread(config, True, lambda chunk: chunk))

    def spill(self, folder: str) -> LocalSpill:
        return LocalSpill(folder)

    def row_reader(self, config: InstanceConfig) -> RowReaderThread:
        return RowReaderThread(config, lambda chunk: chunk)

    def moment_reader(self, config: InstanceConfig) -> MomentReader:
        return MomentReader(config, framed=True)

    def keep(self, chunk: DecodedChunk) -> DecodedChunk:
        return chunk

    async def load(self, payload: Any) -> DecodedChunk:
        return payload  # type: ignore[no-any-return]

    def chunk_watch(self) -> NeverLost:
        return NeverLost()

    def untracked(self, payload: Any) -> Any:
        return payload

    def metrics(self, destination: str) -> KeptStatus:
        return KeptStatus()

    def unwrap(self, error: Exception) -> Exception:
        return error
