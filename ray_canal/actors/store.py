"""The store actor: one per destination, the only owner of its log and its cursors.

Hard state: the cursors, in the MetaManager's backend, written under this owner's epoch. Soft state:
everything else. A *generation* is one life of the upstream: read the cursors, take a new epoch,
stand at the smallest cursor, fill a fresh log. The first generation starts in the constructor, so
the constructor is recovery; a failure of any stage starts the next one. Batches of an earlier
generation are void: their ack raises InstanceRestarted and they are delivered again. A returned
`ack` is durable.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from ray_canal.actors.answers import described, head_of, lag_seconds, plain, replaced, void
from ray_canal.actors.pump import Pump
from ray_canal.actors.purge_watch import watch_purge
from ray_canal.actors.rates import Rates
from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.errors import (
    DecodeError,
    Fenced,
    InstanceNotRunning,
    NotSubscribed,
)
from ray_canal.filter import TableFilter
from ray_canal.meta.manager import MetaManager, SubscriberMeta, open_backend
from ray_canal.meta.schema_store import open_schema_store
from ray_canal.parse.history import place_of
from ray_canal.parse.records import expired
from ray_canal.protocol.message import EMPTY_BATCH, MessageHead
from ray_canal.protocol.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.protocol.schema_record import SchemaRecord
from ray_canal.store.event_store import EventStore
from ray_canal.store.subscriber import Policy, Terms
from ray_canal.store.transaction_buffer import LogChunk

logger = logging.getLogger(__name__)

_BACKOFF_MIN_S = 0.2

_BATCH_IDS_PER_EPOCH = 1 << 32
"""Batch ids rise over restarts, too: an epoch's begin here, so that an old one is never taken for a
new one, even where a client cannot name the epoch."""

STARTING, RUNNING, RESTING, FINISHED, FAILED, STOPPED = (
    "starting",
    "running",
    "resting",
    "finished",
    "failed",
    "stopped",
)


class StoreActor:
    """Calls of clients (subscribe, get, ack, rollback) and the life of the instance."""

    # Ray awaits an async constructor of an async actor.
    async def __init__(  # type: ignore[misc]
        self, instance_json: str, meta_json: str, namespace: str
    ) -> None:
        self._config = InstanceConfig.model_validate_json(instance_json)
        self._destination = self._config.destination
        self._meta_config = MetaConfig.model_validate_json(meta_json)
        self._opened = False  # what can be called then only: _meta, _schemas
        self._quarantined: set[tuple[str, str]] = set()
        self._changed = asyncio.Condition()
        self._state = STARTING
        self._failure: Exception | None = None
        self._epoch = 0
        self._owner = uuid.uuid4().hex
        self._identity = SourceIdentity("")
        self._start: EntryPosition | None = None
        self._started_how = ""
        self._delivered: EntryPosition | None = None
        self._store: EventStore | None = None
        self._subscribers: dict[int, SubscriberMeta] = {}
        self._pump: Pump | None = None
        self._rates = Rates()
        self._last_event_time = 0
        self._generations = 0
        self._expected = self._deserted = False
        self._started_at = time.time()
        self._pumping: asyncio.Task[None] | None = None
        self._life = asyncio.create_task(self._live())
        self._watch = asyncio.create_task(watch_purge(self._destination, self._source_status))

    # --- the life of the instance -------------------------------------------------------------

    async def _live(self) -> None:
        pause_s = _BACKOFF_MIN_S
        while True:
            began = time.monotonic()
            try:
                self._open_backends()
                await self._rest()
                if await self._generation():
                    return
                continue
            except asyncio.CancelledError:
                raise
            except Exception as error:
                failure = plain(error)
                logger.warning("destination %s: %s", self._destination, failure)
                await self._set(FAILED, failure)
                if isinstance(failure, Fenced | DecodeError):
                    return  # another owner has it, or the same bytes would fail again
            finally:
                await self._close_pump()
            if time.monotonic() - began > 10 * pause_s:
                pause_s = _BACKOFF_MIN_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, self._config.source.reconnect_max_s)

    def _open_backends(self) -> None:
        """Once they could be. Raises ConfigError: damaged, refused; MetaUnavailable."""
        if self._opened:
            return
        self._meta = MetaManager(open_backend(self._meta_config))
        self._schemas = open_schema_store(self._meta_config, self._config.tsdb.path)
        held = self._schemas.quarantined(self._destination)
        self._quarantined = {table for chunk in held for table in chunk.tables}
        self._opened = True

    async def _rest(self) -> None:
        """Wait for a subscriber, where the configuration says so."""
        runs = self._config.runs
        if runs == "always" or (runs == "once_subscribed" and self._generations):
            return
        self._deserted = False
        self._subscribers = self._meta.load(self._destination)
        self._expected = bool(self._subscribers)
        if not self._expected:
            self._store = self._start = None
            await self._set(RESTING, None)
            async with self._changed:
                await self._changed.wait_for(lambda: self._expected)
        await self._set(STARTING, None)

    async def _generation(self) -> bool:
        """Recover and pump. Until the source stands, the log of the generation before goes on
        serving. Returns False when it ended because no subscriber is left, or is to be repeated."""
        known = self._meta.load(self._destination)
        cursors = {m.client_id: m.cursor for m in known.values() if m.cursor is not None}
        at = [*cursors.values()]
        if not at and self._start is not None:
            at = [LogPosition(self._identity, self._start)]
        pump = self._pump = Pump(self._config)
        records = self._schemas.records(self._destination)
        delivered = "" if self._delivered is None else self._delivered.gtid
        start, identity, new_records = await pump.open(at, records, delivered)
        self._delivered = None
        # Who has lost the destination to another owner does not take it back.
        self._epoch = self._meta.acquire(self._destination, self._owner, self._epoch or None)
        self._identity, self._start, self._started_how = identity, start.position, start.how
        self._keep_schemas([*records, *new_records], new_records)
        self._subscribers = self._meta.load(self._destination)
        for client_id, place in zip(cursors, start.cursors, strict=False):
            self._move(client_id, cursors[client_id], LogPosition(identity, place))
        if any(m.cursor and m.cursor.is_foreign(identity) for m in self._subscribers.values()):
            # Acked in the old log while the new one was opened: those cursors are to be moved, too.
            self._store = None
            await self._set(STARTING, None)
            return False
        ids_from = (self._epoch - 1) * _BATCH_IDS_PER_EPOCH
        store = EventStore(self._config.store, start.position, batch_ids_from=ids_from)
        for client_id, subscriber in self._subscribers.items():
            store.subscribe(client_id, self._terms(subscriber), _position(subscriber))
        self._store = store
        self._generations += 1
        await self._set(RUNNING, None)
        self._pumping = asyncio.create_task(pump.run(self._deliver, self._wait_for_room))
        try:
            await self._pumping
        except asyncio.CancelledError:
            if not self._deserted:
                raise
            return False
        finally:
            self._pumping.cancel()
            store.flush()
        await self._set(FINISHED, None)
        return True

    def _keep_schemas(self, records: Sequence[SchemaRecord], new: Sequence[SchemaRecord]) -> None:
        """Write new records; forget what no cursor needs any more."""
        assert self._start is not None
        self._schemas.append(self._destination, new)
        server = self._identity.server_uuid or self._identity.address
        hours = self._config.tsdb.snapshot_expire_hours
        place = place_of(self._start.journal_name, self._start.position)
        oldest = expired(records, server, time.time(), hours, place)
        if oldest is not None:
            self._schemas.forget_before(self._destination, oldest)

    async def _set(self, state: str, failure: Exception | None) -> None:
        self._state, self._failure = state, failure
        await self._wake()

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _close_pump(self) -> None:
        pump, self._pump = self._pump, None
        if pump is not None:
            await pump.close()

    async def _deliver(self, chunk: LogChunk, payload: Any) -> None:
        assert self._store is not None
        info = chunk.info
        # Durable before anything of the chunk is seen: a cursor behind it needs them.
        self._schemas.append(self._destination, info.records)
        self._schemas.quarantine(self._destination, info.quarantined)
        self._quarantined.update(table for held in info.quarantined for table in held.tables)
        self._store.put(chunk, payload)
        self._rates.add(info.size_bytes, int(info.entries["rows"].sum()), len(info.entries))
        if len(info.entries):
            self._last_event_time = int(info.entries["timestamp"][-1])
        await self._wake()

    async def _wait_for_room(self, chunks: int) -> None:
        store = self._store
        assert store is not None
        while not store.has_room(chunks * self._config.chunk_bytes):
            store.flush()
            await self._wake()
            async with self._changed:
                await self._changed.wait()

    # --- calls of clients ---------------------------------------------------------------------

    async def alive(self) -> None:
        """Answer: this process is not stopped, and its event loop turns."""

    async def wait_running(self, timeout: float) -> None:
        """Return when the instance stands at its source; raise what keeps it from there."""
        deadline = time.monotonic() + timeout
        while self._state in (STARTING, STOPPED):
            if not await self._wait_change(deadline):
                raise InstanceNotRunning(
                    f"the instance is still starting after {timeout:.0f} s; see `ray-canal status`"
                )
        if self._failure is not None:
            raise self._failure

    async def subscribe(
        self, client_id: int, filter_text: str, rollback: bool = True, holder: str = ""
    ) -> int:
        """Subscribe, or change the filter; `rollback` what is outstanding. Returns the epoch.

        From now on calls that name another `holder` are refused with SubscriberReplaced."""
        self._filter(filter_text)  # refused before anything is started for it
        if self._state == RESTING:
            self._expected = True
            await self._set(STARTING, None)
        store = await self._ready_store()
        known = self._subscribers.get(client_id)
        cursor = known.cursor if known is not None else None
        if cursor is None:
            cursor = LogPosition(self._identity, store.first_position)
        subscriber = SubscriberMeta(client_id, filter_text, cursor, holder=holder)
        if subscriber != known:
            self._save(subscriber)
        store.subscribe(client_id, self._terms(subscriber), cursor.position)
        if rollback:
            store.rollback(client_id)
        await self._wake()
        return self._epoch

    async def change_filter(self, client_id: int, filter_text: str) -> None:
        """Change a subscriber's filter from the next get on; what is outstanding stays so. Raises
        NotSubscribed."""
        self._filter(filter_text)
        store = await self._ready_store()
        if client_id not in self._subscribers:
            raise NotSubscribed(f"clientId:{client_id} should subscribe first")
        known = dataclasses.replace(self._subscribers[client_id], filter=filter_text)
        self._save(known)
        store.subscribe(client_id, self._terms(known), None)
        await self._wake()

    async def unsubscribe(self, client_id: int) -> None:
        """Forget the subscriber and its cursor."""
        store = await self._ready_store()
        store.unsubscribe(client_id)
        with self._owning():
            self._meta.remove(self._destination, self._epoch, client_id)
        self._subscribers.pop(client_id, None)
        if not self._subscribers and self._pumping and self._config.runs == "while_subscribed":
            self._deserted = True
            self._pumping.cancel()
        await self._wake()

    async def get_without_ack(
        self, client_id: int, batch_size: int, timeout: float | None, holder: str = ""
    ) -> MessageHead:
        """See Connector.get_without_ack."""
        return await self._get(client_id, batch_size, timeout, holder, full=True)

    async def get_soon(
        self, client_id: int, batch_size: int, timeout: float, holder: str = ""
    ) -> MessageHead:
        """A batch as soon as there is anything for this subscriber, waiting up to `timeout`."""
        return await self._get(client_id, batch_size, timeout, holder, full=False)

    async def get(
        self, client_id: int, batch_size: int, timeout: float | None, holder: str = ""
    ) -> MessageHead:
        """See Connector.get."""
        (await self._ready_store()).refuse_unacked(client_id)
        head = await self._get(client_id, batch_size, timeout, holder, full=True)
        if head.id != EMPTY_BATCH:
            await self.ack(client_id, head.id, head.epoch, holder)
        return head

    async def _get(
        self, client_id: int, batch_size: int, timeout: float | None, holder: str, full: bool
    ) -> MessageHead:
        store = await self._ready_store()
        wanted = batch_size if full else 1
        if timeout is not None:
            deadline = time.monotonic() + timeout if timeout > 0 else float("inf")
            while not store.ready(client_id, wanted, count_all=not full):
                if self._state in (FINISHED, STOPPED) or self._has_given_up():
                    break
                if not await self._wait_change(deadline):
                    break
                store = await self._ready_store()
        self._refuse_replaced(client_id, holder)
        with self._owning():  # a successor may have moved the cursors since
            self._meta.refuse_fenced(self._destination, self._epoch)
        batch = store.get(client_id, batch_size)
        if batch is not None:
            self._delivered = max(self._delivered or batch.range.ack, batch.range.ack)
            return head_of(batch, self._epoch, self._config)
        if self._failure is not None and self._has_given_up():
            raise self._failure
        return MessageHead(EMPTY_BATCH, self._epoch, finished=self._state == FINISHED)

    async def ack(self, client_id: int, batch_id: int, epoch: int | None, holder: str = "") -> None:
        """See Connector.ack. The cursor is durable when this returns. `epoch` None: the caller
        cannot know (Canal's protocol has none), so this one's."""
        if batch_id == EMPTY_BATCH:
            return
        store = await self._ready_store()
        self._refuse_void(batch_id, epoch)
        self._refuse_replaced(client_id, holder)
        cursor = store.cursor_after(client_id, batch_id)
        known = self._subscribers[client_id]
        # The durable cursor first: if that write fails, the batch stays outstanding.
        if cursor is not None:
            self._save(dataclasses.replace(known, cursor=LogPosition(self._identity, cursor)))
        store.ack(client_id, batch_id)
        await self._wake()

    async def rollback(
        self, client_id: int, batch_id: int | None, epoch: int | None, holder: str = ""
    ) -> None:
        """See Connector.rollback."""
        store = await self._ready_store()
        self._refuse_replaced(client_id, holder)
        if batch_id is not None:
            self._refuse_void(batch_id, epoch)
        store.rollback(client_id, batch_id)
        await self._wake()

    async def list_batch_ids(self, client_id: int) -> list[int]:
        """Outstanding batches of a subscriber, smallest first."""
        ids: list[int] = (await self._ready_store()).batch_ids(client_id)
        return ids

    async def status(self) -> dict[str, Any]:
        """State, positions, lag, rates, ring fill, subscribers: plain values, no secrets."""
        source = await self._source_status()
        stats = {} if self._store is None else self._store.stats()
        return {
            "destination": self._destination,
            "state": self._state,
            "error": None if self._failure is None else described(self._failure),
            "source": self._config.source.address or ", ".join(self._config.source.files),
            "address": self._identity.address,
            "server": self._identity.server_uuid,
            "start": f"{self._start}: {self._started_how}" if self._start is not None else None,
            "epoch": self._epoch,
            "generations": self._generations,
            "uptime_s": time.time() - self._started_at,
            "decoders": None if self._pump is None else self._pump.decoders,
            "fetched": source,
            "lag_bytes": None if source is None else source.lag_bytes,
            "purge": None if source is None else source.purge,
            "lag_seconds": lag_seconds(source, self._last_event_time),
            **self._rates.per_second(),
            "quarantined": [f"{schema}.{table}" for schema, table in sorted(self._quarantined)],
            "store": stats,
        }

    async def stop(self) -> None:
        """End the upstream and release the meta backend. Nothing acked is lost."""
        self._life.cancel()
        self._watch.cancel()
        await asyncio.gather(self._life, self._watch, return_exceptions=True)
        await self._set(STOPPED, InstanceNotRunning("the instance was stopped"))
        if self._opened:
            self._meta.close()
            self._schemas.close()

    # --- small parts --------------------------------------------------------------------------

    async def _ready_store(self) -> EventStore:
        """The log, once the first generation has one."""
        while self._store is None:
            if self._failure is not None:
                raise self._failure
            if self._state == RESTING:
                raise NotSubscribed("the instance rests: no subscriber, should subscribe first")
            async with self._changed:
                await self._changed.wait()
        if self._state == STOPPED:
            raise InstanceNotRunning("the instance was stopped, should start first").at(
                destination=self._destination
            )
        return self._store

    async def _wait_change(self, deadline: float) -> bool:
        """Wait for any change; False when the deadline (monotonic seconds) came first."""
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        async with self._changed:
            try:
                await asyncio.wait_for(
                    self._changed.wait(), None if left_s == float("inf") else left_s
                )
            except asyncio.TimeoutError:
                return False
        return True

    def _save(self, subscriber: SubscriberMeta) -> None:
        with self._owning():
            self._meta.save(self._destination, self._epoch, subscriber)
        self._subscribers[subscriber.client_id] = subscriber

    @contextmanager
    def _owning(self) -> Iterator[None]:
        """Who finds out here that another owner has taken over gives up."""
        try:
            yield
        except Fenced as error:
            self._failure, self._state = error, FAILED
            self._life.cancel()
            raise

    def _has_given_up(self) -> bool:
        """It has failed, and trying again cannot help; else subscribers wait for the recovery."""
        return self._state == FAILED and not getattr(self._failure, "retryable", False)

    def _refuse_replaced(self, client_id: int, holder: str) -> None:
        known = self._subscribers.get(client_id)
        if holder and known is not None and known.holder != holder:
            raise replaced(client_id).at(destination=self._destination)

    def _refuse_void(self, batch_id: int, epoch: int | None) -> None:
        if epoch is not None and epoch != self._epoch:
            raise void(batch_id).at(destination=self._destination)

    def _move(self, client_id: int, was: LogPosition, now: LogPosition) -> None:
        """Put a cursor where it lies in the log that is read now, if it lay elsewhere."""
        subscriber = self._subscribers.get(client_id)
        moved = now.position != was.position or was.is_foreign(now.identity)
        if moved and subscriber is not None and subscriber.cursor == was:
            self._save(dataclasses.replace(subscriber, cursor=now))

    async def _source_status(self) -> Any:
        cursors = [m.cursor.position for m in self._subscribers.values() if m.cursor is not None]
        oldest = min(cursors, key=lambda cursor: cursor.key()) if cursors else self._start
        return None if self._pump is None else await self._pump.source_status(oldest)

    def _terms(self, subscriber: SubscriberMeta) -> Terms:
        policy = subscriber.policy or "block"
        return Terms(self._filter(subscriber.filter), cast(Policy, policy), subscriber.transactions)

    def _filter(self, subscriber_filter: str) -> TableFilter:
        """The subscriber's filter on top of the instance's black list."""
        instance = self._config.filter
        return TableFilter(subscriber_filter, instance.black_tables, within=instance.tables)


def _position(subscriber: SubscriberMeta) -> EntryPosition | None:
    return None if subscriber.cursor is None else subscriber.cursor.position
