"""The ground of a destination in a Ray cluster: see destination/ports.py `Runtime`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import ray

from ray_canal.actors.answers import unwrap_ray_error
from ray_canal.actors.disk import SpillProcess
from ray_canal.actors.lost_chunks import RayChunkWatch
from ray_canal.actors.metrics import Metrics
from ray_canal.actors.placement_table import FEW_CPUS
from ray_canal.actors.ray_internals import untracked
from ray_canal.actors.upstream.spare_pool import fetcher_of
from ray_canal.actors.upstream.upstreams import FetcherProcess, SplitUpstream
from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.config import InstanceConfig
from ray_canal.destination.fetcher_thread import FetcherThread
from ray_canal.destination.ports import FetcherCalls, RowReaderHandle, Upstream
from ray_canal.destination.pump import FusedUpstream
from ray_canal.model.message import Payload

if TYPE_CHECKING:
    from ray_canal.snapshot.moment_reader import MomentReading

_DECODERS_MAX = 16


class RayRuntime:
    """`shared`: fetchers are threads of the destination's process, which others may share; else
    each has a process of its own. What is put into the object store here is owned by the process
    of its log."""

    def __init__(self, shared: bool) -> None:
        self._shared = shared

    def decoders(self, config: InstanceConfig) -> int:
        """Return `decoders`, or the choice of "auto": fused on small clusters and where
        destinations share a process, else most of the CPUs."""
        if isinstance(config.decoders, int):
            return config.decoders
        if self._shared:  # nor is Ray's head asked, for which the others here would wait
            return 0
        cpus = int(ray.cluster_resources().get("CPU", 1))
        return 0 if cpus <= FEW_CPUS else min(cpus - 2, _DECODERS_MAX)

    async def upstream(self, config: InstanceConfig) -> Upstream:
        fused = self.decoders(config) == 0
        fetcher: FetcherCalls
        if self._shared:
            fetcher = FetcherThread(config, fused, ray.put)
        else:
            fetcher = FetcherProcess(await fetcher_of(config, fused))
        return FusedUpstream(config, fetcher) if fused else SplitUpstream(config, fetcher)

    def spill(self, folder: str) -> SpillProcess:
        return SpillProcess(folder)

    # What reads rows comes with its kernels: a store loads them when it does.

    def row_reader(self, config: InstanceConfig) -> RowReaderHandle:
        if self._reads_elsewhere(config):
            from ray_canal.actors.row_reading import RowReaderProcess

            return RowReaderProcess(config)
        from ray_canal.destination.snapshot.row_reader_thread import RowReaderThread

        return RowReaderThread(config, ray.put)

    def moment_reader(self, config: InstanceConfig) -> MomentReading:
        if self._reads_elsewhere(config):
            from ray_canal.actors.row_reading import MomentReaderProcess

            return MomentReaderProcess(config)
        from ray_canal.snapshot.moment_reader import MomentReader

        return MomentReader(config, framed=True)

    def _reads_elsewhere(self, config: InstanceConfig) -> bool:
        return bool(config.snapshot.node) or self.decoders(config) > 0

    def keep(self, chunk: DecodedChunk) -> Payload:
        return ray.put(chunk)

    async def load(self, payload: Payload) -> DecodedChunk:
        if isinstance(payload, DecodedChunk):  # a small one
            return payload
        found: DecodedChunk = await cast("ray.ObjectRef[DecodedChunk]", payload)
        return found

    def chunk_watch(self) -> RayChunkWatch:
        return RayChunkWatch()

    def untracked(self, payload: Payload) -> Payload:
        return untracked(payload)

    def metrics(self, destination: str) -> Metrics:
        return Metrics(destination)

    def unwrap(self, error: Exception) -> Exception:
        return unwrap_ray_error(error)
