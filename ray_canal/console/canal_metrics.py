"""Metrics under the names that Canal's own server exports, for boards and rules that people bring.

Names, types and labels are those of Canal 1.1.4 to 1.1.8 (module `prometheus`). Those
that have no counterpart here are left out; docs/reference/metrics.md names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ray_canal.model.metrics import value_at

Status = Mapping[str, Any]
LEFT_OUT = (
    "canal_instance_store",
    "canal_instance_parser_mode",
    "canal_instance_publish_blocking_time",
    "canal_instance_sink_blocking_time",
    "canal_instance_get_rows",
    "canal_instance_ack_rows",
    "canal_instance_get_delay",
    "canal_instance_ack_delay",
    "canal_instance_client_packets",
    "canal_instance_client_bytes",
    "canal_instance_client_empty_batches",
    "canal_instance_client_request_error",
    "canal_instance_client_request_latency",
)
"""Metrics that Canal exports and we do not."""


@dataclass(frozen=True, slots=True)
class CanalMetric:
    """`value` reads it from a status; None where that is not known."""

    name: str
    kind: Literal["gauge", "counter"]
    text: str
    value: Callable[[Status], float | None]
    labels: Mapping[str, str] = field(default_factory=dict)


def _value(key: str, factor: float = 1.0) -> Callable[[Status], float | None]:
    def found(status: Status) -> float | None:
        value = value_at(status, key)
        return None if value is None else float(value) * factor

    return found


def _furthest_behind(status: Status, key: str) -> float:
    places = value_at(status, "store.subscribers", {}).values()
    return max((float(place.get(key) or 0) for place in places), default=0.0)


def _produced(key: str, behind: str) -> Callable[[Status], float | None]:
    """Return the reader of Canal's produced count: what was put into the log, or what is left to
    read where that is more, as after a restart."""

    def found(status: Status) -> float | None:
        value = value_at(status, key)
        return None if value is None else max(float(value), _furthest_behind(status, behind))

    return found


def _consumed(key: str, behind: str) -> Callable[[Status], float | None]:
    """Return what all subscribers have acked of that: boards show the difference."""
    produced = _produced(key, behind)

    def found(status: Status) -> float | None:
        value = produced(status)
        return None if value is None else value - _furthest_behind(status, behind)

    return found


def _subscriptions(status: Status) -> float | None:
    return float(len(value_at(status, "store.subscribers", {})))


_ENTRIES = ("entries", "entries_behind")
_BYTES = ("bytes", "bytes_behind")

CANAL_METRICS = (
    CanalMetric("canal_instance", "gauge", "Canal instance", lambda _: 1.0, {"mode": "ray_canal"}),
    CanalMetric(
        "canal_instance_subscriptions", "gauge", "Canal instance subscriptions", _subscriptions
    ),
    CanalMetric(
        "canal_instance_traffic_delay",
        "gauge",
        "Lag of the last event read, in milliseconds",
        _value("lag_seconds", 1000.0),
    ),
    CanalMetric(
        "canal_instance_put_delay",
        "gauge",
        "Lag of the last entry put into the log, in milliseconds",
        _value("lag_seconds", 1000.0),
    ),
    CanalMetric("canal_instance_put_rows", "counter", "Rows put into the log", _value("rows")),
    CanalMetric(
        "canal_instance_transactions",
        "counter",
        "Transactions put into the log",
        _value("transactions"),
    ),
    CanalMetric(
        "canal_instance_received_binlog_bytes",
        "counter",
        "Binlog bytes received",
        _value("fetched.received_bytes"),
    ),
    CanalMetric(
        "canal_instance_store_produce_seq", "counter", "Entries put", _produced(*_ENTRIES)
    ),
    CanalMetric(
        "canal_instance_store_consume_seq", "counter", "Entries acked", _consumed(*_ENTRIES)
    ),
    CanalMetric("canal_instance_store_produce_mem", "counter", "Bytes put", _produced(*_BYTES)),
    CanalMetric("canal_instance_store_consume_mem", "counter", "Bytes acked", _consumed(*_BYTES)),
)
