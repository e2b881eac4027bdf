"""How a subscriber ends: removed with its cursor, or expired, so that no log waits for it."""

from __future__ import annotations

import dataclasses
import time

from ray_canal.destination.arrivals import Arrivals
from ray_canal.destination.catch_ups import CatchUps
from ray_canal.destination.lifecycle import Lifecycle
from ray_canal.destination.state import DestinationState
from ray_canal.errors import PositionPurged
from ray_canal.meta.manager import SubscriberMeta
from ray_canal.model.position import LogPosition


class Departures:
    """Each call is made in the subscriber's turn, and is durable before memory follows. Raises
    Fenced, MetaUnavailable, InstanceRestarted."""

    def __init__(
        self, state: DestinationState, catch_ups: CatchUps, lifecycle: Lifecycle, arrivals: Arrivals
    ) -> None:
        self._state = state
        self._catch_ups = catch_ups
        self._lifecycle = lifecycle
        self._arrivals = arrivals

    async def remove(self, client_id: int) -> None:
        """Remove a subscriber and its cursor."""
        epoch = await self._state.guard.for_writing()
        failure = self._catch_ups.unserved.get(client_id)
        if failure is not None and not isinstance(failure, PositionPurged):
            # What it took the server's log may have no more, and it may come back.
            await self._state.begin_timeline(self._state.log.identity)
        await self._keep_start(epoch, client_id)
        self._arrivals.forget(client_id)
        await self._state.subscribers.remove(client_id, epoch)
        await self.forget(client_id)
        self._lifecycle.end_if_deserted()

    async def expire(self, known: SubscriberMeta, why: str, idle_s: int | None = None) -> None:
        """Mark a subscriber as expired; if it comes back, a catch-up serves it. `idle_s`: so long
        it has made no call; None leaves what is recorded."""
        client_id, epoch = known.client_id, await self._state.guard.for_writing()
        await self._keep_start(epoch, client_id)
        idle_s = known.idle_s if idle_s is None else idle_s
        expired = dataclasses.replace(known, expired=int(time.time()), idle_s=idle_s)
        await self._state.subscribers.save(expired, epoch, of=known)
        pipeline = self._state.log.pipeline
        if pipeline is not None:
            self._catch_ups.close(client_id)
            pipeline.store.release_place(client_id)
            self._catch_ups.send(client_id, f"{why}; the log does not wait for it any more")
            pipeline.sweep()

    async def forget(self, client_id: int) -> None:
        """Let go of what is in memory for a client id without a subscription (any more)."""
        self._catch_ups.close(client_id)
        pipeline = self._state.log.pipeline
        if pipeline is not None:
            pipeline.store.release_place(client_id)
            pipeline.store.unsubscribe(client_id)
            pipeline.sweep()
        await self._state.changed.wake()

    async def _keep_start(self, epoch: int, leaving: int) -> None:
        """Note where the log begins for whoever subscribes next, if nobody else is left."""
        state = self._state
        known, pipeline = state.subscribers.known, state.log.pipeline
        others = (one for i, one in known.items() if i != leaving and not one.expired)
        if pipeline is None or not self._lifecycle.keeps_start or any(others):
            return
        began = LogPosition(state.log.identity, pipeline.store.first_position)
        records = state.records
        await state.guard.run(records.cursors.keep(epoch, records.start.save, began))
