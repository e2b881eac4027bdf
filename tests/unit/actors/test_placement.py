"""Options that Ray's actors are made with."""

from __future__ import annotations

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ray_canal.actors import placement
from ray_canal.config.node import NodeSelector


def test_an_actor_that_outlives_its_maker_is_made_once_and_restarted() -> None:
    options = placement.outliving("store", "canal", placement.ON_HEAD, max_concurrency=4)
    assert (options["lifetime"], options["get_if_exists"]) == ("detached", True)
    assert (options["max_restarts"], options["max_task_retries"]) == (-1, 0)
    assert options["num_cpus"] == 0
    assert options["max_concurrency"] == 4
    assert options["resources"] == {placement.HEAD_RESOURCE: 0.001}


def test_a_selector_becomes_labels_and_shares_of_resources() -> None:
    assert placement.where(NodeSelector.parse("head")) == placement.ON_HEAD
    assert placement.where(NodeSelector.parse("any")) == {}
    found = placement.where(NodeSelector(labels={"zone": "a"}, resources=("ssd",)))
    assert found == {"label_selector": {"zone": "a"}, "resources": {"ssd": 0.001}}


def test_an_actor_of_one_node_ends_with_it() -> None:
    strategy = placement.on_node("ab" * 28)["scheduling_strategy"]
    assert isinstance(strategy, NodeAffinitySchedulingStrategy)
    assert (strategy.node_id, strategy.soft) == ("ab" * 28, False)
    assert placement.on_node("") == placement.ON_HEAD


def test_readers_are_spread_over_the_nodes_that_are_named() -> None:
    assert placement.spread("any") == {"scheduling_strategy": "SPREAD"}
    found = placement.spread("zone=a, ssd")
    assert found["scheduling_strategy"] == "SPREAD"
    assert (found["label_selector"], found["resources"]) == ({"zone": "a"}, {"ssd": 0.001})
