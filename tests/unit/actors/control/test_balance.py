"""500 destinations over 8 nodes: spread by load, moved only where they must be."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ray_canal.actors.control.balance import Demand, Load, Node, assign
from ray_canal.config.node import NodeSelector

ANY = NodeSelector.parse("any")
NODES = [Node(f"n{k}", 8, 32e9) for k in range(8)]


def loads(seed: int, destinations: int = 500) -> dict[str, Load]:
    """Most are small, some thirty times as large."""
    rng = random.Random(seed)
    return {
        f"d{k}": Load(rng.lognormvariate(12, 1.2), rng.lognormvariate(18, 0.8))
        for k in range(destinations)
    }


def applied(demands: dict[str, Demand], moves: dict[str, str]) -> dict[str, Demand]:
    return {
        name: Demand(demand.selector, moves.get(name, demand.node), demand.load)
        for name, demand in demands.items()
    }


def uneven(demands: dict[str, Demand], nodes: list[Node]) -> float:
    """The fullest node's load, of bytes or of memory, over the mean of all."""
    found = []
    for value in ("bytes_per_s", "memory_bytes"):
        sums = Counter({node.id: 0.0 for node in nodes})
        for demand in demands.values():
            sums[demand.node] += getattr(demand.load, value)
        found.append(max(sums.values()) / (sum(sums.values()) / len(nodes)))
    return max(found)


@pytest.mark.parametrize("seed", range(5))
def test_500_destinations_with_known_loads_are_spread_at_once(seed: int) -> None:
    demands = {name: Demand(ANY, "", load) for name, load in loads(seed).items()}
    demands = applied(demands, assign(NODES, demands, 0, ()))
    assert uneven(demands, NODES) < 1.2


@pytest.mark.parametrize("seed", range(5))
def test_what_is_measured_later_moves_a_few_at_a_time_until_it_is_even(seed: int) -> None:
    unknown = {name: Demand(ANY) for name in loads(seed)}
    demands = applied(unknown, assign(NODES, unknown, 0, ()))
    counts = Counter(demand.node for demand in demands.values())
    assert max(counts.values()) - min(counts.values()) <= 1
    demands = {name: Demand(ANY, demands[name].node, load) for name, load in loads(seed).items()}
    moved = 0
    while moves := assign(NODES, demands, 2, ()):
        assert len(moves) <= 2
        moved += len(moves)
        demands = applied(demands, moves)
    assert uneven(demands, NODES) < 1.2
    assert moved < 100


@pytest.mark.parametrize("how", ["dies", "drains"])
def test_a_node_that_goes_moves_its_share_alone(how: str) -> None:
    demands = {name: Demand(ANY, "", load) for name, load in loads(7).items()}
    demands = applied(demands, assign(NODES, demands, 0, ()))
    its = {name for name, demand in demands.items() if demand.node == "n3"}
    left = [node for node in NODES if node.id != "n3"]
    nodes = left + ([Node("n3", 8, 32e9, draining=True)] if how == "drains" else [])
    moves = assign(nodes, demands, 0, ())
    assert moves.keys() == its
    assert 40 < len(its) < 100
    assert uneven(applied(demands, moves), left) < 1.2
    # It comes back: nothing moves at once, then it fills up, a few at a time.
    demands = applied(demands, moves)
    assert not assign(NODES, demands, 0, ())
    while moves := assign(NODES, demands, 4, ()):
        assert set(moves.values()) == {"n3"} or len(moves) <= 4
        demands = applied(demands, moves)
    assert uneven(demands, NODES) < 1.2


def test_a_larger_node_takes_more() -> None:
    nodes = [Node("small", 4, 16e9), Node("large", 12, 48e9)]
    demands = {name: Demand(ANY, "", load) for name, load in loads(3).items()}
    demands = applied(demands, assign(nodes, demands, 0, ()))
    rate = Counter[str]()
    for demand in demands.values():
        rate[demand.node] += int(demand.load.bytes_per_s)
    assert 2.7 < rate["large"] / rate["small"] < 3.3


def test_only_nodes_that_fit_are_taken() -> None:
    nodes = [
        Node("head", 0, 8e9, is_head=True),
        Node("a", 4, 8e9, {"group": "stores"}, frozenset({"ssd"})),
        Node("b", 4, 8e9, {"group": "decoders"}),
    ]
    demands = {
        "head": Demand(NodeSelector.parse("head")),
        "label": Demand(NodeSelector.parse("group=decoders")),
        "resource": Demand(NodeSelector.parse("ssd")),
        "both": Demand(NodeSelector.parse("group=stores, ssd")),
        "nowhere": Demand(NodeSelector.parse("group=decoders, ssd"), node="a"),
        "any": Demand(ANY),
    }
    moves = assign(nodes, demands, 10, ())
    assert moves.pop("any") in "ab"  # the head has no CPU
    assert moves == {"head": "head", "label": "b", "resource": "a", "both": "a", "nowhere": ""}
    assert not assign(nodes, {"nowhere": Demand(NodeSelector.parse("gpu"))}, 10, ())


def test_who_was_moved_lately_rests() -> None:
    nodes = NODES[:2]
    demands = {f"d{k}": Demand(ANY, "n0", Load(1e6, 1e8)) for k in range(4)}
    assert set(assign(nodes, demands, 2, ["d0", "d1"])) == {"d2", "d3"}
    assert not assign(nodes, demands, 2, list(demands))


def test_one_that_is_larger_than_a_node_is_not_pushed_around() -> None:
    demands = {"giant": Demand(ANY, "n0", Load(1e9, 1e9)), "small": Demand(ANY, "n1", Load(1, 1))}
    assert not assign(NODES[:2], demands, 5, ())


def test_a_process_that_runs_is_joined_until_its_node_is_crowded() -> None:
    nodes = NODES[:2]
    kept = {f"k{k}": Demand(ANY, "n0") for k in range(4)}
    lost = {f"l{k}": Demand(ANY, "gone") for k in range(8)}
    ready = {name: Demand(ANY, "gone", ready=["n0"]) for name in lost}
    assert set(assign(nodes, {**kept, **lost}, 0, ()).values()) == {"n0", "n1"}
    # Three times n0's fair part are more than there is.
    assert set(assign(nodes, {**kept, **ready}, 0, ()).values()) == {"n0"}
    of_four = assign(NODES[:4], {**kept, **ready}, 0, ())
    assert Counter(of_four.values())["n0"] == 5  # 9 of 12 are three times its fourth
