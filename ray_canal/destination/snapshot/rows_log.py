"""The log of one subscriber while it gets the rows of one moment: those, and nothing else.

It has no upstream: a snapshot puts rows into it (snapshot_moment.py). Once they are acked the
subscriber goes on from their place, in the destination's log or by a catch-up.
"""

from __future__ import annotations

import asyncio

from ray_canal.destination.catch_up import CatchUp
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.model.position import LogPosition


class RowsLog(CatchUp):
    """`pipeline` is None until the rows' place is known: what the subscriber asks for waits."""

    def run(self) -> None:
        """Nothing to do: it is the snapshot that goes on."""

    def begin(self, place: LogPosition) -> LogPipeline:
        """Begin the log at the rows' place, which is the subscriber's cursor."""
        state, client_id = self._state, self._client_id
        pipeline = LogPipeline(self._config, self._folder, state.changed, None, state.runtime)
        pipeline.identity = place.identity
        pipeline.begin(place.position, self._last_batch_id)
        terms = state.subscribers.terms(state.subscribers.get(client_id))
        pipeline.store.subscribe(client_id, terms, place.position)
        self.pipeline = self._opened = pipeline
        self._life = asyncio.create_task(self._live())
        return pipeline

    async def _generation(self) -> None:
        assert self.pipeline is not None
        await self.pipeline.until_lost()
