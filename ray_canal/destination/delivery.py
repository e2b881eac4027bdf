"""Delivery of batches to the clients of a destination: get, ack, rollback.

Batches of an earlier generation are void: their ack raises InstanceRestarted and they are delivered
again. A returned `ack` is durable.
"""

from __future__ import annotations

import asyncio
import time

from ray_canal.destination.api import (
    AckRequest,
    ClientRequest,
    GetRequest,
    PollRequest,
    RollbackRequest,
)
from ray_canal.destination.arrivals import Arrivals
from ray_canal.destination.attendance import Attendance
from ray_canal.destination.catch_ups import CatchUps
from ray_canal.destination.failures import raised_again, stale_batch_error
from ray_canal.destination.handed_out import HandedOut
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.loop_acks import Acking, LoopAcks
from ray_canal.destination.pipeline_lookup import PipelineLookup
from ray_canal.destination.snapshot.snapshots import Snapshots
from ray_canal.destination.state import DestinationState
from ray_canal.destination.status.stages import Stages
from ray_canal.destination.supervisor import BACKOFF_MIN_S, FINISHED, STOPPED
from ray_canal.destination.wakeup import NEVER, seen
from ray_canal.errors import InstanceError, InstanceRestarted, NotSubscribed
from ray_canal.model.message import EMPTY_BATCH, Caller, MessageHead
from ray_canal.model.position import LogPosition

_DECODING_S_MAX = 0.1
"""So long a message waits, at most, for what is being decoded."""
_STRANGERS_MAX = 64
"""So many client ids that are no subscribers (any more) something is remembered of."""


