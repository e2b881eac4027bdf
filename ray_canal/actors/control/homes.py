"""Which node and process each destination has, and how it gets there: `balance.py` decides.

A destination whose node has ended begins elsewhere at once. From one that drains, or is too full,
it is handed over: its next process is started first, then it ends here and begins there at its
cursors, so that only the opening of its source is a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayError

from ray_canal.actors import registry
from ray_canal.actors.answers import ACTOR_AWAY, answered
from ray_canal.actors.control.balance import Demand, Node, assign
from ray_canal.actors.control.loads import Loads
from ray_canal.actors.placement import HEAD_RESOURCE
from ray_canal.actors.placement_table import (
    Home,
    PlacementRecord,
    PlacementTable,
    home_for,
    joined_home,
)
from ray_canal.actors.ray_internals import draining_nodes
from ray_canal.config import InstanceConfig
from ray_canal.config.node import NodeSelector
from ray_canal.errors import ConfigError, InstanceNotRunning
from ray_canal.logs import tell

logger = logging.getLogger(__name__)

_EVEN_PERIOD_S = 30.0
_MOVES_MAX = 2
"""So many destinations are moved at a time for an even load."""
_START_S, _DROP_S = 90.0, 15.0


def cluster_nodes() -> list[Node]:
    """Return the nodes of the cluster that live."""
    draining = draining_nodes()
    return [
        Node(
            id=node["NodeID"],
            cpus=float(node["Resources"].get("CPU", 0.0)),
            memory_bytes=float(node["Resources"].get("memory", 0.0)),
            labels=node.get("Labels") or {},
            resources=frozenset(node["Resources"]),
            is_head=HEAD_RESOURCE in node["Resources"],
            draining=node["NodeID"] in draining,
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def head_of(nodes: Iterable[Node]) -> str:
    """Return the id of the head node; "" if it is away."""
    return next((node.id for node in nodes if node.is_head), "")


def _is_on(alive: Collection[str], place: PlacementRecord) -> bool:
    """Return whether its node is among these. The head's own destinations end with Ray alone."""
    return not place.node or place.node in alive


def _next_home(
    name: str, places: dict[str, PlacementRecord], node: str, *, lost: bool = False
) -> Home:
    """Return the home of a destination on this node, which it has in `places` from now on. `lost`:
    it has none until then, and joins a process that runs."""
    place = places[name]
    # "head" as a requirement outlives this head's id.
    home_node = "" if place.selector.head else node
    home = joined_home(places, place.share, home_node) if lost else None
    home = home or home_for(name, places, place.share, registry.STORE_PREFIX, home_node)
    places[name] = place.at(home)
    return home


def _with_ready(
    demands: Mapping[str, Demand], places: Mapping[str, PlacementRecord], alive: Collection[str]
) -> dict[str, Demand]:
    """Return the demands; those that have lost their node know where they can join a process."""

    def ready(place: PlacementRecord) -> list[str]:
        return [node for node in alive if joined_home(places, place.share, node)]

    lost = {
        name: replace(demand, ready=ready(places[name]))
        for name, demand in demands.items()
        if not _is_on(alive, places[name])
    }
    return {**demands, **lost}


