"""Goals of what is measured besides throughput, and their table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from benchmarks.e2e.figures import verdict

_AT_MOST = (
    # part, path in it, what it is, unit, at most
    ("latency", ("busy", "p50_ms"), "commit to client, p50, under load", "ms", 3.0),
    ("latency", ("busy", "p99_ms"), "commit to client, p99, under load", "ms", 10.0),
    ("latency", ("idle", "p50_ms"), "commit to client, p50, idle source", "ms", 4.0),
    ("latency", ("flight", "p50_ms"), "commit to client by Flight, p50, under load", "ms", 3.0),
    ("latency", ("tcp", "p50_ms"), "commit to client by TCP, p50, under load", "ms", 3.0),
    ("latency", ("foreachBatch", "p50_ms"), "commit to foreachBatch, p50", "ms", 500.0),
    ("latency", ("foreachBatch", "p99_ms"), "commit to foreachBatch, p99", "ms", 1500.0),
    ("instance", ("memory_mb",), "memory of a destination beyond its log", "MB", 400.0),
    ("instance", ("start_s",), "start to first row, warm", "s", 5.0),
    ("instance", ("idle_cpu_percent",), "CPU of an idle destination", "% of a core", 1.0),
)
_AT_LEAST = (("spark", ("rows_per_s",), "rows counted by Spark", "rows/s", 400_000.0),)


def lines(report: Mapping[str, Any]) -> Iterator[tuple[str, str, float, str, bool]]:
    """(what, unit, figure, goal, reached) of each goal that was measured."""
    for goals, sign in ((_AT_MOST, "≤"), (_AT_LEAST, "≥")):
        for part, path, what, unit, goal in goals:
            value = report.get(part)
            for key in path:
                value = value.get(key) if isinstance(value, Mapping) else None
            if value is not None:
                reached = value <= goal if sign == "≤" else value >= goal
                yield what, unit, float(value), f"{sign} {goal:,g}", reached


def table(report: Mapping[str, Any]) -> Table:
    """What was measured besides throughput, against its goals."""
    shown = Table(title="latency, instance, Spark")
    for name in ("what", "unit"):
        shown.add_column(name)
    for name in ("figure", "goal", ""):
        shown.add_column(name, justify="right")
    for what, unit, value, goal, reached in lines(report):
        shown.add_row(what, unit, f"{value:,.2f}", goal, verdict(reached))
    return shown
