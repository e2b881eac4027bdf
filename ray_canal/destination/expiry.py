"""Watches subscribers that do not call any more: warns of a full log that waits for them, and
expires them."""

from __future__ import annotations

import asyncio
import dataclasses
import logging

from ray_canal.destination.attendance import TICK_S, Attendance
from ray_canal.destination.departures import Departures
from ray_canal.destination.state import DestinationState
from ray_canal.destination.status.full_log import FullLogWarning
from ray_canal.destination.supervisor import RUNNING
from ray_canal.errors import CanalError
from ray_canal.model.subscription import EPHEMERAL_S

logger = logging.getLogger(__name__)

_NOTED_S_MIN = 60.0
"""The time without a call is written no more often."""


class Expiry:
    """The watch of one destination."""

    def __init__(
        self, state: DestinationState, attendance: Attendance, departures: Departures
    ) -> None:
        self._state = state
        self._attendance = attendance
        self._departures = departures

    async def watch(self) -> None:
        """Look every few seconds until cancelled. The limit is store.subscriber_expire_hours."""
        table, log = self._state.subscribers, self._state.log
        limit_s = self._state.config.now.store.subscriber_expire_hours * 3600
        pause_s = min(TICK_S, limit_s / 10) if limit_s else TICK_S
        warning = FullLogWarning(self._state.destination)
        while True:
            await asyncio.sleep(pause_s)
            for client_id, subscriber in table.known.items():
                self._attendance.remember(client_id, subscriber.idle_s)
            serves = self._state.supervisor.state == RUNNING and log.pipeline is not None
            self._attendance.tick(table.known, serves=serves)
            if not serves or log.pipeline is None:
                continue
            full_s, held_by = log.pipeline.full_s, log.pipeline.store.held_by()
            warning.look(full_s, held_by, ", ".join(map(self._last_call, held_by)))
            for client_id in list(table.known):
                try:
                    await self._look_at(client_id, limit_s)
                except CanalError as error:  # the server of the cursors: the next time, then
                    logger.warning("destination %s: %s", self._state.destination, error)

    def _last_call(self, client_id: int) -> str:
        since_s = self._attendance.since_call_s(client_id)
        when = "no call in this life" if since_s is None else f"last call {since_s:.0f} s ago"
        return f"{client_id}: {when}"

    async def _look_at(self, client_id: int, limit_s: float) -> None:
        """Note how long a subscriber has not called; expire it after so many seconds (0: never).
        An ephemeral one is removed."""
        table = self._state.subscribers
        async with table.turn(client_id):
            known, idle_s = table.known.get(client_id), self._attendance.idle_s(client_id)
            if known is not None and known.ephemeral:
                limit_s = EPHEMERAL_S
            if known is None or known.expired or not limit_s:
                return
            if known.paused and not known.ephemeral:
                return  # it makes no call because somebody said so
            if known.ephemeral and idle_s > limit_s:
                logger.warning(
                    "destination %s: the ephemeral subscriber %d has been silent for %.0f s; it is "
                    "removed", self._state.destination, client_id, idle_s,
                )  # fmt: skip
                await self._departures.remove(client_id)
                return
            if idle_s <= limit_s:
                if abs(idle_s - known.idle_s) > max(limit_s / 10, _NOTED_S_MIN):
                    await table.save(dataclasses.replace(known, idle_s=int(idle_s)))
                return
            why = f"it made no call for {idle_s / 3600:.3g} h (store.subscriber_expire_hours)"
            await self._departures.expire(known, why, int(idle_s))
        await self._state.changed.wake()
