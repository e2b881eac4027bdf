"""Destinations without a process, as the functions of the package show them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import ray

from ray_canal.actors import registry
from ray_canal.actors.placement_table import PlacementRecord, PlacementTable
from ray_canal.actors.registry import CONTROLLER_NAME
from ray_canal.client import api
from ray_canal.errors import InstanceNotFound, InstanceNotRunning
from tests.unit.actors.small_cluster import Handle, SmallCluster


def test_one_that_waits_for_a_node_is_shown_and_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node that had its process has ended, and no other one fits its `node`."""
    cluster = SmallCluster(monkeypatch)
    monkeypatch.setattr(api, "connect_ray", lambda local: None)
    monkeypatch.setattr(ray, "get", lambda reply, timeout: reply.future().result(0))
    for name in "ab":
        PlacementTable("ns").put(name, PlacementRecord(f"canal-store:{name}", 1, "{}", "{}"))
    running = {"state": "running"}
    cluster.actors["canal-store:b"] = Handle("canal-store:b", answers={"call": running})
    controller = cluster.actors[CONTROLLER_NAME] = Handle(CONTROLLER_NAME)
    assert api.destinations(namespace="ns") == ["a", "b"]
    found = api.status(namespace="ns")
    assert found["b"] == running
    assert found["a"]["state"] == "restarting"
    assert "begins again as soon as a node of the cluster fits" in found["a"]["error"]
    assert api.status("a", namespace="ns") == {"a": found["a"]}
    with pytest.raises(InstanceNotFound, match=r"'c' is running.* \(running: a, b\)"):
        api.status("c", namespace="ns")
    with pytest.raises(InstanceNotFound, match="'c'"):
        api.stop("c", namespace="ns")
    api.stop("a", namespace="ns")
    assert controller.called("stop") == [["a"]]


@pytest.mark.parametrize(
    "ask",
    [
        lambda: registry.find_store("a"),
        registry.find_stores,
        lambda: registry.with_process(),
        api.destinations,
        api.status,
        api.nodes,
        api.server_status,
        lambda: api.stop("a"),
        lambda: api.table_meta("a", "shop.t"),
    ],
)
def test_a_head_that_does_not_answer_is_told(
    ask: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They waited for as long as it slept, or ended with an error of Ray's after a minute."""
    cluster = SmallCluster(monkeypatch)
    monkeypatch.setattr(api, "connect_ray", lambda local: None)
    PlacementTable(registry.NAMESPACE).put("a", PlacementRecord("canal-store:a", 1, "{}", "{}"))
    cluster.head_sleeps = True
    with pytest.raises(InstanceNotRunning, match=r"head does not answer .* wait until it runs"):
        ask()
