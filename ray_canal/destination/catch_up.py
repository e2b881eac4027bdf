"""The catch-up: a replication stream of one subscriber's own, until it is back in the log.

It is so because it fell behind (policy `detach`), or because it starts at a place that the log does
not have. Its upstream is a whole one; when that has reached what the destination's log begins with,
the log keeps its place there, and the subscriber changes over as soon as it has acked up to it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime
from typing import Any

from ray_canal.config import InstanceConfig
from ray_canal.destination.failures import about_subscribers
from ray_canal.destination.log_pipeline import BeforeAppendTo, LogPipeline, nothing_noted
from ray_canal.destination.second_look import of_reading
from ray_canal.destination.state import DestinationState
from ray_canal.destination.supervisor import Backoff
from ray_canal.errors import (
    UNUSABLE_CURSOR,
    CanalError,
    ConnectionLost,
    InstanceNotRunning,
    LogRenamed,
)
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.message import Payload
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.reports import PlaceReport
from ray_canal.model.start import StartOptions
from ray_canal.model.subscription import StartWish
from ray_canal.model.timeline import LogFile

logger = logging.getLogger(__name__)


def own_config(config: InstanceConfig, **source: Any) -> InstanceConfig:
    """Return the destination's configuration for a dump next to its own one. That reads the server
    that the destination reads, and no other: what another one still has cannot go on in this log.
    `source`: what is to differ in that section."""
    return config.model_copy(update={"source": config.source.for_second_dump(**source)})


def source_start(start: StartWish) -> dict[str, Any]:
    """Return the keys of `[instance.source]` that start there."""
    if isinstance(start, EntryPosition):
        name, position = start.journal_name, start.position
        return {"start": "position", "journal_name": name, "position": position}
    if isinstance(start, datetime):
        return {"start": "timestamp", "timestamp": start.isoformat()}
    return {"start": "gtid", "gtid_set": start}


class CatchUp:
    """The stream of one subscriber. `pipeline` is None while it is not there: not yet asked for,
    connecting, or failed. `last_batch_id`: of the subscriber's newest batch."""

    def __init__(
        self, state: DestinationState, config: InstanceConfig, client_id: int, last_batch_id: int
    ) -> None:
        self._state = state
        self._config = config
        self._client_id = client_id
        self._last_batch_id = last_batch_id
        self._folder = state.folders.new()
        self._life: asyncio.Task[None] | None = None
        self.pipeline: LogPipeline | None = None
        self._opened: LogPipeline | None = None
        self._left = False
        self.finished = False
        self.failure: Exception | None = None
        self._backoff = Backoff(config.source.reconnect_max_s)
        self._try_at = 0.0
        self.note_replaced: BeforeAppendTo = nothing_noted

    @property
    def last_batch_id(self) -> int:
        """Return the id of the newest batch that the subscriber was given, here or before."""
        if self.pipeline is None:
            return self._last_batch_id
        return max(self._last_batch_id, self.pipeline.store.last_batch_id(self._client_id))

    async def open(self, cursor: LogPosition | None) -> LogPosition:
        """Stand at the source (None: where the configuration says). Return where the subscriber
        begins. Raises SourceError kinds."""
        state = self._state
        pipeline = self._opened = LogPipeline(
            self._config, self._folder, state.changed, None, state.runtime
        )
        records, schemas = state.records, state.records.schemas
        start, identity, new_records = await pipeline.open(
            [] if cursor is None else [cursor],
            await schemas.records(),
            options=StartOptions(newest=records.timeline.reached, joins=True),
        )
        self._refuse_other_log(identity)
        await schemas.append(new_records)
        if not start.same_log:
            await state.begin_timeline(identity)
        pipeline.begin(start.position, self._last_batch_id)
        if cursor is None:
            return LogPosition(identity, start.position)
        place = LogPosition(identity, start.cursors[0])
        # From now on it is a cursor of this log.
        await state.subscribers.move_cursor(self._client_id, cursor, place, start.leaves_out)
        return place

    def _refuse_other_log(self, identity: SourceIdentity) -> None:
        """Raises ConnectionLost: it is not the log that the destination reads. That passes, as the
        destination goes where its source is."""
        main = self._state.log.pipeline
        known = identity if main is None else main.identity
        if identity.server_uuid != known.server_uuid:
            raise ConnectionLost(
                f"{identity.address} is server {identity.server_uuid or 'unknown'} now; the "
                f"destination reads {known.server_uuid or 'another one'}"
            ).at(destination=self._config.destination)

    def fail(self, failure: Exception) -> None:
        """Serve it no more for now: it is tried again when it asks, not at once."""
        self.failure = failure
        self._try_at = time.monotonic() + self._backoff.next()

    def keep_running(self) -> None:
        """Start the catch-up's task, or start it again after a failure once the back-off is over;
        called at each of the subscriber's requests."""
        is_over = self._life is None or (self._life.done() and not self.finished)
        if is_over and time.monotonic() >= self._try_at:
            self._life = asyncio.create_task(self._live())

    async def _live(self) -> None:
        try:
            await self._generation()
            return
        except asyncio.CancelledError:
            raise
        except Exception as error:
            reading, self.finished = self.pipeline is not None, False
            failure = self._state.runtime.unwrap(error)
            failure = of_reading(failure) if reading else failure
            if isinstance(failure, UNUSABLE_CURSOR):
                failure = await self._told(failure)
            if str(failure) != str(self.failure):
                logger.warning("subscriber %d, catching up: %s", self._client_id, failure)
        if isinstance(failure, LogRenamed) and self.pipeline is not None:
            await self.pipeline.drained()
        if self.pipeline is not None:
            self._last_batch_id = self.pipeline.store.last_batch_id(self._client_id)
        await self._close_pipeline()
        self.fail(failure)
        await self._state.changed.wake()

    async def _told(self, failure: CanalError) -> CanalError:
        """Return what to tell of a cursor that the server cannot serve: ConnectionLost while the
        destination, which may go to another server, has none. That one may have what it lacks."""
        main, name = self._state.log.pipeline, self._config.destination
        if len(self._state.config.now.source.addresses) > 1:
            status = None if main is None or main.ended else await main.pump.source_status()
            if status is None or not status.connected:
                text = f"{failure}; it is looked at again where the destination stands then"
                return ConnectionLost(text).at(destination=name)
        return about_subscribers(failure, name, [self._client_id])

    async def _generation(self) -> None:
        subscriber = self._state.subscribers.get(self._client_id)
        cursor = subscriber.cursor
        if self._opened is None:
            cursor = await self.open(cursor)
        pipeline = self._opened
        assert pipeline is not None
        newest = self._state.subscribers.get(self._client_id)
        if newest.cursor not in (subscriber.cursor, cursor):
            raise InstanceNotRunning("the subscriber acked elsewhere while its dump was opened")
        subscriber = newest
        position = None if cursor is None else cursor.position
        terms = self._state.subscribers.terms(subscriber)
        pipeline.store.subscribe(self._client_id, terms, position)
        self.pipeline, self.failure = pipeline, None
        self._backoff.reset()
        await self._state.changed.wake()
        await pipeline.run(self._before, self._after)
        self.finished = True
        await self._state.changed.wake()
        await pipeline.until_lost()

    async def _before(self, chunk: LogChunk, payload: Payload) -> None:
        records = self._state.records
        await records.schemas.keep(chunk.info)
        head, epoch = chunk.info.head, self._state.guard.epoch
        file = LogFile(head.journal_name, head.created_s)
        await records.timeline.reach(records.cursors, epoch, file, is_own=False)
        if self.pipeline is not None:
            await self.note_replaced(self.pipeline, (self._client_id,), chunk, payload)

    def _after(self, chunk: LogChunk) -> None:
        assert self.pipeline is not None
        self._state.skipped.note(chunk.info)
        self._reserve_place(self.pipeline.store.last_position)

    def _reserve_place(self, reached: EntryPosition) -> None:
        """From where the destination's log begins, let that keep the subscriber's place."""
        main = self._state.log.pipeline
        if main is None or self._left:
            return
        if main.store.covers(reached) and not main.store.has_place(self._client_id):
            main.store.reserve_place(self._client_id)

    def places(self) -> dict[str, PlaceReport]:
        """Return what its log says of the subscriber, by client id."""
        return {} if self.pipeline is None else self.pipeline.store.stats()["subscribers"]

    def leave(self) -> None:
        """Hold no place in the destination's log any more; `close` follows."""
        self._left = True

    async def _close_pipeline(self) -> None:
        pipeline, self._opened, self.pipeline = self._opened, None, None
        if pipeline is not None:
            await pipeline.close()

    async def close(self) -> None:
        """End it. What it had handed out is void."""
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        await self._close_pipeline()
