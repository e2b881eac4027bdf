"""A sink's counters rise by what its status rises."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ray_canal.sinks import metrics
from ray_canal.sinks.metrics import SinkMetrics
from ray_canal.sinks.runner import SinkStatus


def test_only_what_is_new_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, float] = {}

    class Meter:
        def __init__(self, name: str, text: str, tags: tuple[str, ...]) -> None:
            self._name = name

        def set(self, value: float, tags: dict[str, str]) -> None:
            found[self._name] = value

        def inc(self, more: float, tags: dict[str, str]) -> None:
            assert tags == {"destination": "orders", "sink": "lake"}
            found[self._name] = found.get(self._name, 0.0) + more

    monkeypatch.setattr(metrics, "Gauge", Meter)
    monkeypatch.setattr(metrics, "Counter", Meter)
    one, status = SinkMetrics("orders", "lake"), SinkStatus(state="running", rows=7)
    for each in (
        status,
        status,
        replace(status, rows=9, retries=1),
        replace(status, state="failed", rows=9),
    ):
        one.publish(each)
    assert found["canal_sink_rows_total"] == 9
    assert found["canal_sink_retries_total"] == 1
    assert found["canal_sink_up"] == 0
