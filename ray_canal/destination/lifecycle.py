"""The life of a destination: its generations, one after another.

Hard state: the cursors, in the MetaManager's backend, written under this owner's epoch. Soft state:
everything else. A *generation* is one life of the upstream: read the cursors, take a new epoch,
stand at the smallest cursor, fill a fresh log. The first generation starts with the destination, so
a start is recovery; a failure of any stage starts the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence

from ray_canal.destination.admission import Admission, oldest_cursor, oldest_in
from ray_canal.destination.catch_ups import CatchUps
from ray_canal.destination.failures import about_subscribers, raised_again
from ray_canal.destination.log_pipeline import BeforeAppend, LogPipeline
from ray_canal.destination.second_look import SecondLook
from ray_canal.destination.state import DestinationState
from ray_canal.destination.status.activity import Activity
from ray_canal.destination.supervisor import (
    FAILED,
    FINISHED,
    IDLE,
    RUNNING,
    STARTING,
    STOPPED,
)
from ray_canal.errors import (
    UNUSABLE_CURSOR,
    CanalError,
    CursorNotInLog,
    DecodeError,
    Fenced,
    InstanceNotRunning,
    LogRenamed,
    NotSubscribed,
)
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.logs import tell, with_ids
from ray_canal.model.message import Payload
from ray_canal.model.position import LogPosition, SourceIdentity
from ray_canal.model.schema_record import SchemaRecord
from ray_canal.model.start import Start, StartOptions
from ray_canal.model.timeline import LogFile

logger = logging.getLogger(__name__)


class Lifecycle:
    """Runs the generations of one destination, and its idle times between them."""

    def __init__(self, state: DestinationState, catch_ups: CatchUps, activity: Activity) -> None:
        self._state = state
        self._catch_ups = catch_ups
        self._activity = activity
        self._supervisor = state.supervisor
        self._log = state.log
        self._second_look = SecondLook(state.config.now.source)
        self._changing = asyncio.Lock()
        self.carry_out_signals: BeforeAppend = _nothing
        self._wanted = self._left = self._deserted = self._forgotten = False
        self._pumping: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin, inside a running event loop."""
        self._supervisor.begin(self._attempt, self._failed, self._log.stop_upstream)

    async def _attempt(self) -> bool:
        await self.open_records()
        await self._wait_until_wanted()
        return await self._generation()

    async def _failed(self, error: Exception) -> bool:
        """Note why a generation ended. Return whether no other one may begin."""
        reading = self._supervisor.state == RUNNING
        failure = self._second_look.at(self._state.runtime.unwrap(error), reading=reading)
        logger.warning("destination %s: %s", self._state.destination, failure)
        self._activity.errors += 1
        if isinstance(failure, UNUSABLE_CURSOR) and self._supervisor.is_to_retry:
            # Of a cursor that was moved since: the next attempt tells, and follows at once.
            self._state.subscribers.blocking = {}
            await self._supervisor.set(STARTING, None)
            return False
        await self._supervisor.set(FAILED, failure)
        if isinstance(failure, LogRenamed) and self._log.pipeline is not None:
            await self._log.pipeline.drained()
        # Another owner has it, or the same bytes would fail again.
        return isinstance(failure, Fenced | DecodeError)

    async def open_records(self) -> None:
        """Open the backends of the records, if they are not. Raises ConfigError: damaged, refused;
        MetaUnavailable."""
        if await self._state.records.open():
            self._state.config.use_filter(self._state.records.filter.now)

    async def _wait_until_wanted(self) -> None:
        """Be idle until there is a subscriber, where the configuration says so."""
        runs, table = self._state.config.now.runs, self._state.subscribers
        if runs == "always" or (runs == "once_subscribed" and self._activity.generations):
            return
        self._left = self._wanted = False
        await table.load(keep=await self._has_forgotten())
        self._wanted |= bool(table.known)
        if not self._wanted:
            await self._close_pipelines()
            self._log.start = None
            await self._supervisor.set(IDLE, None)
            while not self._wanted:
                await self._state.changed.wait()
        await self._supervisor.set(STARTING, None)

    async def _generation(self) -> bool:
        """Recover and pump. Until the source stands, the log of the generation before goes on
        serving. Return False when it ended because no subscriber is left, or is to be repeated."""
        state, records, log = self._state, self._state.records, self._log
        known = await records.cursors.load()
        if await self._has_forgotten():
            known = {**state.subscribers.known, **known}
        expired = {client_id for client_id, one in known.items() if one.expired}
        apart = {*self._catch_ups.unserved, *expired}
        admission = Admission(known, apart, log.last_position())
        pipeline = log.opening = LogPipeline(
            state.config.now, state.folders.new(), state.changed, self._catch_ups.detach,
            state.runtime,
        )  # fmt: skip
        kept_schemas = await records.schemas.trusted(one.schemas for one in known.values())
        start, identity, new_schemas = await self._open(pipeline, admission, kept_schemas)
        log.delivered = None
        # An owner that has lost the destination to another one does not take it back.
        epoch = await state.guard.take_new()
        if self._supervisor.failure is not None:
            await self._supervisor.set(STARTING, None)
        # From here on nobody subscribes or acks: what was handed out is void.
        await self._close_pipelines()
        if log.identity is not None and log.identity.server_uuid != identity.server_uuid:
            self._catch_ups.forget_unserved()
        await records.cursors.run(records.filter.settle, epoch)
        await records.cursors.run(records.timeline.enter, epoch, identity, start.same_log)
        batch_ids_from = await records.cursors.run(records.batch_ids.begin, epoch)
        log.identity, log.start, log.start_reason = identity, start.position, start.how
        for subscriber in await state.subscribers.load(keep=self._forgotten):
            await state.subscribers.save(subscriber)
        self._forgotten = False
        # Before a cursor moves: from its new place on, nobody would read the catalog again.
        await records.schemas.append(new_schemas)
        for client_id, cursor, place in admission.placed(start):
            now = LogPosition(identity, place)
            await state.subscribers.move_cursor(client_id, cursor, now, start.leaves_out)
        oldest = oldest_in(state.subscribers.known, identity, start.position)
        await records.schemas.keep_from(oldest, identity, [*kept_schemas, *new_schemas])
        if admission.cursors or not self.keeps_start:
            await records.cursors.run(records.start.forget, epoch)
        else:
            began = LogPosition(identity, start.position)
            await records.cursors.run(records.start.save, epoch, began)
        if admission.is_outdated(state.subscribers.known, start, identity):
            # Subscribed or acked in the old log while the new one was opened: once more, with all.
            await self._supervisor.set(STARTING, None)
            return False
        # Nothing is awaited from here on: nobody comes whose cursor was not looked at.
        pipeline.begin(start.position, batch_ids_from)
        log.pipeline = pipeline
        self._let_in(pipeline, admission, start)
        log.opening = None
        return await self._serve(pipeline)

    async def _has_forgotten(self) -> bool:
        """Return whether records of subscribers may be missing where they are kept: then those in
        memory count, and are written again. Of a record that is there, that counts."""
        cursors, epoch = self._state.records.cursors, self._state.guard.epoch
        self._forgotten = self._forgotten or (epoch > 0 and await cursors.has_forgotten(epoch))
        return self._forgotten

    async def _serve(self, pipeline: LogPipeline) -> bool:
        self._activity.generations += 1
        self._activity.traffic.begin()
        epoch, timeline = self._state.guard.epoch, self._state.records.timeline.number
        with_ids(epoch=epoch)
        where = f"{self._log.start}: {self._log.start_reason}"
        tell(logger, "generation", "it reads from %s", where, timeline=timeline, start=where)
        await self._supervisor.set(RUNNING, None)
        self._deserted = False
        self._pumping = asyncio.create_task(pipeline.run(self._before, self._after))
        if self._left:  # while the source was opened
            self.end_if_deserted()
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
        self, pipeline: LogPipeline, admission: Admission, schemas: Sequence[SchemaRecord]
    ) -> tuple[Start, SourceIdentity, tuple[SchemaRecord, ...]]:
        """Stand at the source. Raises SourceError kinds: of a cursor, if no other can be served."""
        records, table = self._state.records, self._state.subscribers
        options = StartOptions(
            partial=True,
            reach_bytes=self._state.config.now.store.capacity_bytes,
            unattended=None if admission.cursors else await self._kept_start(),
            newest=await records.cursors.run(records.timeline.newest),
            read_to=admission.read_to,
        )
        delivered = "" if self._log.delivered is None else self._log.delivered.gtid
        cursors = [*admission.cursors.values()]
        table.blocking = {}
        try:
            return await pipeline.open(cursors, schemas, delivered, options)
        except Exception as error:
            failure = self._state.runtime.unwrap(error)
            if isinstance(failure, UNUSABLE_CURSOR) and cursors:
                told = about_subscribers(failure, self._state.destination, [*admission.cursors])
                table.blocking = dict.fromkeys(admission.cursors, told)
                raise told from error
            raise

    async def _kept_start(self) -> LogPosition | None:
        """Return where the log began, in this life or the last one: what it has from there on is
        for whoever subscribes first. None: it never did."""
        began = self._log.first_position()
        if began is not None or not self.keeps_start:
            return began
        records = self._state.records
        return await records.cursors.run(records.start.load)

    @property
    def keeps_start(self) -> bool:
        """True if the log is filled without a subscriber; else it begins with the first one."""
        return self._state.config.now.runs == "always"

    def _let_in(self, pipeline: LogPipeline, admission: Admission, start: Start) -> None:
        """Put each subscriber where it is served: in the log, or by a catch-up."""
        table, unserved = self._state.subscribers, self._catch_ups.unserved
        left_out = admission.left_out(start, table.known)
        for client_id, subscriber in table.known.items():
            left, failure = left_out.get(client_id), unserved.get(client_id)
            if left is not None and left.failure is not None:
                failure = about_subscribers(left.failure, self._state.destination, [client_id])
            if failure is not None:
                self._catch_ups.send(client_id, str(failure), failure)
            elif left is not None:
                self._catch_ups.send(client_id, left.why)
            elif client_id in admission.apart:
                expired = subscriber.expired
                why = "it made no call for too long" if expired else "the server is another one now"
                self._catch_ups.send(client_id, why)
            elif subscriber.cursor is not None and client_id not in admission.cursors:
                # Nobody has looked whether that is a place of this log.
                self._catch_ups.send(client_id, "it came while the source was opened")
            else:
                try:
                    terms = table.terms(subscriber)
                    pipeline.store.subscribe(client_id, terms, subscriber.position)
                except CursorNotInLog as error:
                    self._catch_ups.send(client_id, str(error))

    async def _close_pipelines(self) -> None:
        """Close the log and all catch-ups: what was handed out is void."""
        pipeline, self._log.pipeline = self._log.pipeline, None
        await self._catch_ups.close_all()
        if pipeline is not None:
            await pipeline.close()

    async def _before(self, chunk: LogChunk, payload: Payload) -> None:
        """Write what has to be durable before a chunk is in the log. Raises Fenced,
        MetaUnavailable."""
        info, records, known = chunk.info, self._state.records, self._state.subscribers.known
        await records.schemas.keep(info, lambda: oldest_cursor(known, self._log.start))
        file = LogFile(info.head.journal_name, info.head.created_s)
        await records.timeline.reach(records.cursors, self._state.guard.epoch, file)
        if self._log.pipeline is not None:
            await self._catch_ups.note_replaced(self._log.pipeline, tuple(known), chunk, payload)
        await self.carry_out_signals(chunk, payload)

    def _after(self, chunk: LogChunk) -> None:
        self._activity.note_chunk(chunk.info)

    # --- for the calls of clients ---------------------------------------------------------------

    async def ready_pipeline(self, *, wanted: bool = False) -> LogPipeline:
        """Return the destination's own pipeline, once there is one. A destination that is idle
        begins, if `wanted`, or if somebody has subscribed (to the deployment that had it before,
        perhaps). Raises what keeps it from its start, NotSubscribed: it is idle."""
        supervisor = self._supervisor
        while self._log.pipeline is None:
            if supervisor.failure is not None:
                raise raised_again(supervisor.failure)
            if supervisor.state == IDLE:
                known = self._state.subscribers.known
                wanted |= bool(known or await self._state.records.cursors.load())
                if supervisor.state != IDLE:
                    continue
                if not wanted:
                    raise NotSubscribed("the destination is idle: a client should subscribe first")
                self._wanted = True
                await supervisor.set(STARTING, None)
            await self._state.changed.wait()
        self.refuse_stopped()
        return self._log.pipeline

    def refuse_stopped(self) -> None:
        """Raises InstanceNotRunning: the destination was stopped."""
        if self._supervisor.state == STOPPED:
            raise InstanceNotRunning("the destination was stopped, should start first").at(
                destination=self._state.destination
            )

    async def unblock(self, client_id: int) -> None:
        """Try again at once after a subscriber was removed or moved: its cursor may be what kept
        the destination from its start."""
        blocking = self._state.subscribers.blocking
        # While the cursors are tried again, it is not known whose are of no use.
        blocked = blocking.pop(client_id, None) is not None or (
            not blocking and self.is_refused
        )
        if blocked and self._supervisor.state == FAILED:
            # Whoever comes now waits for how it goes without it.
            await self._supervisor.set(STARTING, None)
        self._supervisor.retry_now()

    @property
    def is_refused(self) -> bool:
        """Return whether the server that is there now cannot serve the cursors. The log, if there
        still is one, is that of the server before."""
        return isinstance(self._supervisor.failure, UNUSABLE_CURSOR)

    async def end_log(self) -> None:
        """Close the log of the server before: a cursor has been moved to a place that it has not.
        What others have not read of it comes from the next server."""
        await self._close_pipelines()

    async def start_without_blocking(self) -> None:
        """Begin without the cursors that keep the destination from its start."""
        table = self._state.subscribers
        self._catch_ups.set_apart(table.blocking)
        table.blocking = {}
        await self._supervisor.set(STARTING, None)
        self._supervisor.retry_now()

    def end_if_deserted(self) -> None:
        """End the generation if no subscriber is left and it runs for subscribers only."""
        runs = self._state.config.now.runs
        if self._state.subscribers.known or runs != "while_subscribed":
            return
        self._left = True
        if self._pumping is not None and not self._pumping.done():
            self._deserted = True
            self._pumping.cancel()

    # --- for operators --------------------------------------------------------------------------

    async def wait_running(self, timeout: float) -> None:
        """Return when the destination stands at its source; raise what keeps it from there."""
        deadline = time.monotonic() + timeout
        while self._supervisor.state in (STARTING, STOPPED):
            if not await self._state.changed.wait(deadline):
                raise InstanceNotRunning(
                    f"it is still starting after {timeout:.0f} s; see `ray-canal status`"
                )
        if self._supervisor.failure is not None:
            raise raised_again(self._supervisor.failure)

    async def change_filter(self, changes: Mapping[str, object]) -> dict[str, object]:
        """Change keys of the destination's filter, durably; return all of them.

        Every subscriber gets what comes after its cursor by the new one: what was handed out and
        not acked is void, and a new generation reads it again. Raises ConfigError, Fenced."""
        state, records = self._state, self._state.records
        async with self._changing:  # nobody else ends and begins a life meanwhile
            self.refuse_stopped()
            state.config.now.filter.changed(changes)  # refused before anything else
            await self.open_records()
            epoch = await state.guard.for_writing()
            save = records.cursors.keep(epoch, records.filter.save, changes)
            await state.guard.run(save)
            await self._supervisor.end()
            await self._close_pipelines()
            state.config.use_filter(records.filter.now)
            await self._supervisor.set(STARTING, None)
            self.begin()
        return records.filter.now.model_dump()

    async def stop(self, *, for_good: bool = True) -> None:
        """End the upstream and release the records. Nothing acked is lost. Not `for_good`: the
        destination goes on in another life, with the log of nobody from where that began."""
        async with self._changing:
            await self._stop(for_good)

    async def _stop(self, for_good: bool) -> None:
        await self._supervisor.end()
        await self._close_pipelines()
        records, epoch = self._state.records, self._state.guard.epoch
        if epoch and for_good:
            with contextlib.suppress(CanalError):  # who starts it again says where
                await records.cursors.run(records.start.forget, epoch)
        await self._supervisor.set(STOPPED, InstanceNotRunning("the destination was stopped"))
        await records.close()


async def _nothing(chunk: LogChunk, payload: Payload) -> None:
    """Do nothing before a chunk goes into the log."""
