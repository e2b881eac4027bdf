"""What a failed call of an actor becomes, and when a change of the TCP port is one."""

from __future__ import annotations

from typing import Any

import pytest
import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayTaskError

from ray_canal.actors.placement_table import PlacementRecord, PlacementTable
from ray_canal.actors.registry import CONTROLLER_NAME
from ray_canal.client import api
from ray_canal.client.api import call_actor
from ray_canal.errors import ConfigError, InstanceNotFound, InstanceNotRunning
from tests.unit.actors.small_cluster import Handle, SmallCluster


class Method:
    """An actor's method: each call refers to its arguments."""

    def remote(self, *arguments: Any) -> Any:
        return arguments


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (RayTaskError("call", "", ConfigError("no such table")), ConfigError, "no such table"),
        (ActorUnavailableError("gone", None), InstanceNotRunning, "went away during the call"),
        (GetTimeoutError("late"), InstanceNotRunning, "does not answer; try again"),
    ],
)
def test_failures_are_our_own_errors(
    raised: Exception, kind: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(reference: Any, timeout: float | None = None) -> Any:
        raise raised

    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(kind, match=text):
        call_actor(Method(), 1)


def test_without_a_controller_it_is_said_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str, namespace: str) -> Any:
        raise ValueError(name)

    monkeypatch.setattr(ray, "get_actor", none)
    with pytest.raises(InstanceNotRunning, match="ray-canal start CONFIG"):
        api._controller("n")


def test_one_that_waits_for_a_node_is_shown_and_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node that had its process has ended, and no other one fits its `node`."""
    cluster = SmallCluster(monkeypatch)
    monkeypatch.setattr(api, "connect_ray", lambda local: None)
    monkeypatch.setattr(api, "_get", lambda reply, *_: reply.future().result(0))
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
