"""A sink's state as metrics, by Ray's own library (docs/reference/metrics.md)."""

from __future__ import annotations

from ray.util.metrics import Counter, Gauge

from ray_canal.model.metrics import selected, sink_value
from ray_canal.sinks.runner import SinkStatus

METRICS_PERIOD_S = 10.0
_TAGS = ("destination", "sink")


class SinkMetrics:
    """One sink's."""

    def __init__(self, destination: str, sink: str) -> None:
        self._tags = {"destination": destination, "sink": sink}
        gauges, counters = selected("sink", "gauge"), selected("sink", "counter")
        self._gauges = {key: Gauge(name, text, _TAGS) for name, (key, text) in gauges.items()}
        self._counters = {key: Counter(name, text, _TAGS) for name, (key, text) in counters.items()}
        self._told = dict.fromkeys(self._counters, 0.0)

    def publish(self, status: SinkStatus) -> None:
        """Set the gauges of Ray's metrics to a status's values, and raise the counters to them."""
        record = status.as_dict()
        for key, gauge in self._gauges.items():
            gauge.set(sink_value(key, record), self._tags)
        for key, counter in self._counters.items():
            now = sink_value(key, record) or 0.0
            if now > self._told[key]:
                counter.inc(now - self._told[key], self._tags)
                self._told[key] = now
