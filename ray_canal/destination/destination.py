"""One destination in this process: `DestinationApi`, answered by its services."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.destination.after_loss import AfterLoss
from ray_canal.destination.api import (
    AckRequest,
    ClientRequest,
    GetRequest,
    PollRequest,
    RollbackRequest,
    SubscribeRequest,
)
from ray_canal.destination.arrivals import Arrivals
from ray_canal.destination.attendance import Attendance
from ray_canal.destination.catch_ups import CatchUps
from ray_canal.destination.delivery import Delivery
from ray_canal.destination.departures import Departures
from ray_canal.destination.expiry import Expiry
from ray_canal.destination.lifecycle import Lifecycle
from ray_canal.destination.operations import SubscriberOperations
from ray_canal.destination.ownership import Claim
from ray_canal.destination.pipeline_lookup import PipelineLookup
from ray_canal.destination.ports import Runtime
from ray_canal.destination.snapshot.replaced_tables import ReplacedTables
from ray_canal.destination.snapshot.snapshot_signals import SnapshotSignals
from ray_canal.destination.snapshot.snapshots import Snapshots
from ray_canal.destination.state import DestinationState, new_state
from ray_canal.destination.status.activity import Activity
from ray_canal.destination.status.log_stats import LogStats
from ray_canal.destination.status.publish import publish_metrics
from ray_canal.destination.status.purge_watch import watch_purge
from ray_canal.destination.status.status_record import DestinationStatus
from ray_canal.destination.status.status_report import StatusReport
from ray_canal.destination.subscribers import SubscriberService
from ray_canal.errors import ConsumerError
from ray_canal.model.message import MessageHead, Payload
from ray_canal.model.reports import SchemaHistoryReport, SnapshotReport, SubscriberReport
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.model.table_meta import TableMeta

T = TypeVar("T")


def start_destination(
    config: InstanceConfig, meta: MetaConfig, runtime: Runtime, claim: Claim | None = None
) -> Destination:
    """Return a destination that begins to start, inside a running event loop: that is its recovery,
    too. `claim`: what it knows of its ownership from its life before."""
    return Destination(new_state(config, meta, runtime, claim))


class Destination:
    """See `DestinationApi`. Each call is answered by one service; all share `state`."""

    def __init__(self, state: DestinationState) -> None:
        """Begin to start, inside a running event loop."""
        self.state = state
        self.activity = Activity(state.skipped)
        catch_ups = self._catch_ups = CatchUps(state)
        lifecycle = self._lifecycle = Lifecycle(state, catch_ups, self.activity)
        attendance, arrivals = Attendance(), Arrivals()
        lookup = self.lookup = PipelineLookup(state, catch_ups, lifecycle, attendance)
        stats = LogStats(state, catch_ups, attendance)
        departures = Departures(state, catch_ups, lifecycle, arrivals)
        self._service = SubscriberService(
            state,
            lifecycle=lifecycle,
            catch_ups=catch_ups,
            lookup=lookup,
            departures=departures,
            arrivals=arrivals,
            attendance=attendance,
            stats=stats,
        )
        self._operations = SubscriberOperations(
            state,
            service=self._service,
            lifecycle=lifecycle,
            catch_ups=catch_ups,
            lookup=lookup,
            departures=departures,
            stats=stats,
        )
        snapshots = Snapshots(state, lookup, catch_ups, self._operations)
        catch_ups.note_replaced = ReplacedTables(state, snapshots.restart_tables).note
        lifecycle.carry_out_signals = SnapshotSignals(state, snapshots).carry_out
        self._delivery = Delivery(
            state,
            catch_ups=catch_ups,
            lookup=lookup,
            arrivals=arrivals,
            attendance=attendance,
            snapshots=snapshots,
        )
        after_loss = AfterLoss(
            state,
            catch_ups=catch_ups,
            lifecycle=lifecycle,
            operations=self._operations,
            snapshots=snapshots,
        )
        self._snapshots, gets = snapshots, self._delivery.stages
        self._report = StatusReport(state, catch_ups, self.activity, stats, gets, snapshots)
        lifecycle.begin()
        metrics = state.runtime.metrics(state.destination)
        beats = (
            watch_purge(state.destination, self._report.source),
            publish_metrics(metrics, state.destination, self._report.status),
            state.folders.sweep(),
            snapshots.watch(),
            after_loss.watch(),
            Expiry(state, attendance, departures).watch(),
        )
        self._beats = [asyncio.create_task(each) for each in beats]

    # --- clients --------------------------------------------------------------------------------

    async def _as_owner(self, work: Awaitable[T]) -> T:
        """Await a client's call. An owner that was replaced does not know who has subscribed since:
        before it blames a client, it makes sure that it has the destination. Raises Fenced."""
        try:
            return await work
        except ConsumerError:
            await self.state.guard.confirm()
            raise

    async def subscribe(self, request: SubscribeRequest) -> int:
        epoch = await self._as_owner(self._service.subscribe(request))
        self._snapshots.poke()  # it may begin with one
        return epoch

    async def unsubscribe(self, request: ClientRequest) -> bool:
        return await self._as_owner(self._service.unsubscribe(request))

    async def get_without_ack(self, request: GetRequest) -> MessageHead:
        return await self._as_owner(self._delivery.get_without_ack(request))

    async def get(self, request: GetRequest) -> MessageHead:
        return await self._as_owner(self._delivery.get(request))

    async def poll(self, request: PollRequest) -> MessageHead:
        return await self._as_owner(self._delivery.poll(request))

    async def ack(self, request: AckRequest) -> None:
        await self._as_owner(self._delivery.ack(request))

    async def rollback(self, request: RollbackRequest) -> None:
        await self._as_owner(self._delivery.rollback(request))

    async def rollback_all(self, request: RollbackRequest) -> None:
        await self._as_owner(self._delivery.rollback(request))

    async def list_batch_ids(self, request: ClientRequest) -> list[int]:
        return await self._as_owner(self._delivery.list_batch_ids(request))

    async def filter_of(self, request: ClientRequest) -> str | None:
        return await self._as_owner(self._service.filter_of(request.client_id))

    async def touch(self, request: ClientRequest) -> None:
        await self._as_owner(self._service.touch(request))

    # --- operators ------------------------------------------------------------------------------

    async def wait_running(self, timeout: float) -> None:
        await self._lifecycle.wait_running(timeout)

    def load(self) -> tuple[float, float]:
        """Return what it takes of its node: bytes of binlog a second, bytes of log in memory."""
        pipeline = self.state.log.pipeline
        fill = 0.0 if pipeline is None else float(pipeline.store.stats()["fill"])
        held_bytes = fill * self.state.config.now.store.capacity_bytes
        return self.activity.rates.per_second()["bytes_per_second"], held_bytes

    async def status(self) -> DestinationStatus:
        return await self._report.status()

    async def subscribers(self) -> list[SubscriberReport]:
        return await self._service.list_all()

    async def schema_history(self, table: str) -> SchemaHistoryReport:
        records, log = self.state.records.schemas, self.state.log
        return await records.history(log.identity, table)

    async def table_meta(self, table: str) -> TableMeta | None:
        return await self.state.records.schemas.table_meta(self.state.log.identity, table)

    async def operate(
        self, client_id: int, action: str, argument: str | int | None = None
    ) -> SubscriberReport | None:
        return await self._operations.operate(client_id, action, argument)

    async def snapshot(
        self,
        client_id: int,
        action: str,
        wishes: Sequence[SnapshotWish] = (),
        snapshot_id: str = "",
        mode: str = "",
    ) -> SnapshotReport:
        await self._service.records()  # also while it starts
        return await self._snapshots.operate(client_id, action, wishes, snapshot_id, mode)

    async def change_filter(self, client_id: int, filter_text: str) -> None:
        await self._service.change_filter(client_id, filter_text)

    async def change_instance_filter(self, changes: Mapping[str, object]) -> dict[str, object]:
        return await self._lifecycle.change_filter(changes)

    async def check_chunks(self, references: Sequence[Payload]) -> None:
        await self._catch_ups.check(references)
        if self.state.log.pipeline is not None:
            await self.state.log.pipeline.check(references)

    async def stop(self, *, for_good: bool = True) -> None:
        for beat in self._beats:
            beat.cancel()
        await asyncio.gather(*self._beats, return_exceptions=True)
        await self._lifecycle.stop(for_good=for_good)