class Homes:
    """The controller's view of where destinations are. `ensure`: starts a place's process."""

    def __init__(
        self, namespace: str, table: PlacementTable, ensure: Callable[[PlacementRecord], Any]
    ) -> None:
        self._namespace = namespace
        self._table = table
        self._ensure = ensure
        self.loads = Loads()
        self._moving: dict[str, asyncio.Task[None]] = {}
        self._leaving: dict[str, str] = {}  # of those: the process that they leave
        self._coming: dict[str, str] = {}  # of those: the process that they go to
        self._homeless: set[str] = set()
        self._known: frozenset[tuple[str, bool]] = frozenset()
        self._spread = False  # some destination may run elsewhere than on the head
        self._evened_s = time.monotonic()

    def choose(
        self,
        instances: Collection[InstanceConfig],
        places: Mapping[str, PlacementRecord],
        share: int,
    ) -> dict[str, Home]:
        """Return the homes of new destinations next to those that have one. Raises ConfigError: no
        node fits."""
        selectors = {each.destination: NodeSelector.parse(each.node) for each in instances}
        chosen: dict[str, str] = {}
        if not all(selector.head for selector in selectors.values()):
            nodes = cluster_nodes()
            wanted = {name: Demand(selector) for name, selector in selectors.items()}
            chosen = assign(nodes, {**self._demands(places, head_of(nodes)), **wanted}, 0, ())
        homes: dict[str, Home] = {}
        taken = dict(places)
        for each in instances:
            name = each.destination
            node = "" if selectors[name].head else chosen.get(name, "")
            if not node and not selectors[name].head:
                raise ConfigError(
                    f"destination {name}: no node of the cluster has node = {each.node!r}, or all "
                    "that do are draining; `ray list nodes --detail` shows labels and resources"
                )
            homes[name] = home_for(name, taken, share, registry.STORE_PREFIX, node)
            taken[name] = PlacementRecord(homes[name].process, share, "", "", node=node)
        return homes

    def _demands(self, places: Mapping[str, PlacementRecord], head: str) -> dict[str, Demand]:
        return {
            name: Demand(place.selector, place.node or head, self.loads.of(name))
            for name, place in places.items()
        }

    async def changed(self) -> bool:
        """Return whether nodes have come, ended, or begun to drain since the last look; False where
        everything is on the head."""
        if not self._spread:
            return False
        nodes = await asyncio.to_thread(cluster_nodes)
        return self._known != frozenset((node.id, node.draining) for node in nodes)

    async def look(self) -> None:
        """Move those that must leave their node; now and then others, to even the load."""
        self._spread = any(
            place.node or not place.selector.head for place in self._table.all().values()
        )
        if not self._spread:
            return
        nodes = await asyncio.to_thread(cluster_nodes)
        self._known = frozenset((node.id, node.draining) for node in nodes)
        places = self._table.all()  # nothing waits from here on, so none is stopped meanwhile
        evens = time.monotonic() > self._evened_s + _EVEN_PERIOD_S
        rest = {*self._moving, *self.loads.unsettled(places)}
        alive = {node.id for node in nodes}
        demands = _with_ready(self._demands(places, head_of(nodes)), places, alive)
        moves = assign(nodes, demands, _MOVES_MAX if evens else 0, rest)
        if evens:
            self._evened_s = time.monotonic()
        self._tell_homeless({name for name, node in moves.items() if not node})
        for name, node in moves.items():
            if not node or name in self._moving:
                continue
            if _is_on(alive, places[name]):
                home = _next_home(name, places, node)
                task = asyncio.create_task(self._hand_over(name, home))
                self._moving[name], self._coming[name] = task, home.process
            else:
                self._begin_elsewhere(name, places, node)
        for place in {places[name].process: places[name] for name in moves if moves[name]}.values():
            self._ensure(place)

    def leave_dead(self, nodes: Collection[Node]) -> None:
        """Begin elsewhere what was on nodes that have ended, and tell the processes that hold it
        from now on; move nothing else. Blocks."""
        places, alive = self._table.all(), {node.id for node in nodes}
        demands = _with_ready(self._demands(places, head_of(nodes)), places, alive)
        moves = assign(nodes, demands, 0, ())
        moved = []
        for name, node in moves.items():
            is_lost = node and not _is_on(alive, places[name])
            # A head that has just come may have stopped or moved it meanwhile.
            if is_lost and self._table.get(name) == places[name]:
                self._begin_elsewhere(name, places, node)
                moved.append(name)
        for new in {places[name].process: places[name] for name in moved}.values():
            held = {name: each for name, each in places.items() if each.process == new.process}
            actor = self._ensure(new)
            actor.reconcile.remote({name: each.owner for name, each in held.items()})

    def _begin_elsewhere(self, name: str, places: dict[str, PlacementRecord], node: str) -> None:
        left = places[name].node
        _next_home(name, places, node, lost=True)
        self._table.put(name, places[name])
        tell(
            logger, "moved", "its node %s has ended; it begins on node %s", left, node,
            destination=name, node=node, left=left,
        )  # fmt: skip

    def _tell_homeless(self, names: set[str]) -> None:
        for name in names - self._homeless:
            logger.warning("destination %s: no node fits its `node` any more; it waits", name)
        self._homeless = names

    async def _hand_over(self, name: str, home: Home) -> None:
        began_s = time.monotonic()
        try:
            # Its start is most of the time, and goes on here meanwhile.
            place = self._table.get(name)
            if place is None:
                return
            actor = self._ensure(place.at(home))
            await answered(_START_S, actor.reconcile.remote({}))
            place = self._table.get(name)
            if place is None:  # it was stopped
                return
            self._leaving[name] = place.process
            self._table.put(name, place.at(home))
            stopped_s = time.monotonic()
            old = registry.find_actor(place.process, self._namespace)
            if old is not None:
                with contextlib.suppress(*ACTOR_AWAY):  # then it has ended there, too
                    await answered(_DROP_S, old.drop.remote(name, False))
            await answered(_DROP_S, actor.reconcile.remote({name: place.owner}))
            now_s = time.monotonic()
            logger.warning(
                "destination %s was handed over to node %s in %.1f s, of which it stood %.1f s",
                name, home.node[:12] or "of the head", now_s - began_s, now_s - stopped_s,
            )  # fmt: skip
        except (RayError, InstanceNotRunning, asyncio.TimeoutError) as error:
            # The next look finds where it is now.
            logger.warning("destination %s could not be handed over: %s", name, error)
        finally:
            left = self._leaving.pop(name, "")
            del self._coming[name]
            self.loads.moved(name)
            del self._moving[name]
            if left:
                self._end_if_empty(left)

    def coming(self) -> set[str]:
        """Return the processes that were started for destinations which are still elsewhere."""
        return set(self._coming.values())

    def _end_if_empty(self, left: str) -> None:
        """End the process that a destination has left, if it holds no other, and none is just
        leaving it."""
        old = registry.find_actor(left, self._namespace)
        others = {each.process for each in self._table.all().values()} | {*self._leaving.values()}
        if old is not None and left not in others:
            ray.kill(old, no_restart=True)

    def report(self) -> list[dict[str, Any]]:
        """Return each node, with its destinations and what they take."""
        nodes = cluster_nodes()
        demands = self._demands(self._table.all(), head_of(nodes))
        found = []
        for node in nodes:
            held = {name: each.load for name, each in demands.items() if each.node == node.id}
            found.append(
                {
                    "node": node.id,
                    "head": node.is_head,
                    "draining": node.draining,
                    "cpus": node.cpus,
                    "labels": dict(node.labels),
                    "destinations": sorted(held),
                    "bytes_per_second": sum(load.bytes_per_s for load in held.values()),
                    "memory_bytes": sum(load.memory_bytes for load in held.values()),
                }
            )
        return found
