"""Where destinations are put and moved, on nodes and places that are given; without Ray."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any

import pytest

from ray_canal.actors.control import homes as module
from ray_canal.actors.control.balance import Node, assign
from ray_canal.actors.control.homes import Homes
from ray_canal.actors.placement_table import Home, PlacementRecord
from ray_canal.config import load
from ray_canal.errors import ConfigError

HEAD = Node("head" * 14, 0, 8e9, is_head=True)
ONE, TWO = (Node(letter * 56, 4, 8e9, {"zone": letter}) for letter in "ab")


class Table:
    """A PlacementTable in memory."""

    def __init__(self) -> None:
        self.places: dict[str, PlacementRecord] = {}

    def all(self) -> dict[str, PlacementRecord]:
        return dict(self.places)

    def get(self, name: str) -> PlacementRecord | None:
        return self.places.get(name)

    def put(self, name: str, place: PlacementRecord) -> None:
        self.places[name] = place


class World:
    """A cluster whose nodes are listed, and the controller's part of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nodes = [HEAD, ONE, TWO]
        self.asked = 0
        self.started: list[PlacementRecord] = []
        self.table = Table()
        monkeypatch.setattr(module, "cluster_nodes", self._listed)
        self.homes = Homes("ns", self.table, self.started.append)  # type: ignore[arg-type]

    def _listed(self) -> list[Node]:
        self.asked += 1
        return self.nodes

    def start(self, share: int = 1, **nodes: str) -> None:
        source = {"address": "127.0.0.1:3306"}
        config = load(
            {
                "meta": {"backend": "mysql", "address": "127.0.0.1:3306"},
                "instance": [
                    {"destination": name, "node": node, "source": source}
                    for name, node in nodes.items()
                ],
            }
        )
        chosen = self.homes.choose(config.instance, self.table.all(), share)
        for instance in config.instance:
            place = PlacementRecord.of(chosen[instance.destination], instance, config.meta)
            self.table.put(instance.destination, place)

    def look(self) -> bool:
        async def run() -> bool:
            await self.homes.look()
            return await self.homes.changed()

        return asyncio.run(run())

    def where(self) -> dict[str, str]:
        return {name: place.node for name, place in self.table.places.items()}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_what_is_on_the_head_asks_nobody(world: World) -> None:
    world.start(a="head", b="head")
    assert set(world.where().values()) == {""}
    assert world.look() is False
    assert world.asked == 0


def test_any_is_spread_and_a_label_is_kept_to(world: World) -> None:
    world.start(a="any", b="any", c="zone=b", d="zone=b", e="head")
    where = world.where()
    assert (where["c"], where["d"], where["e"]) == (TWO.id, TWO.id, "")
    assert {where["a"], where["b"]} == {ONE.id}  # the other one has two already
    with pytest.raises(ConfigError, match="no node of the cluster has node = 'zone=x'"):
        world.start(f="zone=x")


def test_a_dead_nodes_destinations_are_placed_again_and_started(world: World) -> None:
    world.start(share=2, a="any", b="any", c="any", d="any")
    lost = {name for name, node in world.where().items() if node == TWO.id}
    assert len(lost) == 2
    before = world.table.all()
    world.nodes = [HEAD, ONE]
    assert world.look() is False
    assert set(world.where().values()) == {ONE.id}
    assert {name for name in before if world.table.places[name] != before[name]} == lost
    assert {place.process for place in world.started} == {
        world.table.places[name].process for name in lost
    }
    # All that it was told stays: whose it is, and what it reads.
    for name in lost:
        assert world.table.places[name].owner == before[name].owner


def test_what_is_lost_joins_processes_that_run_rather_than_an_empty_node(world: World) -> None:
    """A process takes seconds to begin; a node that has just come has none."""
    third, empty = (Node(letter * 56, 4, 8e9) for letter in "cd")
    world.nodes = [HEAD, ONE, TWO, third]
    world.start(share=2, **dict.fromkeys("abcdef", "any"))
    running = {each.process for each in world.table.places.values() if each.node != third.id}
    assert len(running) == 2
    world.nodes = [HEAD, ONE, TWO, empty]
    world.look()
    assert {place.process for place in world.table.places.values()} == running
    # Afterwards the load is evened as ever, without a gap.
    demands = world.homes._demands(world.table.all(), HEAD.id)
    assert set(assign(world.nodes, demands, 2, ()).values()) == {empty.id}


def test_who_has_a_process_of_its_own_goes_to_the_emptiest_node(world: World) -> None:
    world.start(share=0, a="any", b="any", c="any", d="any")
    third = Node("c" * 56, 4, 8e9)
    lost = {name for name, node in world.where().items() if node == TWO.id}
    world.nodes = [HEAD, ONE, third]
    world.look()
    assert {world.where()[name] for name in lost} == {third.id}


def fullest(world: World) -> float:
    """The bytes a second of the node with the most, over the mean of all that have some."""
    rates = Counter[str]()
    for name, node in world.where().items():
        rates[node] += int(world.homes.loads.of(name).bytes_per_s)
    return max(rates.values()) / (rates.total() / len(rates))


