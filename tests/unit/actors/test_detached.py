"""Actors that outlive who makes them: where a store's is made, and that it is made once."""

from __future__ import annotations

import pytest

from ray_canal.actors.detached import made_store
from ray_canal.actors.placement_table import Home
from tests.unit.actors.small_cluster import SmallCluster


class Store:
    """Stands for a store actor's class."""


def test_a_store_is_made_once_and_ends_with_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SmallCluster(monkeypatch)
    home = Home("canal-store:shared:0@b", 2, "b" * 56)
    assert made_store(Store, home, "ns") is made_store(Store, home, "ns")
    (handle,) = cluster.actors.values()
    actor, options, given = handle.made
    assert (actor, given) == (Store, ("canal-store:shared:0@b", "ns", True))
    assert (options["scheduling_strategy"].node_id, options["get_if_exists"]) == ("b" * 56, True)
    assert not options["scheduling_strategy"].soft
