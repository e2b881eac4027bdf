"""A destination's store: the only owner of its log and its cursors.

Here are the calls of clients; who they are is in subscriptions.py, the life of the destination in
instance.py. Batches of an earlier generation are void: their ack raises InstanceRestarted and they
are delivered again. A returned `ack` is durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from ray_canal.destination.failures import described, stale_batch_error
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.operations import Operations
from ray_canal.destination.supervisor import BACKOFF_MIN_S, FINISHED, STARTING, STOPPED
from ray_canal.destination.wakeup import NEVER
from ray_canal.errors import (
    BatchNotFound,
    InstanceError,
    InstanceNotRunning,
    InstanceRestarted,
    NotSubscribed,
)
from ray_canal.limits import limits
from ray_canal.model.message import EMPTY_BATCH, Caller, MessageHead
from ray_canal.model.position import LogPosition

_COMING_S_MAX = 0.1
"""So long a message waits, at most, for what is being decoded."""


class Store(Operations):
    """Calls of clients: get, ack, rollback."""

    async def get_without_ack(
        self,
        client_id: int,
        batch_size: int,
        timeout: float | None,
        holder: str = "",
        caller: Caller | None = None,
    ) -> MessageHead:
        """See Connector.get_without_ack. `caller`: what it has received; what it was sent and has
        not received comes again (handed_out.py)."""
        came_s = time.monotonic()
        await self._take_back(client_id, holder, caller)
        return await self._get(
            client_id, batch_size, timeout, holder, caller, came_s=came_s, full=True
        )

    async def poll(
        self,
        client_id: int,
        batch_size: int,
        timeout: float,
        done: tuple[int, int] | None = None,
        untracked: bool = False,
        holder: str = "",
        caller: Caller | None = None,
    ) -> MessageHead:
        """A batch as soon as there is anything for this subscriber, waiting up to `timeout`; first
        its batch `done` (id, epoch) is acked. It may be acked already, for the call may come twice;
        one that is void comes again. `untracked`: the caller fetches its chunks at once, so they
        need not be tracked."""
        came_s = time.monotonic()
        if done is not None:
            with contextlib.suppress(InstanceRestarted, BatchNotFound):
                await self.ack(client_id, *done, holder)
        await self._take_back(client_id, holder, caller)
        return await self._get(
            client_id, batch_size, timeout, holder, caller,
            came_s=came_s, full=False, untracked=untracked,
        )

    async def get(
        self,
        client_id: int,
        batch_size: int,
        timeout: float | None,
        holder: str = "",
        caller: Caller | None = None,
    ) -> MessageHead:
        """See Connector.get, which acks what it has received."""
        came_s = time.monotonic()
        await self._take_back(client_id, holder, caller)
        (await self._pipeline_of(client_id)).store.refuse_unacked(client_id)
        return await self._get(
            client_id, batch_size, timeout, holder, caller, came_s=came_s, full=True
        )

    async def _take_back(self, client_id: int, holder: str, caller: Caller | None) -> None:
        """A get has come: roll back what earlier ones of its caller handed out in vain."""
        pipeline = await self._pipeline_of(client_id)
        self._refuse_replaced(client_id, holder)
        self._handed_out.begin(client_id, caller)
        if self._unreceived(pipeline, client_id, caller) is not None:
            async with self._turn_at_pipeline(client_id) as pipeline:
                self._refuse_replaced(client_id, holder)
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
        return self._handed_out.unreceived(client_id, caller, self._epoch, out)

    async def _get(
        self,
        client_id: int,
        batch_size: int,
        timeout: float | None,
        holder: str,
        caller: Caller | None,
        *,
        came_s: float,
        full: bool,
        untracked: bool = False,
    ) -> MessageHead:
        arrivals = self._arrivals.get(client_id, 0)
        self._catch_ups.come_back(client_id)
        pipeline = await self._read_back(client_id, batch_size)
        wanted = batch_size if full else 1
        if timeout is not None:
            began_s = time.monotonic()
            deadline = began_s + timeout if timeout > 0 else NEVER
            waits = True
            while waits and (
                self._is_paused(client_id)
                or pipeline.lost
                or not pipeline.store.ready(client_id, wanted, count_all=not full)
            ):
                came_s = NEVER
                with self._attendance.waiting(client_id):
                    waits = not self._ended(client_id) and await self._changed.wait(deadline)
                waits = waits and not self._is_void(client_id, holder, arrivals, caller)
                pipeline = await self._read_back(client_id, batch_size)
            if not full:
                pipeline = await self._with_decoding(pipeline, client_id, batch_size)
            self._gets.add("get", waiting_s=time.monotonic() - began_s)
        since_s = min(came_s, time.monotonic())
        pipeline = await self._still_ours(pipeline, client_id, batch_size, since_s)
        self._refuse_replaced(client_id, holder)
        if (
            pipeline.lost
            or self._is_paused(client_id)
            or self._is_void(client_id, holder, arrivals, caller)
        ):
            return MessageHead(EMPTY_BATCH, self._epoch)  # nobody waits for this answer
        asked_s = time.perf_counter()
        batch = pipeline.store.get(client_id, batch_size)
        if batch is not None:
            self._handed_out.hand_out(client_id, caller, batch.id)
            places = self._delivered or batch.range.ack, batch.range.ack
            self._delivered = max(places, key=pipeline.store.order.key)
            pipeline.sweep()
            message = pipeline.message(batch, self._epoch, untracked)
            self._gets.add("get", time.perf_counter() - asked_s)
            return message
        if self._supervisor.failure is not None and self._supervisor.has_given_up:
            raise self._supervisor.failure
        return MessageHead(EMPTY_BATCH, self._epoch, finished=self._finished(client_id))

    def _is_paused(self, client_id: int) -> bool:
        """Whether it gets nothing until somebody lets it go on."""
        known = self._subscribers.get(client_id)
        return known is not None and known.paused > 0

    def _is_void(self, client_id: int, holder: str, arrivals: int, caller: Caller | None) -> bool:
        """Whether a get is to hand out nothing: its caller has gone, or has made another one."""
        left = self._is_left(client_id, holder, arrivals)
        return left or self._handed_out.is_void(client_id, caller)

    async def _still_ours(
        self, pipeline: LogPipeline, client_id: int, batch_size: int, since_s: float
    ) -> LogPipeline:
        """Return the subscriber's pipeline, if no other owner had taken over (and moved cursors) at
        a moment after `since_s`. Raises Fenced, MetaUnavailable."""
        while True:
            try:
                last_id = pipeline.store.last_batch_id(client_id)
                if self._records.batch_ids.runs_out(last_id):
                    reserve = self._records.batch_ids.reserve_behind
                    await self._owned(self._records.cursors.write(self._epoch, reserve, last_id))
                await self._owned(self._records.cursors.confirm(self._epoch, since_s))
            except InstanceRestarted:  # a new generation is about to begin
                await self._changed.wait(time.monotonic() + BACKOFF_MIN_S)
            else:
                if pipeline is self._pipeline_now(client_id):
                    return pipeline
            pipeline = await self._read_back(client_id, batch_size)

    async def _with_decoding(
        self, pipeline: LogPipeline, client_id: int, batch_size: int
    ) -> LogPipeline:
        """Wait for chunks that are being decoded, as far as they fit into the batch: in a dense
        stream a message for each would be a tenth of all CPU."""
        deadline = time.monotonic() + _COMING_S_MAX
        while pipeline.may_grow(client_id, batch_size) and await self._changed.wait(deadline):
            pipeline = await self._read_back(client_id, batch_size)
        return pipeline

    async def _read_back(self, client_id: int, batch_size: int) -> LogPipeline:
        """The subscriber's pipeline, with all in memory that its next get needs."""
        while True:
            pipeline = await self._pipeline_of(client_id)
            try:
                await pipeline.read_back(client_id, batch_size)
            except NotSubscribed:
                if pipeline is self._pipeline_now(client_id):
                    raise
            except InstanceError as error:
                if pipeline is not self._pipeline_now(client_id):
                    continue
                if pipeline.ended:
                    raise
                pipeline.fail(error)
                await self._changed.wait(time.monotonic() + BACKOFF_MIN_S)
            else:
                if pipeline is self._pipeline_now(client_id):
                    return pipeline

    def _ended(self, client_id: int) -> bool:
        """Whether nothing more comes, for now or for ever."""
        if self._is_paused(client_id) and self._supervisor.state != STOPPED:
            return False
        if self._catch_ups.get(client_id) is not None:
            return self._finished(client_id)
        return self._supervisor.state in (FINISHED, STOPPED) or self._supervisor.has_given_up

    def _finished(self, client_id: int) -> bool:
        catch_up, pipeline = self._catch_ups.get(client_id), self._pipeline_now(client_id)
        if pipeline is not None and pipeline.lost:
            return False
        return self._supervisor.state == FINISHED if catch_up is None else catch_up.finished

    async def ack(
        self,
        client_id: int,
        batch_id: int,
        epoch: int | None,
        holder: str = "",
        *,
        keep: bool = False,
    ) -> None:
        """Confirm a batch; the cursor is durable when this returns. `epoch` None: the caller cannot
        know (Canal's protocol has none), so this one's. `keep`: it is read after the ack; the log
        keeps it until the subscriber's next call."""
        if batch_id == EMPTY_BATCH:
            return
        async with self._turn_at_pipeline(client_id) as pipeline:
            self._refuse_void(batch_id, epoch)
            self._refuse_replaced(client_id, holder)
            cursor = pipeline.store.cursor_after(client_id, batch_id)
            known = self._subscribers[client_id]
            # The durable cursor first: if that write fails, the batch stays outstanding.
            await self._save(known.seen(cursor=LogPosition(self._identity, cursor)))
            if pipeline is self._pipeline_now(client_id):  # else the next begins after the cursor
                pipeline.store.ack(client_id, batch_id, keep=keep)
                pipeline.sweep()
        await self._changed.wake()

    async def rollback(
        self, client_id: int, batch_id: int | None, epoch: int | None, holder: str = ""
    ) -> None:
        """See Connector.rollback."""
        async with self._turn_at_pipeline(client_id) as pipeline:
            self._refuse_replaced(client_id, holder)
            self._arrived(client_id, holder)
            if batch_id is not None:
                self._refuse_void(batch_id, epoch)
            pipeline.store.rollback(client_id, batch_id)
        await self._changed.wake()

    async def check_chunks(self, references: Sequence[Any]) -> None:
        """A client could not read these chunks. If they were lost with their node, they are read
        from the server again."""
        await self._catch_ups.check(references)
        if self._pipeline is not None:
            await self._pipeline.check(references)

    async def list_batch_ids(self, client_id: int, holder: str = "") -> list[int]:
        """Outstanding batches of a subscriber, smallest first."""
        pipeline = await self._pipeline_of(client_id)
        self._refuse_replaced(client_id, holder)
        ids: list[int] = pipeline.store.batch_ids(client_id)
        return ids

    async def change_instance_filter(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Change keys of the instance's filter, durably; returns all of them.

        Every subscriber gets what lies behind its cursor by the new one: what was handed out and
        not acked is void, and a new generation reads it again. Raises ConfigError, Fenced."""
        async with self._changing:  # nobody else ends and begins a life meanwhile
            if self._supervisor.state == STOPPED:
                raise InstanceNotRunning("the instance was stopped, should start first")
            self._config.filter.changed(changes)  # refused before anything else
            await self._open_backends()
            epoch = await self._epoch_to_write()
            await self._owned(self._records.cursors.keep(epoch, self._records.filter.save, changes))
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
            await self._close_pipelines()
            self._use_filter()
            await self._supervisor.set(STARTING, None)
            self._life = asyncio.create_task(self._live())
        return self._records.filter.now.model_dump()

    async def status(self) -> dict[str, Any]:
        """State, positions, lag, rates, ring fill, subscribers: plain values, no secrets."""
        pipeline = self._opening or self._pipeline
        source = await self._source_status()
        failure = self._supervisor.failure
        return {
            "destination": self._destination,
            "state": self._supervisor.state,
            "error": None if failure is None else described(failure),
            "source": self._config.source.address or ", ".join(self._config.source.files),
            "address": self._identity.address,
            "server": self._identity.server_uuid,
            "start": f"{self._start}: {self._started_how}" if self._start is not None else None,
            "epoch": self._epoch,
            "timeline": self._records.timeline.number,
            "generations": self._generations,
            "uptime_s": time.time() - self._started_at,
            "decoders": None if pipeline is None else pipeline.pump.decoders,
            "fetched": source,
            "lag_bytes": None if source is None else source.lag_bytes,
            "purge": None if source is None else source.purge,
            "lag_seconds": self._contact.lag_seconds,
            "connected": self._contact.connected,
            "source_error": None if source is None else source.last_error or None,
            **self._rates.per_second(),
            "stages": self._stages(pipeline),
            "errors": self._errors,
            "quarantined": self._records.schemas.quarantined(),
            "quarantine_bytes": self._records.schemas.quarantine_bytes,
            "quarantined_tables": len(self._records.schemas.quarantined()),
            "quarantined_chunks": self._held_aside,
            "skipped_events": self._skipped.count,
            "last_skipped_event": self._skipped.last or None,
            "filter": self._config.filter.model_dump(),
            "bytes_max": None if pipeline is None else self._bytes_max(pipeline.pump.decoders),
            "store": self._stats(),
        }

    def _stages(self, pipeline: LogPipeline | None) -> dict[str, dict[str, float]]:
        upstream = {} if pipeline is None else pipeline.pump.stages.report()
        return {**upstream, **self._gets.report()}

    def _bytes_max(self, decoders: int) -> dict[str, int] | None:
        """See limits.py."""
        pipelines, subscribers = 1 + len(self._catch_ups.places()), len(self._subscribers)
        found = limits(self._config, decoders=decoders, subscribers=subscribers, lines=pipelines)
        return None if found is None else dataclasses.asdict(found)

    def _refuse_void(self, batch_id: int, epoch: int | None) -> None:
        if epoch is not None and epoch != self._epoch:
            raise stale_batch_error(batch_id).at(destination=self._destination)
