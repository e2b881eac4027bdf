"""`ray-canal demo`: the bundled binlog files through the whole pipeline, to a terminal and to
Spark.

Everything is real: a local Ray, the actors, two subscribers with their own cursors, a Spark session
on Ray. Only the source is files instead of a server.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import ray_canal as canal
from ray_canal.demo import DESTINATION, binlog_files
from ray_canal.errors import ConfigError
from ray_canal.model.position import EntryPosition, journal_key
from ray_canal.render import changes

_PRINTER, _SPARK = 1001, 1002
_BATCH_SIZE = 64  # memory units of 1 KiB: small batches, so that the bar moves


def run_demo(*, spark: bool, show: int, stopped: threading.Event) -> Counter[tuple[str, str]]:
    """Replay, print, hand to Spark. Returns the changes counted by (table, event type)."""
    console = Console()
    state = Path(tempfile.mkdtemp(prefix="ray-canal-demo-"))
    started_ray = not ray.is_initialized()
    try:
        if spark:
            _prepare_spark()
        console.print("[bold]1. Start[/] a local Ray and the destination's actors")
        began = time.monotonic()
        canal.start(_configuration(state))
        console.print(f"   running after {time.monotonic() - began:.1f} s: {_pipeline_line()}")
        with canal.connect(DESTINATION, _SPARK) as later:
            later.subscribe()  # before the log is read, so that it keeps everything for Spark
        console.print("[bold]2. Replay[/] the bundled binlog files of a shop on MySQL 9.7")
        counts = _replay(console, show, stopped)
        console.print(_summary("Changes received", counts))
        if spark and not stopped.is_set():
            _in_spark(console, stopped)
        canal.stop(DESTINATION)
    finally:
        if started_ray:
            ray.shutdown()
        shutil.rmtree(state, ignore_errors=True)
    return counts


def _configuration(state: Path) -> dict[str, Any]:
    binlogs = binlog_files()
    if not binlogs:
        raise ConfigError("the bundled binlog files are missing from this installation")
    return {
        "meta": {"path": str(state / "meta.db")},
        "instance": [
            {
                "destination": DESTINATION,
                "source": {"files": [str(path) for path in binlogs]},
                "chunk_bytes": 64 << 10,
            }
        ],
    }


def _pipeline_line() -> str:
    decoders = canal.status(DESTINATION)[DESTINATION]["decoders"]
    return "fetch, parse and decode in one process" if not decoders else f"{decoders} decoders"


def _replay(console: Console, show: int, stopped: threading.Event) -> Counter[tuple[str, str]]:
    sizes = {path.name: path.stat().st_size for path in binlog_files()}
    counts: Counter[tuple[str, str]] = Counter()
    columns = (
        TextColumn("   {task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[rows]:,} changes"),
        TimeElapsedColumn(),
    )
    with (
        canal.connect(DESTINATION, _PRINTER) as connector,
        Progress(*columns, console=console) as progress,
    ):
        connector.subscribe()
        task = progress.add_task("replaying", total=sum(sizes.values()), rows=0)
        for message in connector.messages(_BATCH_SIZE, stopped=stopped):
            for part in message.batches_by_part():
                _count(part, counts)
                shown = sum(counts.values()) - sum(batch.num_rows for batch in part)
                for change in changes(part)[: max(0, show - shown)]:
                    progress.console.print(_line(change), markup=False, highlight=False)
            progress.update(
                task, completed=_bytes_before(message.end, sizes), rows=sum(counts.values())
            )
        if not stopped.is_set():
            progress.update(task, completed=sum(sizes.values()))
    return counts


def _count(batches: list[pa.RecordBatch], counts: Counter[tuple[str, str]]) -> None:
    for batch in batches:
        table = batch.schema.metadata[b"canal.table"].decode()
        for kind in batch.column("event_type").value_counts().to_pylist():
            counts[table, kind["values"]] += kind["counts"]


def _bytes_before(end: EntryPosition | None, sizes: dict[str, int]) -> int:
    if end is None:
        return 0
    here = journal_key(end.journal_name)
    before = sum(size for name, size in sizes.items() if journal_key(name) < here)
    return before + end.position


def _line(change: dict[str, Any]) -> str:
    place = f"{change['journal_name']}:{change['position']}+{change['row']}"
    row = change["after"] or change["before"]
    text = ", ".join(f"{key}={value!r}" for key, value in row.items())
    return f"   {place}  {change['event_type']:6} {change['table']}  {text}"[:150]


def _summary(title: str, counts: Counter[tuple[str, str]]) -> Table:
    table = Table("table", "INSERT", "UPDATE", "DELETE", title=title, title_justify="left")
    for name in sorted({key[0] for key in counts}):
        kinds = (counts[name, kind] for kind in ("INSERT", "UPDATE", "DELETE"))
        table.add_row(name, *(f"{count:,}" for count in kinds))
    return table


def _prepare_spark() -> None:
    """Find a Java before Ray starts: its workers inherit the PATH that RayDP's processes need."""
    try:
        from ray_canal.spark import provide_java
    except ImportError as error:
        raise ConfigError(
            f"{error}; or run the demo without Spark: ray-canal demo --no-spark"
        ) from error
    provide_java()


def _in_spark(console: Console, stopped: threading.Event) -> None:
    from ray_canal.demo.in_spark import summarise

    console.print(
        "[bold]3. Spark[/] on the same Ray: the second subscriber's batches as DataFrames"
    )
    summarise(console, DESTINATION, _SPARK, stopped)
