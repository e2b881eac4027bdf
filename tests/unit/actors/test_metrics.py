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


def test_a_subscriber_that_has_left_is_no_value(values: Values) -> None:
    """Its process lives on: an alert would fire for as long."""

    def behind(**places: int | None) -> dict[str, Any]:
        found = {name[1:]: {"bytes_behind": each} for name, each in places.items()}
        return status(1, store={"subscribers": found})

    one, name = Metrics("orders"), "canal_subscriber_behind_bytes"
    one.publish(behind(_7=5_000_000_000, _8=3))
    assert values[name, "orders", "7"] == 5_000_000_000
    one.publish(behind(_8=None))  # a stream of its own: how far behind is not known
    assert math.isnan(values[name, "orders", "7"])
    assert math.isnan(values[name, "orders", "8"])
    one.publish(behind(_8=4))
    assert values[name, "orders", "8"] == 4


def test_of_a_destination_that_was_stopped_nothing_is_left(values: Values) -> None:
    """Another process may have it now, and this one lives on with others: an alert would fire for
    as long."""
    one = Metrics("orders")
    places = {"7": {"bytes_behind": 5, "unacked_batches": 2}}
    one.publish(status(1, lag_seconds=9.0, store={"full_s": 300.0, "subscribers": places}))
    one.gone()
    for key in (
        ("canal_up", "orders"),
        ("canal_source_connected", "orders"),
        ("canal_lag_seconds", "orders"),
        ("canal_store_full_seconds", "orders"),
        ("canal_subscriber_behind_bytes", "orders", "7"),
        ("canal_subscriber_unacked_batches", "orders", "7"),
    ):
        assert math.isnan(values[key]), key
