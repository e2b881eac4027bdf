"""A store process that stands in for the controller, on nodes that are given; without Ray."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ray_canal.actors.control import stand_in as module
from ray_canal.actors.control.stand_in import StandIn
from ray_canal.actors.placement_table import PlacementRecord
from tests.unit.actors.control.test_homes import HEAD, ONE, TWO, World


class Cluster(World):
    """Four destinations, two on each of two nodes, and who stands in on the first one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        monkeypatch.setattr(module, "cluster_nodes", lambda: self.nodes)
        monkeypatch.setattr(module, "PlacementTable", lambda namespace: self.table)
        self.told: list[tuple[str, dict[str, str]]] = []
        self.start(share=2, a="any", b="any", c="any", d="any")
        self.processes = {each.node: each.process for each in self.table.places.values()}

    def _ensured(self, place: PlacementRecord) -> Any:
        def told(owners: dict[str, str]) -> None:
            self.told.append((place.process, owners))

        return SimpleNamespace(reconcile=SimpleNamespace(remote=told))

    def stand_in(self, on: str = ONE.id) -> None:
        StandIn(self.processes[on], "ns", self._ensured).look()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_what_died_with_the_head_begins_elsewhere_before_that_is_back(cluster: Cluster) -> None:
    """Wait for no controller: Ray's control store knows already which nodes have ended."""
    lost = {name for name, node in cluster.where().items() if node == TWO.id}
    cluster.nodes = [ONE]
    cluster.stand_in()
    assert set(cluster.where().values()) == {ONE.id}
    (process,) = {cluster.table.places[name].process for name in lost}
    owners = {
        name: each.owner for name, each in cluster.table.places.items() if each.process == process
    }
    assert cluster.told == [(process, owners)]  # it may run already, and look for nothing new


def test_while_there_is_a_head_the_controller_alone_moves(cluster: Cluster) -> None:
    """Leave everything to the controller, however long it is silent."""
    before = cluster.where()
    cluster.nodes = [HEAD, ONE]
    cluster.stand_in()
    assert cluster.where() == before
    assert not cluster.told


def test_one_process_stands_in_and_moves_nothing_that_lives(cluster: Cluster) -> None:
    """Take what has lost its node, once, though the others could be spread more evenly."""
    third = type(ONE)("c" * 56, 400, 8e12)
    cluster.nodes = [ONE, TWO, third]
    before = cluster.where()
    cluster.stand_in()
    assert cluster.where() == before
    cluster.nodes = [TWO, third]
    cluster.stand_in(on=ONE.id)  # given up by Ray, but not ended: it is not asked
    assert cluster.where() == before
    cluster.stand_in(on=TWO.id)
    assert {name for name, node in cluster.where().items() if node == TWO.id} >= {
        name for name, node in before.items() if node == TWO.id
    }
    assert ONE.id not in cluster.where().values()


def test_what_a_new_head_stopped_meanwhile_stays_stopped(cluster: Cluster) -> None:
    """Write no place that is not there any more, or is another one since the look at all."""
    lost = [name for name, node in cluster.where().items() if node == TWO.id]
    cluster.nodes = [ONE]
    seen = cluster.table.all()
    del cluster.table.places[lost[0]]
    cluster.table.all = lambda: dict(seen)  # type: ignore[method-assign]
    cluster.stand_in()
    assert lost[0] not in cluster.where()
    assert cluster.where()[lost[1]] == ONE.id
    ((_, owners),) = cluster.told
    assert lost[1] in owners
