"""on_purged, on_reset = "snapshot": who has lost a part of the log gets the rows that tables hold
now."""

from __future__ import annotations

import asyncio
import dataclasses
import logging

from ray_canal.destination.catch_ups import CatchUps
from ray_canal.destination.lifecycle import Lifecycle
from ray_canal.destination.operations import SubscriberOperations
from ray_canal.destination.snapshot.snapshot_home import ledger_of, new_ledger
from ray_canal.destination.snapshot.snapshots import Snapshots
from ray_canal.destination.state import DestinationState
from ray_canal.destination.supervisor import FAILED, RUNNING
from ray_canal.errors import CanalError, PositionPurged, SourceError
from ray_canal.model.position import LogPosition

logger = logging.getLogger(__name__)

_TICK_S = 1.0


class AfterLoss:
    """Moves subscribers whose place the server has purged, or whose log it has no more, to the
    log's end, with a snapshot whose first mark names the gap."""

    def __init__(
        self,
        state: DestinationState,
        *,
        catch_ups: CatchUps,
        lifecycle: Lifecycle,
        operations: SubscriberOperations,
        snapshots: Snapshots,
    ) -> None:
        self._state = state
        self._catch_ups = catch_ups
        self._lifecycle = lifecycle
        self._operations = operations
        self._snapshots = snapshots

    async def watch(self) -> None:
        """Look each second, where the configuration says so."""
        while True:
            await asyncio.sleep(_TICK_S)
            source = self._state.config.now.source
            if "snapshot" in (source.on_purged, source.on_reset):
                try:
                    await self._look()
                except CanalError as error:  # the server of the cursors: the next time, then
                    logger.warning("destination %s: %s", self._state.destination, error)

    async def _look(self) -> None:
        state = self._state.supervisor.state
        blocking = self._state.subscribers.blocking
        if state == FAILED and any(map(self._is_answered, blocking.values())):
            await self._lifecycle.start_without_blocking()
        if state == RUNNING:
            for client_id, failure in self._catch_ups.unserved.items():
                if self._is_answered(failure):
                    await self._begin_again(client_id, failure)

    def _is_answered(self, failure: CanalError) -> bool:
        """Return whether the configuration answers such a failure with a snapshot."""
        source = self._state.config.now.source
        if isinstance(failure, PositionPurged):
            return source.on_purged == "snapshot"
        is_reset = isinstance(failure, SourceError) and failure.other_log
        return is_reset and source.on_reset == "snapshot"

    async def _begin_again(self, client_id: int, failure: CanalError) -> None:
        table, log = self._state.subscribers, self._state.log
        async with table.turn(client_id):
            known = table.known.get(client_id)
            if known is None or log.pipeline is None:
                return
            store = log.pipeline.store
            place = LogPosition(log.identity, store.tail_position.boundary)
            gap = f"another log than that of {known.position}"
            if isinstance(failure, PositionPurged):
                gap, lost = f"purged from {known.position}", failure.lost
                gap += "" if lost is None else f", lost from {lost.start} to {lost.end}"
            else:  # the rows' place may lie before what it took
                await self._state.begin_timeline(log.identity)
            logger.warning(
                "destination %s: client %d goes on at %s with a snapshot; %s",
                self._state.destination, client_id, place.position, gap,
            )  # fmt: skip
            mode = self._state.config.now.snapshot.mode
            earlier, attempts = ledger_of(known), table.attempts()
            begun = new_ledger(reason=gap, mode=mode, earlier=earlier, attempts=attempts)
            ledger = begun.to_json()
            moved = dataclasses.replace(known, cursor=place, snapshot=ledger, idle_s=0, expired=0)
            await self._operations.move(moved, log.pipeline)
        self._snapshots.poke()
        await self._state.changed.wake()
