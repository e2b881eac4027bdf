"""The catch-up: a replication stream of one subscriber's own, until it is back in the log.

It is so because it fell behind (policy `detach`), or because it starts at a place that the log does
not have. Its upstream is a whole one; when that has reached what the destination's log begins with,
the log keeps its place there, and the subscriber changes over as soon as it has acked up to it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from ray_canal.config import InstanceConfig
from ray_canal.destination.failures import about_subscribers, described
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.ports import Runtime
from ray_canal.destination.schema_records import SchemaRecords
from ray_canal.destination.second_look import of_reading
from ray_canal.destination.supervisor import Backoff
from ray_canal.destination.wakeup import Wakeup
from ray_canal.errors import (
    UNUSABLE_CURSOR,
    CanalError,
    ConfigError,
    ConnectionLost,
    InstanceNotRunning,
    LogRenamed,
    NotSubscribed,
)
from ray_canal.log.subscriber import Terms
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.meta.manager import SubscriberMeta
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.subscription import Start

logger = logging.getLogger(__name__)



class Home(Protocol):
    """What it needs of the destination's store."""

    def subscriber(self, client_id: int) -> SubscriberMeta: ...

    def terms(self, subscriber: SubscriberMeta) -> Terms: ...

    async def timeline_of(self, identity: SourceIdentity, same_log: bool) -> int: ...

    async def move_cursor(self, client_id: int, was: LogPosition, now: LogPosition) -> None: ...


def own_config(config: InstanceConfig, **source: Any) -> InstanceConfig:
    """The destination's, for a second replica next to its own one. It reads the server that the
    destination reads, and no other: what another one still has cannot go on in this log."""
    changed = {"server_id": 0, "semi_sync": False, "standby": (), "detect": False, **source}
    return config.model_copy(update={"source": config.source.model_copy(update=changed)})


def source_start(start: Start) -> dict[str, Any]:
    """The source's configuration that starts there."""
    if isinstance(start, EntryPosition):
        name, position = start.journal_name, start.position
        return {"start": "position", "journal_name": name, "position": position}
    if isinstance(start, datetime):
        return {"start": "timestamp", "timestamp": start.isoformat()}
    return {"start": "gtid", "gtid_set": start}


