"""The pump: pulls chunks through the stages of an upstream, in order, for a log.

It runs in the destination's process, because whoever calls for a chunk owns it: chunks then outlive
the fetcher and the workers that made them. What is awaited is small: infos, and chunks that are
small themselves; the rest passes by reference.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.config import InstanceConfig
from ray_canal.destination.decode_window import DecodeWindow
from ray_canal.destination.ports import Answer, Fetched, FetcherCalls, Runtime, Upstream
from ray_canal.destination.status.stages import FetchReport, Stages
from ray_canal.destination.wakeup import wait_with_timeout
from ray_canal.errors import InstanceNotRunning
from ray_canal.limits import chunks_ahead
from ray_canal.log.transaction_buffer import LogChunk, TransactionBuffer
from ray_canal.model.message import Payload
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.schema_record import Records, SchemaRecord
from ray_canal.model.start import ALL_CURSORS, Start, StartOptions
from ray_canal.source.port import SourceStatus

_PING_S_MAX = 3.0
_START_LIMIT_S = 180.0
"""A process that starts may take its time, on a machine under load; for longer, it is replaced."""

WaitForRoom = Callable[[int, Callable[[], int]], Awaitable[None]]
Queue = asyncio.Queue[Fetched | None]


class Pump:
    """One generation of a destination's upstream. Any failure ends it; a new one is made."""

    def __init__(self, config: InstanceConfig, runtime: Runtime) -> None:
        self._config = config
        self._runtime = runtime
        self.decoders = runtime.decoders(config)
        self.window = DecodeWindow(config.decoders_min, self.decoders)
        self._queue = Queue()
        self._taken = asyncio.Event()
        self._added_s = 0.0
        self._kept_back_s = 0.0
        self._held_back = Stages()
        self._upstream: Upstream | None = None
        self._expecting: Callable[[], None] | None = None
        self.chunk_came_s = 0.0
        """When the newest chunk came (monotonic), which may not be in the log yet."""
        self._closed = False
        self.stages = Stages()

    @property
    def decoding_bytes(self) -> int:
        """Size in bytes of the next large chunk being decoded; 0 if none or unknown."""
        return 0 if self._upstream is None else self._upstream.decoding_bytes

    @property
    def held_back_percent(self) -> float:
        """Part of the last ten seconds in which the fetcher waited for what comes after it."""
        held_back = self._held_back.report().get("fetch")
        return 0.0 if held_back is None else held_back["busy_percent"]

    async def open(
        self,
        cursors: Sequence[LogPosition],
        records: Sequence[SchemaRecord],
        delivered: str = "",
        options: StartOptions = ALL_CURSORS,
    ) -> tuple[Start, SourceIdentity, Records]:
        """Stand at the source, with the schema history that is known. Return where (and where the
        cursors lie there), which log, and new records of its schemas. Raises SourceError,
        InstanceNotRunning: see _watched."""
        upstream = self._upstream = await self._runtime.upstream(self._config)
        work = upstream.open(tuple(cursors), delivered, tuple(records), options)
        (opened,) = await self._watched(work)
        return opened  # type: ignore[no-any-return]

    async def run(self, wait_for_room: WaitForRoom) -> None:
        """Fetch chunks for `next` until the source ends (binlog files), and return when they are in
        the log.

        `wait_for_room(chunks, queued)` returns when the log has room for so many chunks besides
        those that `queued` counts, which wait to be put into it. Raises what a stage raised,
        InstanceNotRunning: see _watched.
        """
        assert self._upstream is not None
        await self._watched(self._fetch(self._upstream, wait_for_room))

    async def _watched(self, *work: Coroutine[Any, Any, Any]) -> list[Any]:
        """Run side by side until all are done; what they return.

        Raises what one of them raised; InstanceNotRunning when a stage's process is there, but does
        not answer (it was stopped, or the machine thrashes): a new generation does without it.
        """
        tasks = [asyncio.create_task(coroutine) for coroutine in work]
        watch = asyncio.create_task(self._watch())
        try:
            waiting = {*tasks, watch}
            while waiting != {watch}:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            return [task.result() for task in tasks]
        finally:
            for task in (*tasks, watch):
                task.cancel()
            await asyncio.gather(*tasks, watch, return_exceptions=True)

    async def _watch(self) -> None:
        assert self._upstream is not None
        limit_s = self._config.source.read_timeout_s
        started: set[str] = set()
        while True:
            for name, ask in self._upstream.processes().items():
                patience_s = limit_s if name in started else max(limit_s, _START_LIMIT_S)
                try:
                    await wait_with_timeout(patience_s, ask())
                except asyncio.TimeoutError:
                    raise InstanceNotRunning(
                        f"the {name} has not answered for {patience_s:.0f} s: its process was "
                        "stopped or gets no time; another one takes over"
                    ) from None
                started.add(name)
            await asyncio.sleep(min(_PING_S_MAX, limit_s / 5))

    async def _fetch(self, upstream: Upstream, wait_for_room: WaitForRoom) -> None:
        queue, waiting = self._queue, list[Answer]()
        while True:
            while len(waiting) < upstream.calls_ahead:
                await self._room(len(waiting) + 1, wait_for_room)
                waiting.append(upstream.next())
            fetched = await waiting.pop(0)()
            finished = fetched.report is not None and self._finished(fetched.report)
            if fetched.info is not None:
                self._note_chunk()
                await self._wait_for_window()
                queue.put_nowait(fetched)
            elif finished:
                queue.put_nowait(None)
                await queue.join()
                return

    async def _wait_for_window(self) -> None:
        while self._queue.qsize() >= chunks_ahead(self.window.size):
            began_s = time.perf_counter()
            self._taken.clear()
            await self._taken.wait()
            kept_back_s = time.perf_counter() - began_s
            self._kept_back_s += kept_back_s
            self._held_back.add("fetch", kept_back_s)

    async def _room(self, chunks: int, wait_for_room: WaitForRoom) -> None:
        began_s = time.perf_counter()
        await wait_for_room(chunks, self._queue.qsize)
        self.stages.add("store", waiting_s=time.perf_counter() - began_s)

    def _finished(self, report: FetchReport) -> bool:
        self.stages.add("fetch", report.busy_s, report.waiting_s)
        return report.finished

    async def next(self) -> tuple[LogChunk, Payload] | None:
        """Return the next chunk, in order; `appended` follows once it is in the log. None: the
        source has ended."""
        assert self._upstream is not None
        began_s = time.perf_counter()
        in_use = -(-self._queue.qsize() // 2)
        fetched = await self._queue.get()
        self._taken.set()
        if fetched is None:
            self._queue.task_done()
            return None
        assert fetched.info is not None  # _fetch passes nothing else on
        log_chunk = await self._upstream.add(fetched.info)
        self._added_s = time.perf_counter()
        seconds = log_chunk.info.stage_seconds
        waited_s = self._added_s - began_s - seconds.get("buffer", 0.0)
        self.stages.add("buffer", waiting_s=max(waited_s, 0.0))
        self.window.note(in_use, self._kept_back_s, max(waited_s, 0.0))
        self._kept_back_s = 0.0
        self.stages.add_chunk(seconds)
        return log_chunk, fetched.payload

    def appended(self, chunk: LogChunk) -> None:
        """Note that the chunk of the last `next` is in the log. Raises what ended it early: an
        event that cannot be decoded."""
        assert self._upstream is not None
        self._upstream.appended()
        self.stages.add("store", time.perf_counter() - self._added_s)
        self._queue.task_done()
        if chunk.info.failure is not None:
            raise chunk.info.failure

    def _note_chunk(self) -> None:
        self.chunk_came_s = time.monotonic()
        expecting, self._expecting = self._expecting, None
        if expecting is not None:
            expecting()

    def hurry(self, expecting: Callable[[], None]) -> None:
        """Have what has come put into the log soon, since a subscriber waits. `expecting` is called
        when the next chunk has come, on its way into the log."""
        self._expecting = expecting
        if self._upstream is not None and not self._closed:
            self._upstream.hurry()

    async def source_status(self, oldest: EntryPosition | None = None) -> SourceStatus | None:
        """Return the fetcher's SourceStatus (see there), or None if it does not answer at once."""
        if self._upstream is None or self._closed:
            return None
        with contextlib.suppress(asyncio.TimeoutError):
            return await wait_with_timeout(1.0, self._upstream.status(oldest))
        return None

    async def close(self) -> None:
        """End every stage. What is in flight is dropped; it is not acked, so it comes again."""
        self._closed = True
        if self._upstream is not None:
            await self._upstream.close()


class FusedUpstream:
    """An upstream whose fetcher parses and decodes, too; the transaction buffer is in this process.
    See ports.py `Upstream`."""

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
        self._buffer = TransactionBuffer.configured(
            self._config, start.position, start.position.gtid
        )
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
