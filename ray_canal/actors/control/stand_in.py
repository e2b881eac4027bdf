"""A store process that stands in for the controller while the cluster has no head.

With the head's state in Redis, Ray's control store is back seconds before the head's own node can
run the controller again, and knows by then which nodes have ended together with the head. Their
destinations begin on the others at once: one process, the first by name of those whose node lives,
writes their places and starts what holds them. All else waits for the controller.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from ray_canal.actors.control.homes import Homes, cluster_nodes, head_of
from ray_canal.actors.placement_table import PlacementRecord, PlacementTable

logger = logging.getLogger(__name__)

_SILENT_S = 6.0
"""A controller that has not spoken for longer may be away: it does so every four seconds."""
_LOOK_S = 0.5


class StandIn:
    """The stand-in of one store process."""

    def __init__(
        self,
        process: str,
        namespace: str,
        ensure: Callable[[PlacementRecord], Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ensure`: starts a place's process."""
        self._process = process
        self._table = PlacementTable(namespace)
        self._homes = Homes(namespace, self._table, ensure)
        self._clock = clock
        self._spoke_s = clock()

    def controller_spoke(self) -> None:
        """Note a call of the controller."""
        self._spoke_s = self._clock()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._clock() - self._spoke_s > _SILENT_S:
                try:
                    await asyncio.to_thread(self.look)  # Ray's calls wait while the head is away
                except Exception as error:  # Ray's own, of several kinds: the next look comes
                    logger.info("could not stand in for the controller: %s", error)

    def look(self) -> None:
        """Begin elsewhere what has lost its node, if there is no head and no other process is to do
        that."""
        nodes = cluster_nodes()
        if head_of(nodes):
            return
        alive = {node.id for node in nodes}
        held = {place.process for place in self._table.all().values() if place.node in alive}
        if self._process == min(held, default=""):
            self._homes.leave_dead(nodes)
