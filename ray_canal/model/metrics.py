"""The table of metrics: each name once, with where its value stands in a destination's status.

Read by what Ray exports (actors/metrics.py) and by the console, which makes alert rules, the
problems on its pages and a Grafana board of it. docs/reference/metrics.md explains each. Ray puts
`ray_` before each name, and so does the console.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

PREFIX = "ray_"

Of = Literal["destination", "stage", "subscriber", "sink"]


class Metric(NamedTuple):
    """`key` is the place of the value in a status, or in the record of a stage, subscriber or
    sink."""

    name: str
    key: str
    text: str
    kind: Literal["gauge", "counter"] = "gauge"
    of: Of = "destination"

    @property
    def exported(self) -> str:
        """The name in Prometheus."""
        return PREFIX + self.name

    @property
    def label(self) -> str:
        """The label next to `destination`; "" if there is none."""
        return {"destination": "", "stage": "stage", "subscriber": "client_id", "sink": "sink"}[
            self.of
        ]


UP = "canal_up"
CONNECTED = "canal_source_connected"
ANSWERS = "canal_answers"

METRICS = (
    Metric("canal_lag_seconds", "lag_seconds", "Age of the last event read; 0 at the log's end"),
    Metric("canal_lag_bytes", "lag_bytes", "Binlog that the server has and we have not read"),
    Metric("canal_store_fill_ratio", "store.fill", "Used part of the log's capacity, 0 to 1"),
    Metric("canal_store_bytes", "store.bytes", "Binlog bytes in the log, in memory and on disk"),
    Metric("canal_store_disk_bytes", "store.bytes_on_disk", "Bytes that the log takes on disk"),
    Metric(
        "canal_store_disk_failing_seconds",
        "store.disk_failing_s",
        "Since when the log cannot go to disk; 0: it can",
    ),
    Metric(
        "canal_store_full_seconds",
        "store.full_s",
        "For how long the log has had no room and waits for a subscriber; 0: it has",
    ),
    Metric(
        "canal_purge_seconds",
        "purge.seconds",
        "Until the server may purge what the oldest cursor needs",
    ),
    Metric(
        "canal_purge_bytes", "purge.bytes", "Binlog that the server has before the oldest cursor"
    ),
    Metric("canal_quarantine_bytes", "quarantine_bytes", "Bytes of events that are held aside"),
    Metric("canal_quarantined_tables", "quarantined_tables", "Tables whose events are held aside"),
    Metric("canal_dead_letters", "dead_letters", "Events that could not be decoded and are kept"),
    Metric("canal_rows_total", "rows", "Rows decoded", "counter"),
    Metric("canal_bytes_total", "bytes", "Binlog bytes decoded", "counter"),
    Metric("canal_entries_total", "entries", "Entries put into the log", "counter"),
    Metric(
        "canal_quarantined_chunks_total",
        "quarantined_chunks",
        "Chunks with events held aside",
        "counter",
    ),
    Metric("canal_skipped_events_total", "skipped_events", "Events that were left out", "counter"),
    Metric("canal_snapshots_running", "snapshot.running", "Snapshots whose rows are being read"),
    Metric("canal_snapshots_failed", "snapshot.failed", "Snapshots that have failed"),
    Metric("canal_snapshot_rows", "snapshot.rows", "Rows of all newest snapshots that are acked"),
    Metric("canal_errors_total", "errors", "Failures that ended a generation", "counter"),
    Metric(
        "canal_generations_total",
        "generations",
        "Starts of the upstream, the first one included",
        "counter",
    ),
    Metric(
        "canal_reconnects_total",
        "fetched.reconnects",
        "Connections to the source made again",
        "counter",
    ),
    Metric(
        "canal_failed_checks_total",
        "fetched.failed_checks",
        "Health checks of the source (detect_sql) that failed",
        "counter",
    ),
    Metric(
        "canal_source_errors_total",
        "fetched.errors",
        "Lost connections to the source, and failed attempts to connect",
        "counter",
    ),
    Metric(
        "canal_stage_busy_seconds_total",
        "busy_s",
        "Seconds that a stage worked",
        "counter",
        "stage",
    ),
    Metric(
        "canal_stage_waiting_seconds_total",
        "waiting_s",
        "Seconds that a stage waited",
        "counter",
        "stage",
    ),
    Metric(
        "canal_subscriber_behind_entries",
        "entries_behind",
        "Entries in the log not acked yet",
        of="subscriber",
    ),
    Metric(
        "canal_subscriber_behind_bytes", "bytes_behind", "Binlog bytes of these", of="subscriber"
    ),
    Metric(
        "canal_subscriber_behind_seconds",
        "seconds_behind",
        "Age of the oldest entry in the log that it has not acked",
        of="subscriber",
    ),
    Metric(
        "canal_subscriber_idle_seconds",
        "last_call_s",
        "Since the subscriber's last call",
        of="subscriber",
    ),
    Metric(
        "canal_subscriber_failed", "failed", "1 while its cursor cannot be served", of="subscriber"
    ),
    Metric(
        "canal_subscriber_unacked_batches",
        "unacked_batches",
        "Batches handed out and not acked",
        of="subscriber",
    ),
    Metric("canal_sink_up", "up", "1 while the sink writes, or may", of="sink"),
    Metric("canal_sink_rows_total", "rows", "Rows that the target has taken", "counter", "sink"),
    Metric("canal_sink_commits_total", "commits", "Commits in the target", "counter", "sink"),
    Metric(
        "canal_sink_commit_seconds_total", "commit_seconds", "Time in commits", "counter", "sink"
    ),
    Metric(
        "canal_sink_retries_total",
        "retries",
        "Failures after which the target was opened again",
        "counter",
        "sink",
    ),
    Metric(
        "canal_sink_dead_letters_total",
        "dead_letters",
        "Entries that the target could not take",
        "counter",
        "sink",
    ),
)


def sink_value(key: str, record: Mapping[str, Any]) -> float | None:
    """Return the value of a sink's metric; None: the record does not say. A sink that was stopped,
    or is at its source's end, is neither up nor down: NaN."""
    if key == "up" and record["state"] == "stopped":
        return math.nan
    if key == "up":
        return float(record["state"] in ("running", "paused"))
    return None if record.get(key) is None else float(record[key])


def selected(of: Of, kind: str = "") -> dict[str, tuple[str, str]]:
    """Key and text of the metrics of a kind, by name."""
    return {m.name: (m.key, m.text) for m in METRICS if m.of == of and kind in ("", m.kind)}


def value_at(status: Any, path: str, default: Any = None) -> Any:
    """Return `store.fill` of a status, whose inner records may be mappings or dataclasses; the
    default where there is none."""
    for key in path.split("."):
        status = status.get(key) if isinstance(status, Mapping) else getattr(status, key, None)
        if status is None:
            return default
    return status


def up(status: Mapping[str, Any]) -> float | None:
    """Return 1.0 while a destination reads its source, 0.0 while it should and does not; None while
    there is nothing to read: it is idle, or its files are at their end."""
    if status["state"] in ("idle", "finished"):
        return None
    return float(status["state"] == "running" and bool(status.get("connected")))
