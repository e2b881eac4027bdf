"""The life of a destination: its cursors, its generations, its log.

Hard state: the cursors, in the MetaManager's backend, written under this owner's epoch. Soft state:
everything else. A *generation* is one life of the upstream: read the cursors, take a new epoch,
stand at the smallest cursor, fill a fresh log. The first generation starts in the constructor, so
the constructor is recovery; a failure of any stage starts the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
import uuid
import weakref
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar, cast

from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.destination.catch_up import CatchUps
from ray_canal.destination.failures import about_subscribers, not_subscribed_error
from ray_canal.destination.handed_out import HandedOut
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.ownership import Claim
from ray_canal.destination.placement import Placement, oldest_cursor, oldest_in, waited_for
from ray_canal.destination.ports import Runtime
from ray_canal.destination.publish import publish_metrics
from ray_canal.destination.purge_watch import watch_purge
from ray_canal.destination.rates import Rates
from ray_canal.destination.records import DestinationRecords
from ray_canal.destination.second_look import SecondLook
from ray_canal.destination.skipped import SkippedEvents
from ray_canal.destination.source_contact import SourceContact
from ray_canal.destination.stages import Stages
from ray_canal.destination.supervisor import (
    FAILED,
    FINISHED,
    RESTING,
    RUNNING,
    STARTING,
    STOPPED,
    Supervisor,
)
from ray_canal.destination.wakeup import Wakeup
from ray_canal.errors import (
    UNUSABLE_CURSOR,
    CanalError,
    CursorNotInLog,
    DecodeError,
    EpochLost,
    Fenced,
    InstanceNotRunning,
    LogRenamed,
    MetaDamaged,
    NotSubscribed,
)
from ray_canal.log import spill_folder
from ray_canal.log.subscriber import Terms
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.meta.manager import SubscriberMeta
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.schema_record import SchemaRecord
from ray_canal.model.start import Start, StartOptions
from ray_canal.model.subscription import Policy

logger = logging.getLogger(__name__)
T = TypeVar("T")

_ENDING_S = 30.0



class Instance:
    """The life of one destination. `self._changed` wakes everything that waits for a change."""

    def __init__(
        self,
        config: InstanceConfig,
        meta: MetaConfig,
        runtime: Runtime,
        claim: Claim | None = None,
    ) -> None:
        """Inside a running event loop. `claim`: what it knows of its ownership from its life
        before."""
        self._config = config
        self._destination = config.destination
        self._runtime = runtime
        self._folder = spill_folder.root_of(self._config, meta) / self._destination
        self._own_tables = meta.own_tables
        self._records = DestinationRecords(config, meta, claim or Claim())
        self._changing = asyncio.Lock()
        self._changed = Wakeup()
        self._supervisor = Supervisor(self._changed, config.source.reconnect_max_s)
        self._epoch = 0
        self._turns: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
        self._identity = SourceIdentity("")
        self._start: EntryPosition | None = None
        self._started_how = ""
        self._delivered: EntryPosition | None = None
        self._pipeline: LogPipeline | None = None
        self._opening: LogPipeline | None = None
        self._subscribers: dict[int, SubscriberMeta] = {}
        self._arrivals: dict[int, int] = {}  # of connections of Canal's protocol, by client id
        self._catch_ups = CatchUps(
            self._config, self._new_folder, self._changed, self, self._records.schemas, runtime
        )
        self._handed_out = HandedOut()
        self._rates = Rates()
        self._last_event_time = 0
        self._contact = SourceContact()
        self._second_look = SecondLook(self._config.source)
        self._gets = Stages()
        self._generations = self._errors = self._held_aside = 0
        self._skipped = SkippedEvents(self._destination)
        self._expected = self._deserted = False
        self._hopeless: dict[int, CanalError] = {}  # whose cursors keep it from its start
        self._started_at = time.time()
        self._pumping: asyncio.Task[None] | None = None
        self._life = asyncio.create_task(self._live())
        watches = watch_purge(self._destination, self._source_status)
        beats = watches, self._publish(), self._sweep_disk()
        self._beats = [asyncio.create_task(each) for each in beats]

    # --- the life of the instance -------------------------------------------------------------

    async def _live(self) -> None:
        await self._supervisor.run(self._attempt, self._failed, self._end_upstream)

    async def _attempt(self) -> bool:
        await self._open_backends()
        await self._rest()
        return await self._generation()

    async def _failed(self, error: Exception) -> bool:
        """Note why a generation ended. Return whether no other one may begin."""
        reading = self._supervisor.state == RUNNING
        failure = self._second_look.at(self._runtime.unwrap(error), reading=reading)
        logger.warning("destination %s: %s", self._destination, failure)
        self._errors += 1
        await self._supervisor.set(FAILED, failure)
        if isinstance(failure, LogRenamed) and self._pipeline is not None:
            await self._pipeline.drained()
        # Another owner has it, or the same bytes would fail again.
        return isinstance(failure, Fenced | DecodeError)

    async def _open_backends(self) -> None:
        """Raises ConfigError: damaged, refused; MetaUnavailable."""
        if await self._records.open():
            self._use_filter()

    def _use_filter(self) -> None:
        """For the pipelines from the next one on."""
        shown = self._records.filter.now.hiding(self._own_tables)
        self._config = self._config.model_copy(update={"filter": shown})
        self._catch_ups.use(self._config)

    async def _rest(self) -> None:
        """Wait for a subscriber, where the configuration says so."""
        runs = self._config.runs
        if runs == "always" or (runs == "once_subscribed" and self._generations):
            return
        self._deserted = self._expected = False
        self._subscribers = await self._records.cursors.load()
        self._expected |= bool(self._subscribers)
        if not self._expected:
            await self._close_pipelines()
            self._start = None
            await self._supervisor.set(RESTING, None)
            while not self._expected:
                await self._changed.wait()
        await self._supervisor.set(STARTING, None)

    async def _generation(self) -> bool:
        """Recover and pump. Until the source stands, the log of the generation before goes on
        serving. Returns False when it ended because no subscriber is left, or is to be repeated."""
        known = await self._records.cursors.load()
        expired = {client_id for client_id, one in known.items() if one.expired}
        placement = Placement(known, {*self._catch_ups.unserved, *expired})
        pipeline = self._opening = LogPipeline(
            self._config, self._new_folder(), self._changed, self._catch_ups.detach, self._runtime
        )
        records = await self._records.schemas.records()
        start, identity, new_records = await self._open(pipeline, placement, records)
        self._delivered = None
        # Who has lost the destination to another owner does not take it back.
        self._epoch = await self._records.cursors.acquire()
        if self._supervisor.failure is not None:
            await self._supervisor.set(STARTING, None)
        # From here on nobody subscribes or acks: what was handed out is void.
        await self._close_pipelines()
        await self._records.cursors.run(self._records.filter.forget_old, self._epoch)
        enter = self._records.timeline.enter
        await self._records.cursors.run(enter, self._epoch, identity, start.same_log)
        batch_ids_from = await self._records.cursors.run(self._records.batch_ids.begin, self._epoch)
        self._identity, self._start, self._started_how = identity, start.position, start.how
        self._subscribers = await self._records.cursors.load()
        # Before a cursor moves: from its new place on, nobody would read the catalog again.
        await self._records.schemas.append(new_records)
        for client_id, cursor, place in placement.placed(start):
            await self.move_cursor(client_id, cursor, LogPosition(identity, place))
        oldest = oldest_in(self._subscribers, identity, start.position)
        await self._records.schemas.keep_from(oldest, identity, [*records, *new_records])
        if placement.is_outdated(self._subscribers, start, identity):
            # Subscribed or acked in the old log while the new one was opened: once more, with all.
            await self._supervisor.set(STARTING, None)
            return False
        if placement.cursors or not self._keeps_start:
            await self._records.cursors.run(self._records.start.forget, self._epoch)
        else:
            began = LogPosition(identity, start.position)
            await self._records.cursors.run(self._records.start.save, self._epoch, began)
        pipeline.begin(start.position, batch_ids_from, self._records.timeline.number)
        self._pipeline = self._catch_ups.main = pipeline
        self._let_in(pipeline, placement, start)
        self._opening = None
        self._generations += 1
        await self._supervisor.set(RUNNING, None)
        self._pumping = asyncio.create_task(pipeline.run(self._deliver))
        try:
            await self._pumping
        except asyncio.CancelledError:
            if not self._deserted:
                raise
            return False
        finally:
            self._pumping.cancel()
        await self._supervisor.set(FINISHED, None)
        await pipeline.until_lost()
        return True

    async def _open(
        self, pipeline: LogPipeline, placement: Placement, records: Sequence[SchemaRecord]
    ) -> tuple[Start, SourceIdentity, tuple[SchemaRecord, ...]]:
        """Stand at the source. Raises SourceError kinds: of a cursor, if no other can be served."""
        options = StartOptions(
            partial=True,
            reach_bytes=self._config.store.capacity_bytes,
            unattended=None if placement.cursors else await self._began(),
            newest=await self._records.cursors.run(self._records.timeline.newest),
        )
        delivered = "" if self._delivered is None else self._delivered.gtid
        cursors = [*placement.cursors.values()]
        self._hopeless = {}
        try:
            return await pipeline.open(cursors, records, delivered, options)
        except Exception as error:
            failure = self._runtime.unwrap(error)
            if isinstance(failure, UNUSABLE_CURSOR) and cursors:
                told = about_subscribers(failure, self._destination, [*placement.cursors])
                self._hopeless = dict.fromkeys(placement.cursors, told)
                raise told from error
            raise

    async def _began(self) -> LogPosition | None:
        """Where the log began, in this life or the last one: what it has from there on is for
        whoever subscribes first. None: it never did."""
        if self._pipeline is not None:
            return LogPosition(self._identity, self._pipeline.store.first_position)
        if self._start is not None:
            return LogPosition(self._identity, self._start)
        if not self._keeps_start:
            return None
        return await self._records.cursors.run(self._records.start.load)

    @property
    def _keeps_start(self) -> bool:
        """Whether the log is filled for nobody; else it begins with the first subscriber."""
        return self._config.runs == "always"

    def _let_in(self, pipeline: LogPipeline, placement: Placement, start: Start) -> None:
        """Everybody to where it is served: in the log, or by a stream of its own."""
        left_out, unserved = placement.left_out(start), self._catch_ups.unserved
        for client_id, subscriber in self._subscribers.items():
            left, failure = left_out.get(client_id), unserved.get(client_id)
            if left is not None and left.failure is not None:
                failure = about_subscribers(left.failure, self._destination, [client_id])
            if failure is not None:
                self._catch_ups.send(client_id, str(failure), failure)
            elif left is not None:
                self._catch_ups.send(client_id, left.why)
            elif client_id in placement.apart:
                self._catch_ups.send(client_id, "it made no call for too long")
            else:
                try:
                    terms = self.terms(subscriber)
                    pipeline.store.subscribe(client_id, terms, subscriber.position)
                except CursorNotInLog as error:
                    self._catch_ups.send(client_id, str(error))

    def _new_folder(self) -> str:
        return str(self._folder / uuid.uuid4().hex)

    async def _end_upstream(self) -> None:
        """What stands in the log can still be had."""
        opening, self._opening = self._opening, None
        if opening is not None:
            await opening.close()
        if self._pipeline is not None:
            await self._pipeline.stop()

    async def _close_pipelines(self) -> None:
        """What was handed out is void."""
        pipeline, self._pipeline = self._pipeline, None
        self._catch_ups.main = None
        await self._catch_ups.close_all()
        if pipeline is not None:
            await pipeline.close()

    async def _deliver(self, chunk: LogChunk, payload: Any) -> None:
        pipeline, info = self._pipeline, chunk.info
        assert pipeline is not None
        schemas = self._records.schemas
        await schemas.keep(info, lambda: oldest_cursor(self._subscribers, self._start))
        await self._records.timeline.reach(self._records.cursors, self._epoch, info.head)
        pipeline.store.put(chunk, payload)
        self._held_aside += len(info.quarantined)
        self._skipped.note(info)
        self._rates.add(info.size_bytes, int(info.entries["rows"].sum()), len(info.entries))
        if len(info.entries):
            self._last_event_time = int(info.entries["timestamp"][-1])
        await self._changed.wake()

    # --- what catch_up.py needs -----------------------------------------------------------------

    def subscriber(self, client_id: int) -> SubscriberMeta:
        """Raises NotSubscribed."""
        if client_id not in self._subscribers:
            raise not_subscribed_error(client_id)
        return self._subscribers[client_id]

    def terms(self, subscriber: SubscriberMeta) -> Terms:
        """What the subscriber asked for, or the destination has. No log waits for a paused one."""
        store, whole = self._config.store, subscriber.transactions
        policy = "detach" if subscriber.paused else subscriber.policy or store.policy
        return Terms(
            self._config.filter.of_subscriber(subscriber.filter),
            cast(Policy, policy),
            store.transactions if whole is None else whole,
        )

    async def timeline_of(self, identity: SourceIdentity, same_log: bool) -> int:
        """The timeline of a log that was opened for one subscriber. A new one is everybody's from
        the next message on: who comes back finds no lower one. Raises Fenced."""
        if not same_log:
            enter = self._records.timeline.enter
            await self._owned(self._records.cursors.keep(self._epoch, enter, identity, same_log))
            self._catch_ups.use_timeline(self._records.timeline.number)
        return self._records.timeline.number

    async def wait_running(self, timeout: float) -> None:
        """Return when the instance stands at its source; raise what keeps it from there."""
        deadline = time.monotonic() + timeout
        while self._supervisor.state in (STARTING, STOPPED):
            if not await self._changed.wait(deadline):
                raise InstanceNotRunning(
                    f"the instance is still starting after {timeout:.0f} s; see `ray-canal status`"
                )
        if self._supervisor.failure is not None:
            raise self._supervisor.failure

    async def stop(self) -> None:
        """End the upstream and release the meta backend. Nothing acked is lost."""
        self._life.cancel()
        for beat in self._beats:
            beat.cancel()
        await asyncio.gather(self._life, *self._beats, return_exceptions=True)
        await self._close_pipelines()
        if self._epoch:
            with contextlib.suppress(CanalError):  # who starts it again says where
                await self._records.cursors.run(self._records.start.forget, self._epoch)
        await self._supervisor.set(STOPPED, InstanceNotRunning("the instance was stopped"))
        await self._records.close()

    # --- for the calls of clients -------------------------------------------------------------

    async def _ready_pipeline(self, *, wanted: bool = False) -> LogPipeline:
        """The destination's own, once there is one. An instance that rests begins, if `wanted`, or
        if somebody has subscribed (to the deployment that had it before, perhaps)."""
        while self._pipeline is None:
            if self._supervisor.failure is not None:
                raise self._supervisor.failure
            if self._supervisor.state == RESTING:
                wanted |= bool(self._subscribers or await self._records.cursors.load())
                if self._supervisor.state != RESTING:
                    continue
                if not wanted:
                    raise NotSubscribed("the instance rests: no subscriber, should subscribe first")
                self._expected = True
                await self._supervisor.set(STARTING, None)
            await self._changed.wait()
        if self._supervisor.state == STOPPED:
            raise InstanceNotRunning("the instance was stopped, should start first").at(
                destination=self._destination
            )
        return self._pipeline

    async def _epoch_to_write(self) -> int:
        """The epoch of this owner, also if it has not been at its source yet. Raises Fenced."""
        if not self._epoch:
            self._epoch = await self._records.cursors.acquire()
        return self._epoch

    def _turn(self, client_id: int) -> asyncio.Lock:
        """To be held by a call that changes what is durable of a subscriber: they come one after
        the other, whatever they wait for. A get does not: it may wait long, and changes nothing."""
        return self._turns.setdefault(client_id, asyncio.Lock())

    async def _save(self, subscriber: SubscriberMeta) -> None:
        """Durable first, then remembered; both, also if the caller is cancelled meanwhile. Raises
        Fenced, MetaUnavailable; InstanceRestarted: a new generation has begun."""
        await asyncio.shield(self._saved(subscriber, self._epoch))

    async def _saved(self, subscriber: SubscriberMeta, epoch: int) -> None:
        await self._owned(self._records.cursors.save(epoch, subscriber))
        if epoch == self._epoch:  # else a new generation has loaded what was just saved
            self._subscribers[subscriber.client_id] = subscriber

    async def _owned(self, work: Awaitable[T]) -> T:
        """Who finds out here that another owner has taken over gives up; whose epoch was forgotten
        begins anew."""
        try:
            return await work
        except (EpochLost, MetaDamaged) as error:
            if self._pipeline is not None:
                self._pipeline.fail(error)
            raise
        except Fenced as error:
            self._life.cancel()
            await self._supervisor.set(FAILED, error)
            raise

    async def move_cursor(self, client_id: int, was: LogPosition, now: LogPosition) -> None:
        """Put a cursor where it lies in the log that is read now, if it lay elsewhere."""
        subscriber = self._subscribers.get(client_id)
        moved = now.position != was.position or was.is_foreign(now.identity)
        if moved and subscriber is not None and subscriber.cursor == was:
            await self._save(dataclasses.replace(subscriber, cursor=now))

    async def status(self) -> dict[str, Any]:
        """See Store."""
        raise NotImplementedError

    async def _sweep_disk(self) -> None:
        """Remove what lives before this one have left on disk. Their processes may be ending yet,
        so once more a little later."""
        for pause_s in (0.0, _ENDING_S):
            await asyncio.sleep(pause_s)
            await asyncio.to_thread(spill_folder.sweep, self._folder)

    async def _publish(self) -> None:
        metrics = self._runtime.metrics(self._destination)
        await publish_metrics(metrics, self._destination, self.status)

    async def _source_status(self) -> Any:
        oldest = oldest_cursor(waited_for(self._subscribers), self._start)
        pipeline = self._opening or self._pipeline
        found = None if pipeline is None else await pipeline.pump.source_status(oldest)
        if self._supervisor.state in (RESTING, FINISHED, STOPPED):
            self._contact.end(at_end=self._supervisor.state == FINISHED)
        else:
            failed = self._supervisor.state == FAILED
            self._contact.note(found, self._last_event_time, failed=failed)
        return found
