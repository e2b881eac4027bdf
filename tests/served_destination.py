"""A real destination for tests of the TCP server: over the demo's binlog files, on local threads.

It is what the server asks for (ray_canal/server/ports.py). Its source does not end, as a server's
does not; how much of it is read can be held back.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from ray_canal.binlog.chunk import ChunkHead, ChunkInfo, DecodedChunk
from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.demo import binlog_files
from ray_canal.destination.api import GetRequest, Method, PollRequest, Q, R
from ray_canal.destination.destination import Destination, start_destination
from ray_canal.destination.fetcher_thread import FetcherThread
from ray_canal.destination.ports import Fetched
from ray_canal.destination.pump import FusedUpstream
from ray_canal.errors import InstanceNotFound, InstanceNotRunning
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.message import MessageHead
from ray_canal.offline import decode_chunks
from tests.local_destination import instance, until
from tests.local_runtime import LocalRuntime, OnDisk

Decoded = Sequence[tuple[ChunkInfo, DecodedChunk]]
_CHUNK_BYTES = 3 << 20  # as decode_chunks has it


def decoded(files: Sequence[Path] = ()) -> Decoded:
    """The chunks that a destination over these files reads."""
    return list(decode_chunks(files or binlog_files()))


class Gate:
    """Holds chunks back: those from `released` on, counted from the files' beginning."""

    def __init__(self, chunks: Decoded, released: int) -> None:
        self._heads = [info.head for info, _ in chunks]
        self._released = released
        self._changed = asyncio.Event()
        self._delivered = ("", 0)

    def release(self, count: int) -> None:
        self._released += count
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def passed(self, info: ChunkInfo) -> None:
        """Wait until the chunk may pass."""
        at = info.head.journal_name, info.head.position
        while sum((h.journal_name, h.position) <= at for h in self._heads) > self._released:
            await self._changed.wait()

    def deliver(self, head: ChunkHead) -> None:
        """Note that a chunk is in the log."""
        self._delivered = head.journal_name, head.end_position
        self._wake()

    async def settled(self) -> None:
        """Wait until all that was released is in the log."""
        count = min(self._released, len(self._heads))
        last = self._heads[count - 1]
        while count and self._delivered < (last.journal_name, last.end_position):
            await self._changed.wait()

    def begin(self) -> None:
        """A log begins."""
        self._delivered = ("", 0)
        self._changed = asyncio.Event()


class GatedUpstream(FusedUpstream):
    """Chunks pass the gate; the end of the files is never told."""

    def __init__(self, config: InstanceConfig, gate: Gate) -> None:
        super().__init__(config, FetcherThread(config, True, lambda chunk: chunk))
        self._gate = gate
        self._added: deque[ChunkHead] = deque()

    def next(self) -> Callable[[], Awaitable[Fetched]]:
        fetch = super().next()

        async def passed() -> Fetched:
            fetched = await fetch()
            if fetched.info is not None:
                await self._gate.passed(fetched.info)
            elif fetched.report is not None and fetched.report.finished:
                await asyncio.Event().wait()
            return fetched

        return passed

    async def add(self, info: Any) -> LogChunk:
        self._added.append(info.head)
        return await super().add(info)

    def appended(self) -> None:
        super().appended()
        self._gate.deliver(self._added.popleft())


class GatedRuntime(LocalRuntime):
    """Local threads behind a gate."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def upstream(self, config: InstanceConfig) -> GatedUpstream:
        return GatedUpstream(config, self._gate)


class ServedDestination:
    """One destination, started by its first call. What is released is in the log when that, or
    `release` or `restart`, returns. `restart()` begins another generation: batches are void."""

    def __init__(self, chunks: Decoded, *, released: int | None = None, **store: Any) -> None:
        self._gate = Gate(chunks, len(chunks) if released is None else released)
        self._folder: str | None = None  # of the cursors, which outlive a stop
        self._config = instance(chunk_bytes=_CHUNK_BYTES, store=store, tsdb={"enable": True})
        self._destination: Destination | None = None
        self._starting = asyncio.Lock()
        self.takes = 0

    async def _started(self) -> Destination:
        async with self._starting:
            if self._destination is None:
                if self._folder is None:
                    self._folder = tempfile.mkdtemp(prefix="ray_canal-served-")
                    weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
                meta = MetaConfig(path=str(Path(self._folder) / "meta.db"))
                runtime = GatedRuntime(self._gate)
                self._destination = start_destination(self._config, meta, runtime)
                await self._destination.wait_running(60)
                await asyncio.wait_for(self._gate.settled(), 60)
            return self._destination

    async def release(self, count: int) -> None:
        await self._started()
        self._gate.release(count)
        await asyncio.wait_for(self._gate.settled(), 60)

    async def restart(self) -> None:
        destination = await self._started()
        before = destination.activity.generations
        self._gate.begin()
        destination.state.log.fail(InstanceNotRunning("another generation begins"))
        await until(lambda: destination.activity.generations > before)
        await asyncio.wait_for(self._gate.settled(), 60)

    async def halt(self) -> None:
        """Stop it, as an operator does."""
        await (await self._started()).stop()

    async def begin(self) -> None:
        """Start it again after `halt`."""
        self._gate.begin()
        self._destination = None
        await self._started()

    async def close(self) -> None:
        if self._destination is not None:
            await self._destination.stop()
            self._destination = None
        self._starting = asyncio.Lock()  # another loop may start it again
        self._gate.begin()

    def outstanding(self, client_id: int) -> list[int]:
        """Return the ids of outstanding batches."""
        assert self._destination is not None
        pipeline = self._destination.lookup.now(client_id)
        return [] if pipeline is None else pipeline.store.batch_ids(client_id)

    # --- the port -------------------------------------------------------------------------------

    async def call_async(self, method: Method[Q, R], request: Q) -> R:
        answer: R = await getattr(await self._started(), method.__name__)(request)
        return answer

    async def take(self, request: GetRequest) -> MessageHead:
        destination = await self._started()
        self.takes += 1
        if isinstance(request, PollRequest):
            return await destination.poll(request)
        return await destination.get_without_ack(request)

    async def load_async(self, payloads: list[Any]) -> list[DecodedChunk]:
        return [each.read() if isinstance(each, OnDisk) else each for each in payloads]


def opener(stores: dict[str, ServedDestination]) -> Any:
    """The server's way to a destination by name."""

    async def open_store(destination: str) -> ServedDestination:
        if destination not in stores:
            raise InstanceNotFound(f"no destination {destination!r} is running")
        return stores[destination]

    return open_store
