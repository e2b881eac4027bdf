"""Does what rows of the signal table (`snapshot.signal_table`) ask for, before the log has them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ray_canal.destination.snapshot.snapshots import Snapshots
from ray_canal.destination.state import DestinationState
from ray_canal.errors import ConfigError, NotSubscribed
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.message import Payload

if TYPE_CHECKING:
    from ray_canal.snapshot.signals import Signal

logger = logging.getLogger(__name__)


class SnapshotSignals:
    """Signals that rows of a destination's signal table give."""

    def __init__(self, state: DestinationState, snapshots: Snapshots) -> None:
        self._state = state
        self._snapshots = snapshots

    async def carry_out(self, chunk: LogChunk, payload: Payload) -> None:
        """Carry out the signals in a chunk before it goes into the log: what they ask for is
        durable on return, so before anybody acks them. Raises Fenced, MetaUnavailable."""
        schema, _, table = self._state.config.now.snapshot.signal_table.partition(".")
        if not table or (schema, table) not in chunk.info.tables:
            return
        from ray_canal.snapshot.signals import inserted, signal_of  # needs Arrow

        for row in inserted(await self._state.runtime.load(payload), schema, table):
            try:
                signal = signal_of(row)
            except ConfigError as error:
                self._refused(error)
                continue
            for client_id in self._client_ids(signal):
                await self._do(signal, client_id)

    def _client_ids(self, signal: Signal) -> Sequence[int]:
        if signal.client_id is not None:
            return [signal.client_id]
        known = self._state.subscribers.known.items()
        return [client_id for client_id, one in known if not one.ephemeral]

    async def _do(self, signal: Signal, client_id: int) -> None:
        try:
            await self._snapshots.signalled(
                client_id, signal.action, signal.wishes, signal.id, signal.mode
            )
        except (ConfigError, NotSubscribed) as error:
            self._refused(error)

    def _refused(self, error: Exception) -> None:
        name = self._state.config.now.snapshot.signal_table
        logger.warning(
            "destination %s: a signal of %s is not done: %s", self._state.destination, name, error
        )
