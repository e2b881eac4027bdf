"""A log pipeline: one upstream and the log that it fills, in memory and on disk.

A destination has one for all its subscribers, and one more for each subscriber that catches up
(catch_up.py). A pipeline lives as long as its upstream; its log may be read a little longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar, cast

from ray_canal.config import InstanceConfig
from ray_canal.destination.disk_state import DiskState
from ray_canal.destination.failures import chunks_lost_error
from ray_canal.destination.ports import Runtime, Spill
from ray_canal.destination.pump import Pump
from ray_canal.destination.wakeup import NEVER, Wakeup, wait_with_timeout
from ray_canal.errors import InstanceNotRunning
from ray_canal.log import spill_folder
from ray_canal.log.batch import Batch
from ray_canal.log.event_store import EventStore
from ray_canal.log.ring import Slot
from ray_canal.log.segment import Segment
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.message import MessageHead, MessagePart, Payload
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.reports import DiskReport
from ray_canal.model.schema_record import SchemaRecord
from ray_canal.model.start import ALL_CURSORS, Start, StartOptions

logger = logging.getLogger(__name__)

CHECK_S = 3.0
"""So often a log looks whether a machine took chunks along: a look-up each, no call."""
_DISK_LIMIT_S = 60.0
_DRAINED_S = 60.0
T = TypeVar("T")
BeforeAppend = Callable[[LogChunk, Payload], Awaitable[None]]
AfterAppend = Callable[[LogChunk], None]
BeforeAppendTo = Callable[["LogPipeline", Collection[int], LogChunk, Payload], Awaitable[None]]
"""Called with a chunk that goes into the log, and with subscribers that have this log."""


async def nothing_noted(
    log: LogPipeline, clients: Collection[int], chunk: LogChunk, payload: Payload
) -> None:
    """Note nothing before a chunk goes into the log."""


class Tap(Protocol):
    """Sees what a log gets."""

    async def logged(self, chunk: LogChunk, payload: Payload) -> None:
        """Take note of a chunk that was put into the log; the next one waits for the return."""


class LogPipeline:
    """`folder`: where its log goes on disk, made when the first chunk goes there. `detach`: called
    with subscribers that alone keep the log from going on."""

    def __init__(
        self,
        config: InstanceConfig,
        folder: str,
        changed: Wakeup,
        detach: Callable[[list[int]], None] | None,
        runtime: Runtime,
    ) -> None:
        self._config = config
        self._folder = folder
        self._changed = changed
        self._detach = detach
        self._runtime = runtime
        self._spill: Spill | None = None
        self._disk = DiskState(config.destination, folder)
        self.pump = Pump(config, runtime)
        self._store: EventStore | None = None
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended = self._stopped = False
        self.lost = False
        """Some of its chunks are gone: it hands out nothing any more."""
        self._chunks = runtime.chunk_watch()
        self.identity = SourceIdentity("")
        self._full_since: float | None = None
        self.end = EntryPosition("")
        """The end of what came into the log, also of chunks without an entry (a new file)."""
        self.placing = asyncio.Lock()
        self.taps: list[Tap] = []
        """Taps, which see each chunk before the next one comes."""

    async def open(
        self,
        cursors: Sequence[LogPosition],
        records: Sequence[SchemaRecord],
        delivered: str = "",
        options: StartOptions = ALL_CURSORS,
    ) -> tuple[Start, SourceIdentity, tuple[SchemaRecord, ...]]:
        """See Pump.open."""
        start, self.identity, new = await self.pump.open(cursors, records, delivered, options)
        return start, self.identity, new

    def begin(self, start: EntryPosition, batch_ids_from: int) -> EventStore:
        """Begin a fresh log from where the upstream stands."""
        self.end = start
        store = self._store = EventStore(
            self._config.store,
            start,
            batch_ids_from=batch_ids_from,
            spill_bytes=self._config.store.spill_bytes,
        )
        return store

    @property
    def store(self) -> EventStore:
        """Return the log's entries and cursors, once it is open."""
        assert self._store is not None
        return self._store

    async def append(self, chunk: LogChunk, payload: Payload) -> None:
        """Append a chunk to the log; its taps see it before the next one comes."""
        if not self.taps:
            self._put(chunk, payload)
            return
        async with self.placing:
            self._put(chunk, payload)
            await self._changed.wake()  # the others need not wait for taps
            for tap in tuple(self.taps):
                await tap.logged(chunk, payload)

    def _put(self, chunk: LogChunk, payload: Payload) -> None:
        self.store.put(chunk, payload)
        self.end = EntryPosition(chunk.info.head.journal_name, chunk.info.head.end_position)

    async def caught_up_to(self) -> tuple[EntryPosition, EntryPosition] | None:
        """Return (how far the source was read, where the server's log is known to end). None: not
        known, or not connected."""
        status = await self.pump.source_status()
        if status is None or not status.connected or status.master_position is None:
            return None
        name = status.journal_name
        return EntryPosition(name, status.position), EntryPosition(name, status.master_position)

    async def run(self, before: BeforeAppend, after: AfterAppend) -> None:
        """Append chunks until the source ends (binlog files). `before` and `after` are called for
        each one: what the first writes is durable before anybody can ack the chunk. Raises what a
        stage raised; InstanceNotRunning: see Pump; and what `fail` was told."""
        pumping = asyncio.create_task(self.pump.run(self._wait_for_room))
        filling = asyncio.create_task(self._fill(before, after))
        watching = asyncio.create_task(self._watch_chunks())
        working: set[asyncio.Future[None]] = {pumping, filling}
        try:
            while working:
                waited = {*working, self._broken}
                done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
                working -= done
        finally:
            self.ended = True
            for task in (pumping, filling, watching):
                task.cancel()
            await asyncio.gather(pumping, filling, watching, return_exceptions=True)
            self.store.flush()

    async def _fill(self, before: BeforeAppend, after: AfterAppend) -> None:
        while (pulled := await self.pump.next()) is not None:
            chunk, payload = pulled
            await before(chunk, payload)
            await self.append(chunk, payload)
            after(chunk)
            await self._changed.wake()
            self.pump.appended(chunk)

    def fail(self, error: Exception) -> None:
        """Its log cannot be read any more: `run` raises this."""
        if not self._broken.done():
            self._broken.set_exception(error)

    @property
    def failed(self) -> bool:
        """True once `fail` was called."""
        return self._broken.done()

    @property
    def full_s(self) -> float:
        """Return for how many seconds the log has had no room for the next chunk; 0: it has."""
        return 0.0 if self._full_since is None else time.monotonic() - self._full_since

    async def _watch_chunks(self) -> None:
        failed = False
        while not self.lost:
            await asyncio.sleep(CHECK_S)
            try:
                await self._lose(await self._chunks.lost(self.store.payloads()))
            except Exception as error:  # the next look may work; clients tell what they cannot read
                if not failed:
                    name = self._config.destination
                    logger.warning("destination %s: where its chunks are: %s", name, error)
                failed = True

    async def check(self, references: Sequence[Payload]) -> None:
        """A client could not read these chunks: if they are this log's, and lost, it ends."""
        await self._lose(await self._chunks.unreadable(self.store.payloads(), references))

    async def until_lost(self) -> None:
        """End the upstream, whose source is at its end, and wait for as long as the log's chunks
        can be read. Raises InstanceNotRunning: they cannot."""
        await self.stop()
        watching = asyncio.create_task(self._watch_chunks())
        try:
            await asyncio.shield(self._broken)
        finally:
            watching.cancel()

    async def _lose(self, lost: bool) -> None:
        if lost and not self.lost:
            self.lost = True
            self.fail(chunks_lost_error())
            await self._changed.wake()

    async def _wait_for_room(self, chunks: int, queued: Callable[[], int]) -> None:
        store = self.store
        self._full_since = None
        while not store.has_room((chunks + queued()) * self._config.chunk_bytes):
            if queued():  # in the log they take what they need, mostly less than `chunk_bytes`
                await self._changed.wait()
                continue
            slot = store.spillable()
            if slot is not None and self._disk.may_try and await self._to_disk(slot):
                continue
            stuck = [] if self._detach is None else store.detachable()
            if stuck and self._detach is not None:
                self._detach(stuck)
                await self._changed.wake()
                continue
            if store.abandon():
                self.sweep()
                continue
            if store.flush():  # two full logs that wake each other each time would never rest
                await self._changed.wake()
            self._full_since = self._full_since or time.monotonic()
            await self._changed.wait(NEVER if slot is None else self._disk.try_at)
        self._full_since = None

    # --- the disk -----------------------------------------------------------------------------

    def disk_report(self) -> DiskReport:
        """Return for `status` why chunks cannot go to disk now, and since when."""
        return self._disk.report()

    async def _to_disk(self, slot: Slot) -> bool:
        """Move a chunk to disk. Return False if the disk does not take it now."""
        if self._spill is None:
            self._spill = self._runtime.spill(self._folder)
        spill = self._spill
        assert slot.chunk is not None
        try:
            segment = await self._answer(spill.write(slot.chunk, slot.payload))
        except OSError as error:
            self._disk.failed(str(error))
            return False
        self._disk.worked()
        if not self.store.spilled(slot.first, segment, segment.size_bytes):
            spill.drop([segment])
        return True

    async def read_back(self, client_id: int, batch_size: int) -> None:
        """Bring into memory what the next get needs of what is on disk. Raises InstanceNotRunning:
        the log was closed meanwhile."""
        async with self.making_room():  # by what is not for this subscriber
            while (slot := self.store.missing(client_id, batch_size)) is not None:
                at, segment = slot.first, slot.payload
                if self._spill is None:
                    raise InstanceNotRunning("the log was closed; what was not acked comes again")
                read = self._spill.read_log_chunk(cast(Segment, segment))
                self.store.restore(at, await self._answer(read))

    @contextlib.asynccontextmanager
    async def making_room(self) -> AsyncIterator[None]:
        """Wake who waits if what happens meanwhile makes room: the log becomes shorter, or what it
        is full of may now go to disk."""
        store = self.store
        first, needed = store.first_sequence, self._needed_if_full()
        try:
            yield
        finally:
            if store.first_sequence != first or self._needed_if_full() != needed:
                await self._changed.wake()

    def _needed_if_full(self) -> int | None:
        """Return what subscribers need, which takes a look at each of them, while that matters."""
        return None if self._full_since is None else self.store.needed

    async def _answer(self, work: Awaitable[T]) -> T:
        """Raises InstanceNotRunning: the disk's process is there, but was stopped."""
        limit_s = _DISK_LIMIT_S
        try:
            return await wait_with_timeout(limit_s, work)
        except asyncio.TimeoutError:
            raise InstanceNotRunning(
                f"the disk of the log has not answered for {limit_s:.0f} s"
            ) from None

    def sweep(self) -> None:
        """Free what nobody needs any more on disk."""
        dropped = self.store.take_dropped()
        if dropped and self._spill is not None:
            self._spill.drop(cast("Sequence[Segment]", dropped))

    def may_grow(self, client_id: int, batch_size: int) -> bool:
        """Return whether a chunk is being decoded that fits into a batch next to what is there.
        (Unknown, so False, where batches count entries.)"""
        store, decoding = self._config.store, self.pump.decoding_bytes
        if not decoding or store.batch_mode != "MEMSIZE":
            return False
        left = batch_size - -(-decoding // store.memunit_bytes)
        return left > 0 and not self.store.ready(client_id, left)

    def message(
        self, batch: Batch, epoch: int, timeline: int, *, untracked: bool = False
    ) -> MessageHead:
        """Return what a client gets of the batch. `untracked`: it fetches the chunks at once, so
        their references need not be tracked; where some of it is on disk, which is fetched one by
        one, they are."""
        untracked = untracked and not batch.on_disk

        def payload_of(part: MessagePart) -> Payload:
            if part.on_disk:
                assert self._spill is not None
                return self._spill.payload(cast(Segment, part.payload))
            return self._runtime.untracked(part.payload) if untracked else part.payload

        config = self._config
        return MessageHead(
            batch.id,
            epoch,
            tuple(replace(part, payload=payload_of(part)) for part in batch.parts),
            batch.entry_count,
            batch.row_count,
            batch.range.start,
            batch.range.end,
            ack=batch.range.ack,
            time_zone=config.time_zone,
            gtid=config.source.gtid,
            fields=config.filter.fields,
            black_fields=config.filter.black_fields,
            irregular_dates=config.irregular_dates,
            timeline=timeline,
            untracked=untracked,
        )

    async def drained(self) -> None:
        """Return when its subscribers have acked all that is in the log, or ack nothing for a
        minute."""
        needed = self.store.needed
        deadline = time.monotonic() + _DRAINED_S
        while not self.store.is_drained and time.monotonic() < deadline:
            await self._changed.wait(time.monotonic() + 1.0)
            if self.store.needed != needed:
                needed = self.store.needed
                deadline = time.monotonic() + _DRAINED_S

    async def stop(self) -> None:
        """End the upstream; the log can be read on."""
        if not self._stopped:
            self._stopped = True
            await self.pump.close()

    async def close(self) -> None:
        """End the upstream, forget the log and its place on disk."""
        await self.stop()
        if self._broken.done():
            self._broken.exception()  # it was told
        spill, self._spill = self._spill, None
        if spill is not None:
            await spill.close()
            await asyncio.to_thread(spill_folder.remove, self._folder)
