"""The main job through Spark: what writers commit is what the Parquet files add up to."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from ray_canal import spark as canal_spark
from ray_canal.errors import InstanceNotFound
from ray_canal.spark.parquet import ParquetSink
from tests.servers import Server
from tests.workload import Workload

ROWS = 25_000


def plain(value: Any, kind: str) -> Any:
    """Spark's Python value as PyMySQL would give it."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, dt.datetime) and kind == "timestamp":
        # PySpark gives instants in the process's zone, without saying so.
        return value.astimezone(dt.timezone.utc).replace(tzinfo=None)
    return value


def state(spark: Any, folder: Path) -> dict[int, tuple[Any, ...]]:
    """A table's rows by key, from its Parquet files."""
    frame = canal_spark.latest(spark.read.parquet(str(folder)))
    kinds = [field.dataType.simpleString() for field in frame.schema.fields]
    rows = [tuple(map(plain, row, kinds)) for row in frame.collect()]
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0]: row for row in rows}


@pytest.mark.parametrize(
    "kind", ["mysql97", *(pytest.param(k, marks=pytest.mark.soak) for k in ("mariadb", "mysql56"))]
)
def test_parquet_equals_select(
    kind: str, request: pytest.FixtureRequest, spark: Any, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(kind)
    work = Workload(server, seed=31, tables=8, database="sparked")
    work.create()
    name, out = f"spark-{server.kind}", tmp_path / "changes"
    done = threading.Event()

    def write() -> None:
        try:
            work.write(ROWS)
        finally:
            done.set()

    canal.start(
        {
            "meta": {"path": str(tmp_path / "meta.db")},
            "instance": [
                {
                    "destination": name,
                    "source": {"address": server.address, "username": "root", "password": ""},
                }
            ],
        }
    )
    sink = ParquetSink(spark, str(out))
    empty_polls = 0  # up to the end of the writers

    def drained(now: canal_spark.Progress) -> bool:
        nonlocal empty_polls
        if not done.is_set():
            empty_polls = now.empty_polls
        return now.empty_polls >= empty_polls + 2

    try:
        with canal.connect(name) as connector:
            connector.subscribe(r"sparked\..*")
            writer = threading.Thread(target=write)
            writer.start()
            # Each batch costs a Spark job for each table, so a few large ones.
            progress = canal_spark.run(
                connector, spark, sink, batch_size=1024, timeout=3.0, until=drained
            )
            writer.join()
    finally:
        with contextlib.suppress(InstanceNotFound):
            canal.stop(name)
    assert progress.rows >= ROWS * 0.9
    assert progress.batches > 1
    assert sum(sink.counts.values()) == progress.rows
    for table, rows in work.rows().items():
        got = state(spark, out / "schema_name=sparked" / f"table_name={table}")
        assert got.keys() == rows.keys(), table
        wrong = [(key, got[key], rows[key]) for key in rows if got[key] != rows[key]]
        assert wrong == [], f"{table}: {len(wrong)} rows, first {wrong[:1]}"
