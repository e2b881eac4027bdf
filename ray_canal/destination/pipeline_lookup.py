"""Which log pipeline serves a subscriber: the destination's own, or that of its catch-up."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from ray_canal.destination.attendance import Attendance
from ray_canal.destination.catch_ups import CatchUps
from ray_canal.destination.failures import raised_again
from ray_canal.destination.lifecycle import Lifecycle
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.state import DestinationState
from ray_canal.model.subscription import refuse_client_id


class PipelineLookup:
    """Finds the pipelines of one destination, and waits for them."""

    def __init__(
        self,
        state: DestinationState,
        catch_ups: CatchUps,
        lifecycle: Lifecycle,
        attendance: Attendance,
    ) -> None:
        self._state = state
        self._catch_ups = catch_ups
        self._lifecycle = lifecycle
        self._attendance = attendance

    async def of(self, client_id: int) -> LogPipeline:
        """Return the pipeline that serves the subscriber, once it is there. Raises ConfigError: no
        client id; what keeps the destination or the catch-up from its start."""
        refuse_client_id(client_id)
        self._attendance.came(client_id)
        while True:
            pipeline = await self._lifecycle.ready_pipeline()
            catch_up = self._catch_ups.get(client_id)
            if catch_up is None:
                return pipeline
            if catch_up.pipeline is not None:
                return catch_up.pipeline
            catch_up.keep_running()
            if catch_up.failure is not None:
                raise raised_again(catch_up.failure)
            await self._state.changed.wait()

    def now(self, client_id: int) -> LogPipeline | None:
        """Return the pipeline that serves the subscriber at this moment."""
        catch_up = self._catch_ups.get(client_id)
        return self._state.log.pipeline if catch_up is None else catch_up.pipeline

    @contextlib.asynccontextmanager
    async def turn(self, client_id: int) -> AsyncIterator[LogPipeline]:
        """Enter the subscriber's turn, at its pipeline. Whoever waits for a pipeline, long perhaps,
        holds up nobody."""
        while True:
            pipeline = await self.of(client_id)
            async with self._state.subscribers.turn(client_id):
                if pipeline is self.now(client_id):
                    yield pipeline
                    return