@pytest.mark.timed
def test_500_destinations_lose_a_node_of_eight_and_stand_elsewhere_in_seconds(
    world: World,
) -> None:
    """P1: its share alone gets other places and processes, by what each one takes."""
    rng = random.Random(24)
    nodes = [Node(f"{number:x}" * 56, 8, 32e9) for number in range(1, 9)]
    world.nodes = [HEAD, *nodes]
    names = [f"d{number:03d}" for number in range(500)]
    world.start(share=16, **dict.fromkeys(names, "any"))
    counts = Counter(world.where().values())
    assert max(counts.values()) - min(counts.values()) <= 1
    world.homes.loads.note(
        {name: (rng.lognormvariate(12, 1.2), rng.lognormvariate(18, 0.8)) for name in names}
    )
    before = world.table.all()
    lost = {name for name, node in world.where().items() if node == nodes[3].id}
    was_uneven = fullest(world)
    world.nodes = [HEAD, *nodes[:3], *nodes[4:]]
    began_s = time.process_time()
    world.look()
    assert time.process_time() - began_s < 5.0
    after = world.table.all()
    assert {name for name in names if after[name] != before[name]} == lost
    assert nodes[3].id not in set(world.where().values())
    # They go where there is room by load, and into processes that run.
    assert fullest(world) < was_uneven + 0.05
    assert {after[name].process for name in lost} <= {each.process for each in before.values()}
    assert Counter(place.process for place in after.values()).most_common(1)[0][1] <= 20


def test_where_no_node_fits_it_waits(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.start(a="zone=b")
    world.nodes = [HEAD, ONE]
    for _ in range(3):
        world.look()
    assert world.where() == {"a": TWO.id}
    assert not world.started
    assert caplog.text.count("no node fits its `node`") == 1
    world.nodes = [HEAD, ONE, Node("c" * 56, 4, 8e9, {"zone": "b"})]
    world.look()
    assert world.where() == {"a": "c" * 56}


class Actor:
    """Notes what it is told."""

    def __init__(self, name: str, calls: list[tuple[str, str, Any]]) -> None:
        self.name = name
        for method in ("reconcile", "drop"):
            setattr(self, method, self._remote(method, calls))

    def _remote(self, method: str, calls: list[tuple[str, str, Any]]) -> Any:
        class Remote:
            @staticmethod
            def remote(argument: Any, *more: Any) -> tuple[Any, ...]:
                return self.name, method, argument, *more

        return Remote


def test_a_draining_node_is_left_in_order(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process stands before the destination ends, which ends before it begins there."""
    world.start(a="zone=a")
    owner = world.table.places["a"].owner
    calls: list[Any] = []
    ended: list[Any] = []

    async def answered(limit_s: float, reply: Any) -> None:
        calls.append((*reply, world.table.places["a"].node[:1]))

    monkeypatch.setattr(module, "answered", answered)
    monkeypatch.setattr(
        module.registry, "find_actor", lambda process, namespace: Actor("old", calls)
    )
    monkeypatch.setattr(module.ray, "kill", lambda actor, no_restart: ended.append(actor.name))
    next_node = Node("c" * 56, 4, 8e9, {"zone": "a"})
    draining = Node(ONE.id, 4, 8e9, {"zone": "a"}, draining=True)
    world.nodes = [HEAD, draining, next_node]
    world.homes._ensure = lambda place: Actor("new", calls)

    async def run() -> None:
        await world.homes.look()
        assert world.homes.coming() == {"canal-store:a@cccccccccccc"}
        await asyncio.gather(*world.homes._moving.values())
        await world.homes.look()

    asyncio.run(run())
    assert world.table.places["a"].home == Home("canal-store:a@cccccccccccc", 1, next_node.id)
    assert calls == [
        ("new", "reconcile", {}, "a"),
        ("old", "drop", "a", False, "c"),
        ("new", "reconcile", {"a": owner}, "c"),
    ]
    assert ended == ["old"]
    assert not world.homes._moving
    assert not world.homes.coming()


def test_a_process_that_several_leave_ends_after_the_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is still to be ended there is not cut off."""
    world.start(share=2, a="zone=a", b="zone=a")
    assert world.table.places["a"].process == world.table.places["b"].process
    ended: list[str] = []
    dropped: list[str] = []
    slow = asyncio.Event()

    async def answered(limit_s: float, reply: Any) -> None:
        _, method, argument, *_ = reply
        if (method, argument) == ("drop", "b"):
            await slow.wait()
        if method == "drop":
            assert not ended
            dropped.append(argument)

    monkeypatch.setattr(module, "answered", answered)
    monkeypatch.setattr(
        module.registry, "find_actor", lambda process, namespace: Actor("old", [])
    )
    monkeypatch.setattr(module.ray, "kill", lambda actor, no_restart: ended.append(actor.name))
    world.nodes = [
        HEAD,
        Node(ONE.id, 4, 8e9, {"zone": "a"}, draining=True),
        Node("c" * 56, 4, 8e9, {"zone": "a"}),
    ]
    world.homes._ensure = lambda place: Actor("new", [])

    async def run() -> None:
        await world.homes.look()
        tasks = list(world.homes._moving.values())
        while "a" in world.homes._moving:
            await asyncio.sleep(0)
        assert not ended
        slow.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())
    assert dropped == ["a", "b"]
    assert ended == ["old"]


def test_a_process_that_is_left_ends_though_the_next_one_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would end it later: nothing has its place there."""
    world.start(a="zone=a")
    ended: list[str] = []

    async def answered(limit_s: float, reply: Any) -> None:
        if reply[1] == "reconcile" and reply[2]:
            raise asyncio.TimeoutError

    monkeypatch.setattr(module, "answered", answered)
    monkeypatch.setattr(
        module.registry, "find_actor", lambda process, namespace: Actor("old", [])
    )
    monkeypatch.setattr(module.ray, "kill", lambda actor, no_restart: ended.append(actor.name))
    draining = Node(ONE.id, 4, 8e9, {"zone": "a"}, draining=True)
    world.nodes = [HEAD, draining, Node("c" * 56, 4, 8e9, {"zone": "a"})]
    world.homes._ensure = lambda place: Actor("new", [])

    async def run() -> None:
        await world.homes.look()
        await asyncio.gather(*world.homes._moving.values())

    asyncio.run(run())
    assert world.where() == {"a": "c" * 56}
    assert ended == ["old"]
