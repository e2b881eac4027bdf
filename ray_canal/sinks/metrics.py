"""A sink's state as metrics, by Ray's own library (docs/reference/metrics.md)."""

from __future__ import annotations

from ray.util.metrics import Counter, Gauge

from ray_canal.sinks.runner import SinkStatus

METRICS_PERIOD_S = 10.0
_COUNTERS = {
    "canal_sink_rows_total": ("rows", "Rows that the target has taken"),
    "canal_sink_commits_total": ("commits", "Commits in the target"),
    "canal_sink_commit_seconds_total": ("commit_seconds", "Time in commits"),
    "canal_sink_retries_total": ("retries", "Failures after which the target was opened again"),
    "canal_sink_dead_letters_total": ("dead_letters", "Entries that the target could not take"),
}
_TAGS = ("destination", "sink")


class SinkMetrics:
    """One sink's."""

    def __init__(self, destination: str, sink: str) -> None:
        self._tags = {"destination": destination, "sink": sink}
        self._up = Gauge("canal_sink_up", "1 while the sink writes, or may", _TAGS)
        self._counters = {name: Counter(name, text, _TAGS) for name, (_, text) in _COUNTERS.items()}
        self._told = dict.fromkeys(_COUNTERS, 0.0)

    def publish(self, status: SinkStatus) -> None:
        """Say what a status says."""
        self._up.set(float(status.state in ("running", "paused")), self._tags)
        for name, (key, _) in _COUNTERS.items():
            now = float(getattr(status, key))
            if now > self._told[name]:
                self._counters[name].inc(now - self._told[name], self._tags)
                self._told[name] = now