class CatchUp:
    """`pipeline` is None while it is not there: not yet asked for, connecting, or failed."""

    def __init__(
        self,
        config: InstanceConfig,
        folder: str,
        changed: Wakeup,
        home: Home,
        schemas: SchemaRecords,
        reached: Callable[[int, EntryPosition], None],
        refuse: Callable[[SourceIdentity], None],
        client_id: int,
        last_batch_id: int,
        runtime: Runtime,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._folder = folder
        self._changed = changed
        self._home = home
        self._schemas = schemas
        self._reached = reached
        self._refuse = refuse
        self._client_id = client_id
        self._last_batch_id = last_batch_id
        self._life: asyncio.Task[None] | None = None
        self.pipeline: LogPipeline | None = None
        self._opened: LogPipeline | None = None
        self.finished = False
        self.failure: Exception | None = None
        self._backoff = Backoff(config.source.reconnect_max_s)
        self._try_at = 0.0

    async def open(self, cursor: LogPosition | None) -> LogPosition:
        """Stand at the source (None: where the configuration says). Returns where the subscriber
        begins. Raises SourceError kinds."""
        pipeline = self._opened = LogPipeline(
            self._config, self._folder, self._changed, None, self._runtime
        )
        cursors = [] if cursor is None else [cursor]
        start, identity, new_records = await pipeline.open(cursors, await self._schemas.records())
        self._refuse(identity)
        await self._schemas.append(new_records)
        timeline = await self._home.timeline_of(identity, start.same_log or cursor is None)
        pipeline.begin(start.position, self._last_batch_id, timeline)
        if cursor is None:
            return LogPosition(identity, start.position)
        place = LogPosition(identity, start.cursors[0])
        await self._home.move_cursor(self._client_id, cursor, place)  # it is of this log now
        return place

    def fail(self, failure: Exception) -> None:
        """It cannot be served, for now: it is tried again when it asks, not at once."""
        self.failure = failure
        self._try_at = time.monotonic() + self._backoff.next()

    def run(self) -> None:
        """Begin, or go on, to read for the subscriber. It is called each time that this asks."""
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
            failure = self._runtime.unwrap(error)
            failure = of_reading(failure) if reading else failure
            if isinstance(failure, UNUSABLE_CURSOR):
                name = self._config.destination
                failure = about_subscribers(failure, name, [self._client_id])
            if str(failure) != str(self.failure):
                logger.warning("subscriber %d by its own dump: %s", self._client_id, failure)
        if isinstance(failure, LogRenamed) and self.pipeline is not None:
            await self.pipeline.drained()
        if self.pipeline is not None:
            self._last_batch_id = self.pipeline.store.last_batch_id(self._client_id)
        await self._close_pipeline()
        self.fail(failure)
        await self._changed.wake()

    async def _generation(self) -> None:
        subscriber = self._home.subscriber(self._client_id)
        cursor = subscriber.cursor
        if self._opened is None:
            cursor = await self.open(cursor)
        pipeline = self._opened
        assert pipeline is not None
        newest = self._home.subscriber(self._client_id)
        if newest.cursor is not None and newest.cursor != subscriber.cursor:
            if newest.cursor.is_foreign(pipeline.identity):
                raise InstanceNotRunning("the subscriber acked elsewhere while its dump was opened")
            cursor = newest.cursor  # an ack was being written
        subscriber = newest
        position = None if cursor is None else cursor.position
        pipeline.store.subscribe(self._client_id, self._home.terms(subscriber), position)
        self.pipeline, self.failure = pipeline, None
        self._backoff.reset()
        await self._changed.wake()
        await pipeline.run(self._deliver)
        self.finished = True
        await self._changed.wake()
        await pipeline.until_lost()

    async def _deliver(self, chunk: LogChunk, payload: Any) -> None:
        assert self.pipeline is not None
        await self._schemas.keep(chunk.info)
        self.pipeline.store.put(chunk, payload)
        self._reached(self._client_id, self.pipeline.store.last_position)
        await self._changed.wake()

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


class CatchUps:
    """The subscribers of a destination that go by their own dump, now. `main`: the destination's
    pipeline."""

    def __init__(
        self,
        config: InstanceConfig,
        new_folder: Callable[[], str],
        changed: Wakeup,
        home: Home,
        schemas: SchemaRecords,
        runtime: Runtime,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._new_folder = new_folder
        self._changed = changed
        self._home = home
        self._schemas = schemas
        self._catch_ups: dict[int, CatchUp] = {}
        self._unserved: dict[int, CanalError] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.main: LogPipeline | None = None

    def use(self, config: InstanceConfig) -> None:
        """For those that begin from now on."""
        self._config = config

    def use_timeline(self, number: int) -> None:
        """In all messages from now on."""
        pipelines = [self.main, *(catch_up.pipeline for catch_up in self._catch_ups.values())]
        for pipeline in pipelines:
            if pipeline is not None:
                pipeline.timeline = number

    def get(self, client_id: int) -> CatchUp | None:
        return self._catch_ups.get(client_id)

    def detach(self, client_ids: list[int]) -> None:
        """The log goes on without them; those that were about to come back do not."""
        assert self.main is not None
        store = self.main.store
        for client_id in client_ids:
            if client_id in self._catch_ups:
                store.release_place(client_id)
                continue
            self.send(client_id, "it is a whole log behind")

    def send(
        self,
        client_id: int,
        why: str,
        failure: CanalError | None = None,
        last_batch_id: int | None = None,
    ) -> None:
        """Let a subscriber go by its own dump from its cursor on, once it asks. `failure`: why it
        cannot yet. `last_batch_id`: of its newest batch, where the log does not know it."""
        assert self.main is not None
        name = self._config.destination
        how = "goes by a dump of its own" if failure is None else "cannot be served"
        logger.warning("destination %s: subscriber %d %s: %s", name, client_id, how, why)
        last_id = self.main.store.last_batch_id(client_id)
        catch_up = self.new(client_id, last_id if last_batch_id is None else last_batch_id)
        self._unserved.pop(client_id, None)
        if failure is not None:
            catch_up.fail(failure)
        self._catch_ups[client_id] = catch_up
        self.main.store.send_away(client_id)

    @property
    def unserved(self) -> dict[int, CanalError]:
        """Whose cursors cannot be served, as far as is known, and why."""
        now = {
            client_id: catch_up.failure
            for client_id, catch_up in self._catch_ups.items()
            if isinstance(catch_up.failure, UNUSABLE_CURSOR)
        }
        return {**self._unserved, **now}

    def set_apart(self, failures: Mapping[int, CanalError]) -> None:
        """These cursors cannot be served: the next log begins without them."""
        self._unserved.update(failures)

    def new(self, client_id: int, last_batch_id: int, **source: Any) -> CatchUp:
        """`source`: what its upstream's configuration has other than the destination's."""
        # The server that the destination reads now, where it may read one of several.
        config = self._config if self.main is None else self._config.at(self.main.identity.address)
        return CatchUp(
            own_config(config, **source),
            self._new_folder(),
            self._changed,
            self._home,
            self._schemas,
            self._has_reached,
            self._refuse_other,
            client_id,
            last_batch_id,
            self._runtime,
        )

    async def begin(
        self, client_id: int, last_batch_id: int, cursor: LogPosition | None = None, **source: Any
    ) -> LogPosition:
        """A new subscriber, where the log is not: at a cursor, or where `source` says. Returns its
        cursor. Raises SourceError kinds."""
        if self._config.source.files and source.get("start") == "gtid":
            raise ConfigError("binlog files have no start by GTID set; give a position")
        catch_up = self.new(client_id, last_batch_id, **source)
        try:
            cursor = await catch_up.open(cursor)
        except Exception as error:
            await catch_up.close()
            raise self._runtime.unwrap(error) from None
        self.close(client_id)
        self._catch_ups[client_id] = catch_up
        if self.main is not None:
            self.main.store.send_away(client_id)
        return cursor

    def _has_reached(self, client_id: int, position: EntryPosition) -> None:
        """From where the log begins, it is kept for who comes back to it."""
        if self.main is not None and client_id in self._catch_ups:
            store = self.main.store
            if store.covers(position) and not store.has_place(client_id):
                store.hold_place(client_id)

    def _refuse_other(self, identity: SourceIdentity) -> None:
        """Raises ConnectionLost: it is not the log that the destination reads. That passes, as the
        destination goes where its source is."""
        known = identity if self.main is None else self.main.identity
        if identity.server_uuid != known.server_uuid:
            raise ConnectionLost(
                f"{identity.address} is server {identity.server_uuid or 'unknown'} now; the "
                f"destination reads {known.server_uuid or 'another one'}"
            ).at(destination=self._config.destination)

    def come_back(self, client_id: int) -> None:
        """Into the log, if it has all that the subscriber is still to get."""
        catch_up = self._catch_ups.get(client_id)
        if catch_up is None or catch_up.pipeline is None or self.main is None:
            return
        terms = self._home.terms(self._home.subscriber(client_id))
        if self.main.store.take_over(catch_up.pipeline.store, client_id, terms):
            self.close(client_id)

    def close(self, client_id: int) -> None:
        self._unserved.pop(client_id, None)
        catch_up = self._catch_ups.pop(client_id, None)
        if catch_up is not None:
            task = asyncio.create_task(catch_up.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close_all(self) -> None:
        unserved = self.unserved
        for client_id in list(self._catch_ups):
            self.close(client_id)
        self._unserved = unserved
        await asyncio.gather(*self._closing)

    async def check(self, references: Sequence[Any]) -> None:
        """See Store.check_chunks."""
        for catch_up in list(self._catch_ups.values()):
            if catch_up.pipeline is not None:
                await catch_up.pipeline.check(references)

    def places(self) -> dict[str, dict[str, Any]]:
        """For status, as EventStore.stats has subscribers."""
        found = {}
        for client_id, catch_up in self._catch_ups.items():
            try:
                subscriber = self._home.subscriber(client_id)
            except NotSubscribed:  # it is being removed
                continue
            terms, cursor = self._home.terms(subscriber), subscriber.cursor
            pipeline = catch_up.pipeline
            own = {} if pipeline is None else pipeline.store.stats()["subscribers"]
            found[str(client_id)] = {
                "filter": subscriber.filter,
                "policy": terms.policy,
                "transactions": terms.transactions,
                "acked": None if cursor is None else str(cursor.position),
                "unacked_batches": 0,
                "entries_behind": None,
                "bytes_behind": None,
                **own.get(str(client_id), {}),
                "detached": True,
                "failure": None if catch_up.failure is None else described(catch_up.failure),
            }
        return found
