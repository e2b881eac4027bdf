"""Who holds what, of destinations that do not run: from where their cursors are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.actors.placement_table import PlacementRecord, PlacementTable
from ray_canal.client import api
from ray_canal.client import subscribers as operator
from ray_canal.errors import ConfigError, InstanceNotFound, NotSubscribed
from tests.unit.actors.small_cluster import SmallCluster
from tests.unit.meta.test_subscribers import filled


def no_cluster(*_: object, **__: object) -> None:
    raise ConfigError("there is no cluster")


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
