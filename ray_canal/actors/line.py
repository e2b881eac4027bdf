"""A line: one upstream and the log that it fills, in memory and on disk.

A destination has one for all its subscribers, and one more for each subscriber that goes by its own
dump (aside.py). A line lives as long as its upstream; its log may be read a little longer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from ray_canal.actors import spawn
from ray_canal.actors.answers import head_of
from ray_canal.actors.lost_chunks import CHECK_S, ChunkWatch, begins_anew
from ray_canal.actors.pump import Pump
from ray_canal.config import InstanceConfig
from ray_canal.destination.disk_state import DiskState
from ray_canal.destination.signal import NEVER, Signal, answered
from ray_canal.errors import InstanceNotRunning
from ray_canal.log import spill_folder
from ray_canal.log.batch import Batch
from ray_canal.log.event_store import EventStore
from ray_canal.log.ring import Slot
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.message import MessageHead
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.schema_record import SchemaRecord
from ray_canal.model.start import ALL_CURSORS, Start, StartOptions

logger = logging.getLogger(__name__)

_DISK_LIMIT_S = 60.0
_DRAINED_S = 60.0


class Line:
    """`folder`: where its log goes on disk, made when the first chunk goes there. `detach`: called
    with subscribers that alone keep the log from going on. `within`: see Pump."""

    def __init__(
        self,
        config: InstanceConfig,
        folder: str,
        changed: Signal,
        detach: Callable[[list[int]], None] | None,
        within: bool,
    ) -> None:
        self._config = config
        self._folder = folder
        self._changed = changed
        self._detach = detach
        self._spiller: Any = None
        self._disk = DiskState(config.destination, folder)
        self.pump = Pump(config, within)
        self._store: EventStore | None = None
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended = self._stopped = False
        self.lost = False
        """Some of its chunks are gone: it hands out nothing any more."""
        self._chunks = ChunkWatch()
        self.identity = SourceIdentity("")
        self.timeline = 0
        self._full_since: float | None = None

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

    def begin(self, start: EntryPosition, batch_ids_from: int, timeline: int = 0) -> EventStore:
        """A fresh log from where the upstream stands."""
        self.timeline = timeline
        store = self._store = EventStore(
            self._config.store,
            start,
            batch_ids_from=batch_ids_from,
            spill_bytes=self._config.store.spill_bytes,
        )
        return store

    @property
    def store(self) -> EventStore:
        assert self._store is not None
        return self._store

    async def run(self, deliver: Callable[[LogChunk, Any], Awaitable[None]]) -> None:
        """See Pump.run. `deliver` is called for each chunk and puts it into the log."""
        pumping = asyncio.create_task(self.pump.run(deliver, self._wait_for_room))
        watching = asyncio.create_task(self._watch_chunks())
        try:
            await asyncio.wait({pumping, self._broken}, return_when=asyncio.FIRST_COMPLETED)
            if self._broken.done():
                self._broken.result()
            await pumping
        finally:
            self.ended = True
            pumping.cancel()
            watching.cancel()
            await asyncio.gather(pumping, watching, return_exceptions=True)
            self.store.flush()

    def fail(self, error: Exception) -> None:
        """Its log cannot be read any more: `run` raises this."""
        if not self._broken.done():
            self._broken.set_exception(error)

    @property
    def full_s(self) -> float:
        """For how long the log has had no room for the next chunk; 0: it has."""
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

    async def check(self, references: Sequence[Any]) -> None:
        """A client could not read these chunks: if they are this log's, and lost, it ends."""
        mine = {each for each in self.store.payloads() if isinstance(each, ray.ObjectRef)}
        await self._lose(await self._chunks.unreadable(mine.intersection(references)))

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
            self.fail(begins_anew())
            await self._changed.wake()

    async def _wait_for_room(self, chunks: int) -> None:
        store = self.store
        self._full_since = None
        while not store.has_room(chunks * self._config.chunk_bytes):
            slot = store.spillable()
            if slot is not None and self._disk.may_try and await self._spill(slot):
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

    def disk_report(self) -> dict[str, Any]:
        """For status: why chunks cannot go to disk now, and since when."""
        return self._disk.report()

    async def _spill(self, slot: Slot) -> bool:
        """Move a chunk to disk. False: the disk does not take it; it is to be tried again."""
        if self._spiller is None:
            self._spiller = spawn.spiller(self._folder)
        try:
            segment = await self._answer(self._spiller.write.remote(slot.chunk, slot.payload))
        except RayTaskError as error:
            if not isinstance(error.cause, OSError):
                raise
            self._disk.failed(str(error.cause))
            return False
        self._disk.worked()
        if not self.store.spilled(slot.first, segment, segment.size_bytes):
            self._spiller.drop.remote([segment])
        return True

    async def read_back(self, client_id: int, batch_size: int) -> None:
        """Bring into memory what the next get needs of what is on disk. Raises InstanceNotRunning:
        the log was closed meanwhile."""
        first = self.store.first_position
        while (slot := self.store.missing(client_id, batch_size)) is not None:
            at, segment = slot.first, slot.payload
            if self._spiller is None:
                raise InstanceNotRunning("the log was closed; what was not acked comes again")
            reply = self._spiller.read_log_chunk.remote(segment)
            self.store.restore(at, await self._answer(reply))
        if self.store.first_position != first:
            await self._changed.wake()  # what is not for this subscriber has made room

    async def _answer(self, reply: Any) -> Any:
        """Raises InstanceNotRunning: the spiller's process is there, but was stopped."""
        limit_s = _DISK_LIMIT_S
        try:
            return await answered(limit_s, reply)
        except asyncio.TimeoutError:
            raise InstanceNotRunning(
                f"the disk of the log has not answered for {limit_s:.0f} s"
            ) from None

    def sweep(self) -> None:
        """Free what nobody needs any more on disk."""
        dropped = self.store.take_dropped()
        if dropped and self._spiller is not None:
            self._spiller.drop.remote(dropped)

    def takes_what_comes(self, client_id: int, batch_size: int) -> bool:
        """Whether a chunk is being decoded that fits into a batch beside what is there. (Of one
        that counts entries nobody knows.)"""
        store, coming = self._config.store, self.pump.coming_bytes
        if not coming or store.batch_mode != "MEMSIZE":
            return False
        left = batch_size - -(-coming // store.memunit_bytes)
        return left > 0 and not self.store.ready(client_id, left)

    def message(self, batch: Batch, epoch: int, lends: bool) -> MessageHead:
        """What a client gets of the batch; see head_of."""
        return head_of(batch, epoch, self.timeline, self._config, self._spiller, lends)

    async def drained(self) -> None:
        """Return when its subscribers have acked all that is in the log, or ack nothing for a
        minute."""
        acked = self.store.acked
        deadline = time.monotonic() + _DRAINED_S
        while not self.store.is_drained and time.monotonic() < deadline:
            await self._changed.wait(time.monotonic() + 1.0)
            if self.store.acked != acked:
                acked = self.store.acked
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
        spiller, self._spiller = self._spiller, None
        if spiller is not None:
            try:
                await answered(5.0, spiller.close.remote())
            except (asyncio.TimeoutError, RayError):
                logger.warning("the process that had %s did not answer", self._folder)
            ray.kill(spiller)
            await asyncio.to_thread(spill_folder.remove, self._folder)
