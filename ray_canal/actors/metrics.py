"""A destination's state as metrics, by Ray's own library: each node's agent exports them to
Prometheus, with `ray_` before each name. docs/reference/metrics.md has the table.

They are made of what `status` says, so that both say the same, by the table in model/metrics.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ray.util.metrics import Counter, Gauge

from ray_canal.model.metrics import CONNECTED, UP, selected, up, value_at

_GAUGES = selected("destination", "gauge")
_COUNTERS = selected("destination", "counter")
_STAGE_COUNTERS = selected("stage")
_SUBSCRIBER_GAUGES = selected("subscriber")


class Metrics:
    """One destination's."""

    def __init__(self, destination: str) -> None:
        self._tags = {"destination": destination}
        self._counted: dict[tuple[str, ...], float] = {}
        self._up = Gauge(UP, "1 while the destination reads its source", ("destination",))
        self._connected = Gauge(
            CONNECTED, "1 while the source's connection stands", ("destination",)
        )
        self._gauges = _made(Gauge, _GAUGES)
        self._counters = _made(Counter, _COUNTERS)
        self._stages = _made(Counter, _STAGE_COUNTERS, "stage")
        self._subscribers = _made(Gauge, _SUBSCRIBER_GAUGES, "client_id")
        self._client_ids: set[str] = set()

    def publish(self, status: Mapping[str, Any]) -> None:
        """Say what a status says. What is not known is NaN, which no alert takes for a value."""
        connected = bool(status["connected"])
        self._connected.set(float(connected), self._tags)
        reads = up(status)
        self._up.set(math.nan if reads is None else reads, self._tags)
        for name, (key, _) in _GAUGES.items():
            value = value_at(status, key)
            self._gauges[name].set(math.nan if value is None else float(value), self._tags)
        for name, (key, _) in _COUNTERS.items():
            self._count(self._counters[name], value_at(status, key), name)
        for stage, times in status["stages"].items():
            for name, (key, _) in _STAGE_COUNTERS.items():
                self._count(self._stages[name], times[key], name, stage=stage)
        self._publish_subscribers(value_at(status, "store.subscribers", {}))

    def _publish_subscribers(self, places: Mapping[str, Mapping[str, Any]]) -> None:
        """Say where subscribers are. A gauge keeps its last value for as long as its process lives:
        one of a subscriber that has left is NaN."""
        left, self._client_ids = self._client_ids - places.keys(), {*places}
        for client_id in {*places} | left:
            place, tags = places.get(client_id, {}), {**self._tags, "client_id": client_id}
            for name, (key, _) in _SUBSCRIBER_GAUGES.items():
                value = place.get(key)
                self._subscribers[name].set(math.nan if value is None else float(value), tags)

    def gone(self) -> None:
        """The destination was stopped here, or has moved. Its process may live on, with others."""
        for gauge in (self._up, self._connected, *self._gauges.values()):
            gauge.set(math.nan, self._tags)
        self._publish_subscribers({})

    def _count(self, counter: Any, now: float | None, *key: str, **tags: str) -> None:
        if now is None:
            return
        place = (*key, *tags.values())
        before = self._counted.get(place, 0.0)
        self._counted[place] = now
        # Below what it was: it began again with a new generation.
        more = now - before if now >= before else now
        if more > 0:
            counter.inc(more, {**self._tags, **tags})


def _made(kind: Any, table: dict[str, tuple[str, str]], *tag_keys: str) -> dict[str, Any]:
    return {name: kind(name, text, ("destination", *tag_keys)) for name, (_, text) in table.items()}