class Delivery:
    """Calls of clients: get, ack, rollback."""

    def __init__(
        self,
        state: DestinationState,
        *,
        catch_ups: CatchUps,
        lookup: PipelineLookup,
        arrivals: Arrivals,
        attendance: Attendance,
        snapshots: Snapshots,
    ) -> None:
        self._state = state
        self._table = state.subscribers
        self._changed = state.changed
        self._catch_ups = catch_ups
        self._lookup = lookup
        self._arrivals = arrivals
        self._attendance = attendance
        self._snapshots = snapshots
        self._handed_out = HandedOut()
        self._loop_acks = LoopAcks(self._ack, self._changed.wake)
        self.stages = Stages()

    async def get_without_ack(self, request: GetRequest) -> MessageHead:
        """Return the next batch; see Connector.get_without_ack. What the caller was sent and has
        not received comes again (handed_out.py)."""
        came_s = time.monotonic()
        await self._take_back(request)
        return await self._get(request, request.timeout, came_s, full=True)

    async def get(self, request: GetRequest) -> MessageHead:
        """Return the next batch to a caller that acks it on arrival; see Connector.get."""
        came_s = time.monotonic()
        await self._take_back(request)
        await self._loop_acks.settle(request.client_id, request.holder)
        (await self._lookup.of(request.client_id)).store.refuse_unacked(request.client_id)
        return await self._get(request, request.timeout, came_s, full=True)

    async def poll(self, request: PollRequest) -> MessageHead:
        """Return a batch as soon as there is anything for this subscriber, waiting up to `timeout`;
        its batch `done` (id, epoch) is acked, durably before the answer to the poll after this
        one, or to any other call. That may be acked already, for the call may come twice; if it is
        void, it comes again. `untracked`: the caller fetches its chunks at
        once, so they need not be tracked."""
        came_s = time.monotonic()
        await self._take_back(request)
        timeout = request.timeout or 0.0
        acking = self._loop_acks.begin(request.client_id, request.holder, _ack_of(request))
        return await self._get(
            request, timeout, came_s, full=False, untracked=request.untracked, acking=acking
        )

    async def _take_back(self, request: GetRequest) -> None:
        """Roll back what earlier gets of the caller handed out without success."""
        client_id, caller = request.client_id, request.caller
        pipeline = await self._lookup.of(client_id)
        self._table.refuse_replaced(client_id, request.holder)
        self._handed_out.begin(client_id, caller)
        if len(self._handed_out) > len(self._table.known) + _STRANGERS_MAX:
            self._handed_out.forget_others({client_id, *self._table.known})
        if self._unreceived(pipeline, client_id, caller) is not None:
            async with self._lookup.turn(client_id) as pipeline:
                self._table.refuse_replaced(client_id, request.holder)
                lost = self._unreceived(pipeline, client_id, caller)
                if lost is not None:
                    pipeline.store.rollback(client_id, lost)

    def _unreceived(
        self, pipeline: LogPipeline, client_id: int, caller: Caller | None
    ) -> int | None:
        try:
            out = pipeline.store.batch_ids(client_id)
        except NotSubscribed:
            return None  # the get tells it
        return self._handed_out.unreceived(client_id, caller, self._state.guard.epoch, out)

    async def _get(
        self,
        request: GetRequest,
        timeout: float | None,
        came_s: float,
        *,
        full: bool,
        untracked: bool = False,
        acking: Acking | None = None,
    ) -> MessageHead:
        client_id, batch_size = request.client_id, request.batch_size
        arrivals = self._arrivals.count(client_id)
        self._catch_ups.come_back(client_id)
        pipeline = await self._read_back(client_id, batch_size)
        wanted = batch_size if full else 1
        waits = True
        if timeout is not None:
            began_s = time.monotonic()
            deadline = began_s + timeout if timeout > 0 else NEVER
            waited = False
            # Once: what comes next may be for other subscribers.
            pipeline.pump.hurry(self._confirm_ahead)
            while waits and (
                self._table.is_paused(client_id)
                or pipeline.lost
                or not pipeline.store.ready(client_id, wanted, count_all=not full)
            ):
                waited = True
                with self._attendance.waiting(client_id):
                    waits = not self._ended(client_id) and await self._changed.wait(deadline)
                waits = waits and not self._is_void(request, arrivals) and not (
                    acking is not None and acking.has_failed
                )
                pipeline = await self._read_back(client_id, batch_size)
            if not full:
                pipeline = await self._with_decoding(pipeline, client_id, batch_size)
            if waited:
                came_s = max(came_s, pipeline.pump.chunk_came_s)
            self.stages.add("get", waiting_s=time.monotonic() - began_s)
        if acking is not None and (acking.is_late or acking.task.done() or not waits):
            await asyncio.shield(acking.task)
        since_s = min(came_s, time.monotonic())
        pipeline = await self._still_ours(pipeline, client_id, batch_size, since_s)
        self._table.refuse_replaced(client_id, request.holder)
        if (
            pipeline.lost
            or self._table.is_paused(client_id)
            or self._is_void(request, arrivals)
        ):
            return MessageHead(EMPTY_BATCH, self._state.guard.epoch)  # nobody waits for this answer
        async with pipeline.making_room():  # by what it lets go
            return self._hand_out(pipeline, request, untracked)

    def _hand_out(
        self, pipeline: LogPipeline, request: GetRequest, untracked: bool
    ) -> MessageHead:
        """Take the next batch out of the log. Raises what has ended the destination for good."""
        state, client_id = self._state, request.client_id
        asked_s = time.perf_counter()
        batch = pipeline.store.get(client_id, request.batch_size)
        if batch is not None:
            self._handed_out.hand_out(client_id, request.caller, batch.id)
            places = state.log.delivered or batch.range.ack, batch.range.ack
            state.log.delivered = max(places, key=pipeline.store.order.key)
            pipeline.sweep()
            timeline = state.records.timeline.number
            message = pipeline.message(batch, state.guard.epoch, timeline, untracked=untracked)
            self.stages.add("get", time.perf_counter() - asked_s)
            return message
        if state.supervisor.failure is not None and state.supervisor.has_given_up:
            raise raised_again(state.supervisor.failure)
        return MessageHead(EMPTY_BATCH, state.guard.epoch, finished=self._finished(client_id))

    def _is_void(self, request: GetRequest, arrivals: int) -> bool:
        """Return whether a get must hand out nothing: its client has connected again since, or its
        caller has made another get."""
        left = self._arrivals.is_left(request.client_id, request.holder, arrivals)
        return left or self._handed_out.is_void(request.client_id, request.caller)

    async def _still_ours(
        self, pipeline: LogPipeline, client_id: int, batch_size: int, since_s: float
    ) -> LogPipeline:
        """Return the subscriber's pipeline, if no other owner had taken over (and moved cursors) at
        a moment after `since_s`. Raises Fenced, MetaUnavailable."""
        records, guard = self._state.records, self._state.guard
        while True:
            try:
                last_id = pipeline.store.last_batch_id(client_id)
                if records.batch_ids.runs_out(last_id):
                    reserve = records.batch_ids.reserve_behind
                    await guard.run(records.cursors.write(guard.epoch, reserve, last_id))
                await guard.run(records.cursors.confirm(guard.epoch, since_s))
            except InstanceRestarted:  # a new generation is about to begin
                await self._changed.wait(time.monotonic() + BACKOFF_MIN_S)
            else:
                if pipeline is self._lookup.now(client_id):
                    return pipeline
            pipeline = await self._read_back(client_id, batch_size)

    def _confirm_ahead(self) -> None:
        """Begin what `_still_ours` waits for, while a chunk is on its way into the log."""
        records, guard = self._state.records, self._state.guard
        asking = asyncio.ensure_future(records.cursors.confirm(guard.epoch, time.monotonic()))
        asking.add_done_callback(seen)

    async def _with_decoding(
        self, pipeline: LogPipeline, client_id: int, batch_size: int
    ) -> LogPipeline:
        """Wait for chunks that are being decoded, as far as they fit into the batch: in a dense
        stream a message for each would be a tenth of all CPU."""
        deadline = time.monotonic() + _DECODING_S_MAX
        while pipeline.may_grow(client_id, batch_size) and await self._changed.wait(deadline):
            pipeline = await self._read_back(client_id, batch_size)
        return pipeline

    async def _read_back(self, client_id: int, batch_size: int) -> LogPipeline:
        """Return the subscriber's pipeline, with all in memory that its next get needs."""
        while True:
            pipeline = await self._lookup.of(client_id)
            try:
                await pipeline.read_back(client_id, batch_size)
            except NotSubscribed:
                if pipeline is self._lookup.now(client_id):
                    raise
            except InstanceError as error:
                if pipeline is not self._lookup.now(client_id):
                    continue
                if pipeline.ended:
                    raise
                pipeline.fail(error)
                await self._changed.wait(time.monotonic() + BACKOFF_MIN_S)
            else:
                if pipeline is self._lookup.now(client_id):
                    return pipeline

    def _ended(self, client_id: int) -> bool:
        """Return whether nothing more comes, for now or at all."""
        supervisor = self._state.supervisor
        if self._table.is_paused(client_id) and supervisor.state != STOPPED:
            return False
        if self._catch_ups.get(client_id) is not None:
            return self._finished(client_id)
        return supervisor.state in (FINISHED, STOPPED) or supervisor.has_given_up

    def _finished(self, client_id: int) -> bool:
        catch_up, pipeline = self._catch_ups.get(client_id), self._lookup.now(client_id)
        if pipeline is not None and pipeline.lost:
            return False
        return self._state.supervisor.state == FINISHED if catch_up is None else catch_up.finished

    async def ack(self, request: AckRequest) -> None:
        """Confirm a batch; the cursor is durable when this returns."""
        await self._loop_acks.settle(request.client_id, request.holder)
        await self._ack(request)

    async def _ack(self, request: AckRequest) -> None:
        client_id, batch_id = request.client_id, request.batch_id
        if batch_id == EMPTY_BATCH:
            return
        async with self._lookup.turn(client_id) as pipeline:
            self._refuse_void(batch_id, request.epoch)
            self._table.refuse_replaced(client_id, request.holder)
            cursor = pipeline.store.cursor_after(client_id, batch_id)
            known = self._table.get(client_id)
            # The durable cursor first: if that write fails, the batch stays outstanding.
            tags = pipeline.store.read_chunks(client_id, batch_id)
            moved = known.seen(
                cursor=LogPosition(self._state.log.identity, cursor),
                snapshot=self._snapshots.after(known, tags),
                mark=request.mark or known.mark,
            )
            await self._table.save(moved)
            self._snapshots.acked(client_id, tags)
            if pipeline is self._lookup.now(client_id):  # else the next begins after the cursor
                pipeline.store.ack(client_id, batch_id, keep=request.keep)
                pipeline.sweep()
        await self._changed.wake()

    async def rollback(self, request: RollbackRequest) -> None:
        """Give back batches; see Connector.rollback."""
        client_id, batch_id = request.client_id, request.batch_id
        async with self._lookup.turn(client_id) as pipeline:
            self._table.refuse_replaced(client_id, request.holder)
            self._arrivals.note(client_id, request.holder)
            if batch_id is not None:
                self._refuse_void(batch_id, request.epoch)
            pipeline.store.rollback(client_id, batch_id)
            self._loop_acks.forget(client_id, batch_id)
        await self._changed.wake()

    async def list_batch_ids(self, request: ClientRequest) -> list[int]:
        """Return the ids of a subscriber's outstanding batches, smallest first."""
        await self._loop_acks.settle(request.client_id, request.holder)
        pipeline = await self._lookup.of(request.client_id)
        self._table.refuse_replaced(request.client_id, request.holder)
        return pipeline.store.batch_ids(request.client_id)

    def _refuse_void(self, batch_id: int, epoch: int | None) -> None:
        if epoch is not None and epoch != self._state.guard.epoch:
            raise stale_batch_error(batch_id).at(destination=self._state.destination)


def _ack_of(request: PollRequest) -> AckRequest | None:
    """Return the ack that a poll begins with."""
    if request.done is None:
        return None
    batch_id, epoch = request.done
    return AckRequest(
        client_id=request.client_id, holder=request.holder, batch_id=batch_id, epoch=epoch
    )
