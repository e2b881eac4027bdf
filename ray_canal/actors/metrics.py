"""A destination's state as metrics, by Ray's own library: each node's agent exports them to
Prometheus, with `ray_` before each name. docs/reference/metrics.md has the table.

They are made of what `status` says, so that both say the same.
"""

from __future__ import annotations

import math
from typing import Any

from ray.util.metrics import Counter, Gauge

# name: (key of status, what it is)
_GAUGES = {
    "canal_lag_seconds": ("lag_seconds", "Age of the last event read; 0 at the log's end"),
    "canal_lag_bytes": ("lag_bytes", "Binlog that the server has and we have not read"),
    "canal_store_fill_ratio": ("store.fill", "Used part of the log's capacity, 0 to 1"),
    "canal_store_bytes": ("store.bytes", "Binlog bytes in the log, in memory"),
    "canal_store_disk_bytes": ("store.bytes_on_disk", "Bytes of the log on disk"),
    "canal_store_disk_failing_seconds": (
        "store.disk_failing_s",
        "Since when the log cannot go to disk; 0: it can",
    ),
    "canal_store_full_seconds": (
        "store.full_s",
        "For how long the log has had no room and waits for a subscriber; 0: it has",
    ),
    "canal_purge_seconds": (
        "purge.seconds",
        "Until the server may purge what the oldest cursor needs",
    ),
    "canal_purge_bytes": ("purge.bytes", "Binlog that the server has before the oldest cursor"),
    "canal_quarantine_bytes": ("quarantine_bytes", "Bytes of events that are held aside"),
    "canal_quarantined_tables": ("quarantined_tables", "Tables whose events are held aside"),
}
_COUNTERS = {
    "canal_rows_total": ("rows", "Rows decoded"),
    "canal_bytes_total": ("bytes", "Binlog bytes decoded"),
    "canal_entries_total": ("entries", "Entries put into the log"),
    "canal_quarantined_chunks_total": ("quarantined_chunks", "Chunks with events held aside"),
    "canal_skipped_events_total": ("skipped_events", "Events that were left out"),
    "canal_errors_total": ("errors", "Failures that ended a generation"),
    "canal_generations_total": ("generations", "Starts of the upstream, the first one included"),
    "canal_reconnects_total": ("fetched.reconnects", "Connections to the source made again"),
    "canal_failed_checks_total": (
        "fetched.failed_checks",
        "Health checks of the source (detect_sql) that failed",
    ),
    "canal_source_errors_total": (
        "fetched.errors",
        "Lost connections to the source, and failed attempts to connect",
    ),
}
_STAGE_COUNTERS = {
    "canal_stage_busy_seconds_total": ("busy_s", "Seconds that a stage worked"),
    "canal_stage_waiting_seconds_total": ("waiting_s", "Seconds that a stage waited"),
}
_SUBSCRIBER_GAUGES = {
    "canal_subscriber_behind_entries": ("entries_behind", "Entries in the log not acked yet"),
    "canal_subscriber_behind_bytes": ("bytes_behind", "Binlog bytes of these"),
    "canal_subscriber_idle_seconds": ("last_call_s", "Since the subscriber's last call"),
    "canal_subscriber_failed": ("failed", "1 while its cursor cannot be served"),
    "canal_subscriber_unacked_batches": ("unacked_batches", "Batches handed out and not acked"),
}


class Metrics:
    """One destination's."""

    def __init__(self, destination: str) -> None:
        self._tags = {"destination": destination}
        self._counted: dict[tuple[str, ...], float] = {}
        self._up = Gauge("canal_up", "1 while the destination reads its source", ("destination",))
        self._connected = Gauge(
            "canal_source_connected", "1 while the source's connection stands", ("destination",)
        )
        self._gauges = _made(Gauge, _GAUGES)
        self._counters = _made(Counter, _COUNTERS)
        self._stages = _made(Counter, _STAGE_COUNTERS, "stage")
        self._subscribers = _made(Gauge, _SUBSCRIBER_GAUGES, "client_id")

    def publish(self, status: dict[str, Any]) -> None:
        """Say what a status says. What is not known is NaN, which no alert takes for a value."""
        connected = bool(status["connected"])
        self._connected.set(float(connected), self._tags)
        self._up.set(float(status["state"] == "running" and connected), self._tags)
        for name, (key, _) in _GAUGES.items():
            value = _at(status, key)
            self._gauges[name].set(math.nan if value is None else float(value), self._tags)
        for name, (key, _) in _COUNTERS.items():
            self._count(self._counters[name], _at(status, key), name)
        for stage, times in status["stages"].items():
            for name, (key, _) in _STAGE_COUNTERS.items():
                self._count(self._stages[name], times[key], name, stage=stage)
        for client_id, place in _at(status, "store.subscribers", {}).items():
            for name, (key, _) in _SUBSCRIBER_GAUGES.items():
                if place[key] is not None:
                    tags = {**self._tags, "client_id": client_id}
                    self._subscribers[name].set(float(place[key]), tags)

    def gone(self) -> None:
        """The destination was stopped here."""
        self._up.set(0.0, self._tags)
        self._connected.set(0.0, self._tags)

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


def _at(value: Any, path: str, default: Any = None) -> Any:
    """`store.fill` of a status; None (or the default) where there is none."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else getattr(value, key, None)
        if value is None:
            return default
    return value
