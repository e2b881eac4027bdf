"""Counters rise by what a status rises, over restarts; what is not known is no value."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ray_canal.actors import metrics
from ray_canal.actors.metrics import Metrics

Values = dict[tuple[str, ...], float]


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> Values:
    """What is set and counted, by name and tags."""
    found: Values = {}

    class Meter:
        def __init__(self, name: str, text: str, tag_keys: tuple[str, ...]) -> None:
            self._name = name

        def set(self, value: float, tags: dict[str, str]) -> None:
            found[(self._name, *tags.values())] = value

        def inc(self, more: float, tags: dict[str, str]) -> None:
            key = (self._name, *tags.values())
            found[key] = found.get(key, 0.0) + more

    monkeypatch.setattr(metrics, "Gauge", Meter)
    monkeypatch.setattr(metrics, "Counter", Meter)
    return found


def status(rows: int, **more: Any) -> dict[str, Any]:
    return {"state": "running", "connected": True, "rows": rows, "stages": {}, **more}


def test_a_counter_goes_on_where_a_generation_begins_again(values: Values) -> None:
    one = Metrics("orders")
    for rows in (10, 10, 25, 5):  # 5: a new generation counts from 0
        one.publish(status(rows))
    assert values["canal_rows_total", "orders"] == 30


def test_what_is_not_known_is_no_value(values: Values) -> None:
    one = Metrics("orders")
    one.publish(status(1, lag_seconds=0))
    assert values["canal_lag_seconds", "orders"] == 0
    one.publish(status(1, lag_seconds=None))
    assert math.isnan(values["canal_lag_seconds", "orders"])
    assert (values["canal_source_connected", "orders"], values["canal_up", "orders"]) == (1, 1)
    one.gone()
    assert (values["canal_source_connected", "orders"], values["canal_up", "orders"]) == (0, 0)
