"""Who holds what, of destinations that do not run: from where their cursors are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.actors.placement_table import PlacementRecord, PlacementTable
from ray_canal.client import api
from ray_canal.client import subscribers as operator
from ray_canal.client.control import subscriber
from ray_canal.errors import (
    ConfigError,
    InstanceNotFound,
    InstanceNotRunning,
    NoClusterHere,
    NotSubscribed,
)
from tests.unit.actors.small_cluster import SmallCluster
from tests.unit.meta.test_subscribers import filled


def no_cluster(*_: object, **__: object) -> None:
    raise NoClusterHere("there is no cluster")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "connect_ray", no_cluster)


def test_without_a_cluster_a_configuration_tells(tmp_path: Path) -> None:
    config = filled(tmp_path)
    found = operator.subscribers(config=config)
    assert {name: [one["client_id"] for one in found[name]] for name in found} == {"orders": [7, 8]}
    operator.unsubscribe("orders", 7, config=config)
    assert [one["client_id"] for one in operator.subscribers(config=config)["orders"]] == [8]
    with pytest.raises(NotSubscribed, match="`ray-canal subscribers orders` names all"):
        operator.unsubscribe("orders", 7, config=config)


def test_without_both_there_is_nobody_to_ask() -> None:
    with pytest.raises(ConfigError, match="no cluster"):
        operator.subscribers()


def test_of_one_that_waits_for_a_node_its_file_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node has ended, and no other one fits: nobody can be asked, the others can."""
    SmallCluster(monkeypatch)
    for each in (operator, api):
        monkeypatch.setattr(each, "connect_ray", lambda *_, **__: None)
    PlacementTable("ray_canal").put("orders", PlacementRecord("canal-store:orders", 1, "{}", "{}"))
    assert operator.subscribers() == {}
    found = operator.subscribers(config=filled(tmp_path))
    assert [one["client_id"] for one in found["orders"]] == [7, 8]
    with pytest.raises(InstanceNotFound, match="has no process now"):
        operator.subscribers("orders")


def test_what_may_run_is_changed_only_if_somebody_says_that_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that runs would write over the change, and the operator would believe it done."""

    def silent(*_: object, **__: object) -> None:
        raise InstanceNotRunning("no Ray cluster stood at '10.0.0.1:6379' within 10 s")

    monkeypatch.setattr(operator, "connect_ray", silent)
    config = filled(tmp_path)
    assert [one["client_id"] for one in operator.subscribers(config=config)["orders"]] == [7, 8]
    with pytest.raises(ConfigError, match=r"cannot be told: no Ray cluster stood .* --offline"):
        operator.unsubscribe("orders", 7, config=config)
    handle = subscriber("orders", 7, config=config)
    assert handle.show()["client_id"] == 7
    with pytest.raises(ConfigError, match="cannot be told"):
        handle.pause()
    assert subscriber("orders", 7, config=config, offline=True).pause()["paused_at"]
    operator.unsubscribe("orders", 7, config=config, offline=True)
    assert [one["client_id"] for one in operator.subscribers(config=config)["orders"]] == [8]


@pytest.mark.parametrize(
    ("state", "why"),
    [(None, "takes no part"), ({"active": False, "head": "b"}, "and b is active")],
)
def test_of_several_heads_another_one_may_run_it(
    state: dict[str, object] | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SmallCluster(monkeypatch)
    monkeypatch.setattr(operator, "connect_ray", lambda *_, **__: None)
    monkeypatch.setattr(operator, "standing", lambda **_: state)
    config = filled(tmp_path)
    heads = config.model_copy(update={"ray": config.ray.model_copy(update={"standby": True})})
    with pytest.raises(ConfigError, match=why):
        operator.unsubscribe("orders", 7, config=heads)
    monkeypatch.setattr(operator, "standing", lambda **_: {"active": True, "head": "a"})
    operator.unsubscribe("orders", 7, config=heads)
