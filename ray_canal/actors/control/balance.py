"""Which node takes which destination, by load. Pure: nodes and loads are given.

A destination takes two things of a node: CPU, in proportion to the bytes that it reads, and memory.
A node's *fullness* is its part of the cluster's load divided by its part of the cluster's CPUs or
memory, whichever is more: 1.0 is its fair part. What has a node stays there, unless the node is
gone, drains, does not fit any more, or is much fuller than another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ray_canal.config.node import NodeSelector

UNEVEN = 1.15
"""A node that is so much fuller than its fair part gives something away."""
CROWDED = 3.0
"""Up to this fullness a node gets what was lost, if a process runs there that takes it at once."""
_BASE_BYTES_PER_S = 64 << 10
_BASE_MEMORY_BYTES = 32 << 20
"""Cost of a destination that reads nothing, or of which nothing is known yet."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster that lives."""

    id: str
    cpus: float
    memory_bytes: float
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: frozenset[str] = frozenset()
    is_head: bool = False
    draining: bool = False

    def fits(self, selector: NodeSelector) -> bool:
        """Return whether the selector means this node. "any" means those with CPUs."""
        if selector.head:
            return self.is_head
        named = bool(selector.labels or selector.resources)
        return (named or self.cpus > 0) and selector.matches(self.labels, self.resources)


@dataclass(frozen=True, slots=True)
class Load:
    """The bytes and memory that a destination takes, as measured lately."""

    bytes_per_s: float = 0.0
    memory_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Demand:
    """A destination: what it takes, which nodes may have it, and which one has it ("": none).
    `ready`: if it has lost its node, the ids of those where a process takes it at once."""

    selector: NodeSelector
    node: str = ""
    load: Load = Load()
    ready: Collection[str] = ()


class _Fullness:
    """The fullness of each node, as destinations are added and taken away."""

    def __init__(self, nodes: Iterable[Node], demands: Mapping[str, Demand]) -> None:
        self.nodes = {node.id: node for node in nodes}
        self._cost = {
            name: (
                _BASE_BYTES_PER_S + demand.load.bytes_per_s,
                _BASE_MEMORY_BYTES + demand.load.memory_bytes,
            )
            for name, demand in demands.items()
        }
        totals = [sum(cost[k] for cost in self._cost.values()) or 1.0 for k in (0, 1)]
        cpus = sum(node.cpus for node in self.nodes.values()) or 1.0
        memory = sum(node.memory_bytes for node in self.nodes.values()) or 1.0
        # What each node could take if everything were spread evenly.
        self._fair = {
            id: (
                totals[0] * (node.cpus or 1e-3) / cpus,
                totals[1] * (node.memory_bytes or 1e-3) / memory,
            )
            for id, node in self.nodes.items()
        }
        self._taken = {id: [0.0, 0.0] for id in self.nodes}

    def add(self, name: str, node: str, sign: int = 1) -> None:
        for k in (0, 1):
            self._taken[node][k] += sign * self._cost[name][k]

    def of(self, node: str, name: str = "", sign: int = 1) -> float:
        """Return a node's fullness, with one destination more (or, `sign` -1, less)."""
        more = self._cost[name] if name else (0.0, 0.0)
        taken, fair = self._taken[node], self._fair[node]
        return max((taken[k] + sign * more[k]) / fair[k] for k in (0, 1))

    def size(self, name: str) -> float:
        """Return how large a destination is, for an order from large to small."""
        totals = [sum(taken[k] for taken in self._fair.values()) for k in (0, 1)]
        return max(self._cost[name][k] / totals[k] for k in (0, 1))


def assign(
    nodes: Collection[Node],
    demands: Mapping[str, Demand],
    moves_max: int,
    rest: Collection[str],
) -> dict[str, str]:
    """Return the new node of each destination that gets another one; "" where no node fits.

    Those that must leave theirs, or have none, go first, each to its least full node; then
    at most `moves_max` others, none of `rest`, from nodes that are `UNEVEN` to emptier ones."""
    staying = [node for node in nodes if not node.draining]
    full = _Fullness(staying, demands)
    homes: dict[str, str] = {}
    leaving = []
    for name, demand in demands.items():
        here = full.nodes.get(demand.node)
        if here is not None and here.fits(demand.selector):
            full.add(name, demand.node)
            homes[name] = demand.node
        else:
            leaving.append(name)
    changed = {}
    fitting = {
        name: [node.id for node in staying if node.fits(demands[name].selector)] for name in leaving
    }
    # Those with the least choice take what they need before others do.
    for name in sorted(leaving, key=lambda name: (len(fitting[name]), -full.size(name), name)):
        near = [
            id
            for id in fitting[name]
            if id in demands[name].ready and full.of(id, name) <= CROWDED
        ]
        best = min(near or fitting[name], key=lambda id: (full.of(id, name), id), default="")
        if best:
            full.add(name, best)
            homes[name] = best
        if best != demands[name].node:
            changed[name] = best
    for _ in range(moves_max):
        found = _better(full, homes, demands, {*rest, *changed})
        if found is None:
            break
        name, node = found
        full.add(name, homes[name], -1)
        full.add(name, node)
        homes[name] = changed[name] = node
    return changed


def _better(
    full: _Fullness,
    homes: Mapping[str, str],
    demands: Mapping[str, Demand],
    rest: Collection[str],
) -> tuple[str, str] | None:
    """Return the one move that lowers the fullest node most, if it is UNEVEN."""
    movable = [name for name in homes if name not in rest]
    # The fullest node may hold nothing that may leave it.
    for node in sorted(full.nodes, key=full.of, reverse=True):
        before = full.of(node)
        if before <= UNEVEN:
            return None
        best: tuple[float, str, str] | None = None
        for name in (name for name in movable if homes[name] == node):
            for other in full.nodes.values():
                if other.id == node or not other.fits(demands[name].selector):
                    continue
                after = max(full.of(node, name, -1), full.of(other.id, name))
                if after < before and (best is None or after < best[0]):
                    best = after, name, other.id
        if best is not None:
            return best[1], best[2]
    return None
