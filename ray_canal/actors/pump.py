"""The pump: pulls chunks through the stages, in order, into the log.

It runs inside the store actor, because whoever calls for a chunk owns it: raw and decoded chunks
then outlive the fetcher and the workers that made them. What is awaited is small: heads, infos, and
chunks that are small themselves; the rest passes by reference.

    fetcher.next_raw ─head─┐
         raw ref ──────────┼─> parser.parse ─ref─> decode task ─info─> buffer ─> deliver
                           └──────────────────────────^    └──decoded ref──────────^

Fused (`decoders = 0`): fetcher.next_decoded ─info, ref─> buffer (in this process) ─> deliver. A
small chunk comes by value. The fetcher may be a thread of this process; see upstreams.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import ray

from ray_canal.actors import spawn
from ray_canal.actors.buffer import transaction_buffer
from ray_canal.actors.places import FEW_CPUS
from ray_canal.actors.upstreams import Found, Upstream, upstream_of
from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.config import InstanceConfig
from ray_canal.destination.signal import answered, within
from ray_canal.destination.stages import Reading, Stages
from ray_canal.errors import InstanceNotRunning
from ray_canal.limits import chunks_ahead
from ray_canal.log.transaction_buffer import LogChunk, TransactionBuffer
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.schema_record import Records, SchemaRecord
from ray_canal.model.start import ALL_CURSORS, Start, StartOptions, begun

_PING_S_MAX = 3.0
_START_LIMIT_S = 180.0
"""An actor that starts may take its time, on a machine under load; for longer, it is replaced."""

Deliver = Callable[[LogChunk, Any], Awaitable[None]]


def decoder_count(config: InstanceConfig, *, shared: bool) -> int:
    """`decoders`, or the choice of "auto": fused on small clusters and where destinations share a
    process, else most of the CPUs."""
    if isinstance(config.decoders, int):
        return config.decoders
    cpus = int(ray.cluster_resources().get("CPU", 1))
    return 0 if shared or cpus <= FEW_CPUS else min(cpus - 2, 16)


class Pump:
    """One generation of a destination's upstream. Any failure ends it; a new one is made."""

    def __init__(self, config: InstanceConfig, within: bool) -> None:
        """`within`: whether the fetcher is to run in this process, or has its own."""
        self._config = config
        self._decoders = decoder_count(config, shared=within)
        self._within = within
        self._upstream: Upstream | None = None
        self._parser: Any = None
        self._buffer: Any = None
        self.finished = self._closed = False
        self.stages = Stages()

    @property
    def decoders(self) -> int:
        return self._decoders

    @property
    def coming_bytes(self) -> int:
        """Of the next chunk, if it is large and is being decoded; 0: none is, or nobody knows."""
        if self._upstream is None or not self._upstream.coming:
            return 0
        return self._upstream.coming[0]  # another thread appends, none but this one takes off

    async def open(
        self,
        cursors: Sequence[LogPosition],
        records: Sequence[SchemaRecord],
        delivered: str = "",
        options: StartOptions = ALL_CURSORS,
    ) -> tuple[Start, SourceIdentity, Records]:
        """Stand at the source, with the schema history that is known. Returns where (and where the
        cursors lie there), which log, and new records of its schemas. Raises SourceError,
        InstanceNotRunning: see _watched."""
        fused = self._decoders == 0
        self._upstream = await upstream_of(self._config, fused=fused, within=self._within)
        work = self._open(self._upstream, cursors, records, delivered, options)
        (opened,) = await self._watched(work)
        return opened  # type: ignore[no-any-return]

    async def _open(
        self,
        upstream: Upstream,
        cursors: Sequence[LogPosition],
        records: Sequence[SchemaRecord],
        delivered: str,
        options: StartOptions,
    ) -> tuple[Start, SourceIdentity, Records]:
        at, known = tuple(cursors), tuple(records)
        start, identity, new = await upstream.open(at, delivered, known, options)
        at = at or begun(options)
        position = start.position
        gtid_set = position.gtid
        if self._decoders == 0:
            self._buffer = transaction_buffer(self._config, position, gtid_set)
        else:
            config = self._config.at(identity.address)
            self._parser = spawn.parser(config)
            self._buffer = spawn.transaction_buffer(self._config, position, gtid_set)
            new = await self._parser.begin.remote(at, known, start, identity)
        return start, identity, new

    async def run(self, deliver: Deliver, wait_for_room: Callable[[int], Awaitable[None]]) -> None:
        """Pump until the source ends (binlog files) or something fails.

        `wait_for_room(chunks)` returns when the log has room for so many more chunks; `deliver`
        puts one into it. Raises what a stage raised, InstanceNotRunning: see _watched.
        """
        ahead = chunks_ahead(self._decoders)
        queue: asyncio.Queue[tuple[Any, Any] | None] = asyncio.Queue(maxsize=ahead)
        produce = self._produce_fused if self._decoders == 0 else self._produce_split
        await self._watched(produce(queue, wait_for_room), self._consume(queue, deliver))

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
        limit_s = self._config.source.read_timeout_s
        started: set[str] = set()
        while True:
            for name, stage in self._stages().items():
                reply = stage.alive.options(concurrency_group=spawn.HEALTH_GROUP).remote()
                patience_s = limit_s if name in started else max(limit_s, _START_LIMIT_S)
                try:
                    await answered(patience_s, reply)
                except asyncio.TimeoutError:
                    raise InstanceNotRunning(
                        f"the {name} has not answered for {patience_s:.0f} s: its process was "
                        "stopped or gets no time; another one takes over"
                    ) from None
                started.add(name)
            await asyncio.sleep(min(_PING_S_MAX, limit_s / 5))

    def _stages(self) -> dict[str, Any]:
        """The processes of this generation, beside the store's, by what an error calls them."""
        fetcher = None if self._upstream is None else self._upstream.actor
        found = {"fetcher": fetcher, "parser": self._parser, "buffer": self._buffer}
        return {
            name: stage
            for name, stage in found.items()
            if stage is not None and not isinstance(stage, TransactionBuffer)
        }

    async def _produce_fused(
        self,
        queue: asyncio.Queue[tuple[Any, Any] | None],
        wait_for_room: Callable[[int], Awaitable[None]],
    ) -> None:
        assert self._upstream is not None
        # One call is always waiting in the fetcher behind the running one, so that it never idles
        # between two chunks.
        waiting: list[Found] = []
        while True:
            while len(waiting) < chunks_ahead(0):
                await self._room(queue.qsize() + len(waiting) + 1, wait_for_room)
                waiting.append(self._upstream.next_decoded())
            said, decoded = await waiting.pop(0)()
            if isinstance(said, Reading):
                if self._finished(said):
                    await queue.put(None)
                    return
            else:
                await queue.put((said, decoded))

    async def _produce_split(
        self,
        queue: asyncio.Queue[tuple[Any, Any] | None],
        wait_for_room: Callable[[int], Awaitable[None]],
    ) -> None:
        assert self._upstream is not None
        decode = spawn.decode_task()
        while True:
            await self._room(queue.qsize() + 1, wait_for_room)
            reading, raw_ref = await self._upstream.next_raw()()
            finished = self._finished(reading)
            if not reading.has_chunk:
                if finished:
                    await queue.put(None)
                    return
                continue
            parsed_ref = self._parser.parse.remote(raw_ref)
            info_ref, decoded_ref = decode.remote(raw_ref, parsed_ref)
            await queue.put((info_ref, decoded_ref))

    async def _room(self, chunks: int, wait_for_room: Callable[[int], Awaitable[None]]) -> None:
        began_s = time.perf_counter()
        await wait_for_room(chunks)
        self.stages.add("store", waiting_s=time.perf_counter() - began_s)

    def _finished(self, reading: Reading) -> bool:
        self.stages.add("fetch", reading.busy_s, reading.waiting_s)
        return reading.finished

    async def _consume(
        self, queue: asyncio.Queue[tuple[Any, Any] | None], deliver: Deliver
    ) -> None:
        while True:
            began_s = time.perf_counter()
            item = await queue.get()
            came_s = time.perf_counter()
            waited_s = came_s - began_s
            if item is None:
                self.finished = True
                return
            info, decoded_ref = item
            if isinstance(self._buffer, TransactionBuffer):
                log_chunk = self._buffer.add(info)
                self.stages.add("buffer", time.perf_counter() - came_s, waited_s)
            else:
                log_chunk = await self._added(info)
                info = log_chunk.info
                self.stages.add("buffer", waiting_s=time.perf_counter() - began_s)
            self.stages.add_chunk(log_chunk.info.stage_seconds)
            added_s = time.perf_counter()
            await deliver(log_chunk, decoded_ref)
            if self._upstream is not None and self._upstream.coming:
                self._upstream.coming.popleft()
            self.stages.add("store", time.perf_counter() - added_s)
            if isinstance(info, ChunkInfo) and info.failure is not None:
                raise info.failure

    async def _added(self, info_ref: Any) -> LogChunk:
        """A decode task may wait long for a CPU; for longer, its worker is taken for stopped."""
        limit_s = self._config.decode_timeout_s
        reply = self._buffer.add.remote(info_ref)
        try:
            added: LogChunk = await answered(limit_s, reply)
            return added
        except asyncio.TimeoutError:
            ray.cancel(info_ref, force=True)  # a worker that runs, but hangs, keeps no CPU
            raise InstanceNotRunning(
                f"a chunk was not decoded in {limit_s:g} s (decode_timeout_s): no CPU was free for "
                "it, or its worker was stopped"
            ) from None

    async def source_status(self, oldest: EntryPosition | None = None) -> Any:
        """The fetcher's SourceStatus (see there), or None if it does not answer at once."""
        if self._upstream is None or self._closed:
            return None
        with contextlib.suppress(asyncio.TimeoutError, ray.exceptions.RayError):
            return await within(1.0, self._upstream.status(oldest))
        return None

    async def close(self) -> None:
        """End every stage. What is in flight is dropped; it is not acked, so it comes again."""
        self._closed = True
        upstream, others = self._upstream, self._stages()
        others.pop("fetcher", None)
        if upstream is not None:
            await upstream.close()
        for stage in others.values():
            spawn.end(stage)
