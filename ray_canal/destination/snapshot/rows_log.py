"""The log of one subscriber while it gets the rows of one moment: those, and nothing else.

It has no upstream: a snapshot puts rows into it (snapshot_moment.py). Once they are acked the
subscriber goes on from their place, in the destination's log or by a catch-up.
"""

from __future__ import annotations

import asyncio

from ray_canal.config import InstanceConfig
from ray_canal.destination.catch_up import CatchUp
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.state import DestinationState
from ray_canal.model.position import EntryPosition, LogPosition
from ray_canal.model.reports import PlaceReport


class RowsLog(CatchUp):
    """Its log is there at once, and empty until the rows' place is known: calls of the subscriber
    take no longer than they would at any other log. `start`: where it stood before."""

    def __init__(
        self,
        state: DestinationState,
        config: InstanceConfig,
        client_id: int,
        last_batch_id: int,
        start: EntryPosition,
    ) -> None:
        super().__init__(state, config, client_id, last_batch_id)
        self._log = LogPipeline(config, self._folder, state.changed, None, state.runtime)
        self.pipeline = self._opened = self._log
        self._begin(start)

    def _begin(self, start: EntryPosition) -> None:
        subscribers, client_id = self._state.subscribers, self._client_id
        terms = subscribers.terms(subscribers.get(client_id))
        self._log.begin(start, self._last_batch_id).subscribe(client_id, terms, start)

    def run(self) -> None:
        """Nothing to do: it is the snapshot that goes on."""

    @property
    def has_begun(self) -> bool:
        """Return whether the rows' place is known."""
        return self._life is not None

    def begin(self, place: LogPosition) -> LogPipeline:
        """Begin the log at the rows' place, which is the subscriber's cursor."""
        self._log.identity = place.identity
        self._begin(place.position)
        self._life = asyncio.create_task(self._live())
        return self._log

    async def _generation(self) -> None:
        await self._log.until_lost()

    def places(self) -> dict[str, PlaceReport]:
        return super().places() if self.has_begun else {}
