"""The demo's Spark half: micro-batches of the same log, counted by Spark SQL, shown as Spark shows
tables."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from pyspark.sql import DataFrame
from rich.console import Console

import ray_canal as canal
from ray_canal import spark as bridge

Counts = Counter[tuple[str, str]]


def summarise(
    console: Console, destination: str, client_id: int, stopped: threading.Event
) -> Counts:
    """Read the log to its end through Spark and print Spark's summary table."""
    began = time.monotonic()
    session = bridge.session("ray_canal demo")
    console.print(f"   Spark {session.version} runs on Ray after {time.monotonic() - began:.0f} s")
    counts: Counts = Counter()

    def count(frames: dict[str, DataFrame], message: Any) -> None:
        for name, frame in frames.items():
            for row in frame.groupBy("event_type").count().collect():
                counts[name, row["event_type"]] += row["count"]

    try:
        with canal.connect(destination, client_id) as connector:
            connector.subscribe()
            progress = bridge.run(
                connector, session, count, batch_size=4096, until=lambda _: stopped.is_set()
            )
        console.print(f"   {progress.batches} micro-batches, {progress.rows:,} changes")
        rows = [(table, kind, number) for (table, kind), number in sorted(counts.items())]
        summary = session.createDataFrame(rows, "table string, event_type string, changes long")
        summary.groupBy("table").pivot("event_type").sum("changes").orderBy("table").show(
            truncate=False
        )
    finally:
        bridge.stop()
    return counts
