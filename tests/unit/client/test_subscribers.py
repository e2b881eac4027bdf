"""Who holds what, of destinations that do not run: from where their cursors are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.client import subscribers as operator
from ray_canal.errors import ConfigError, NotSubscribed
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
