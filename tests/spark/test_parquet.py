"""Changes to Parquet: partitions, names, and a second delivery that replaces the first."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from ray_canal.spark.parquet import ParquetSink, batch_name
from ray_canal.spark.state import latest
from ray_canal.spark.stream import run
from tests.spark.conftest import ITEM, Log, change_batch, inserts


def ids(spark, path: Path, table: str = "item") -> list[int]:
    frame = spark.read.parquet(f"{path}/schema_name=shop/table_name={table}")
    return sorted(row.id for row in frame.select("after.id").collect())


def test_partitions_and_counts(spark, tmp_path: Path) -> None:
    delete = change_batch([("DELETE", {"id": 0, "name": "x"}, None)], ITEM, position=3000)
    log = Log(
        [
            [inserts(0, 3), inserts(9, 1, table="order"), inserts(3, 1, day=dt.date(2026, 11, 22))],
            [delete],
        ]
    )
    sink = ParquetSink(spark, str(tmp_path / "out"))
    run(log, spark, sink)
    assert sink.counts == {
        ("shop.item", "INSERT"): 4,
        ("shop.order", "INSERT"): 1,
        ("shop.item", "DELETE"): 1,
    }
    files = sorted(str(p.relative_to(tmp_path / "out")) for p in tmp_path.rglob("*.parquet"))
    first = "mysql-bin.000001-000000001000-00000000"
    assert [f for f in files if "3000" not in f] == [
        f"schema_name=shop/table_name=item/date=2026-11-21/{first}-00.parquet",
        f"schema_name=shop/table_name=item/date=2026-11-22/{first}-01.parquet",
        f"schema_name=shop/table_name=order/date=2026-11-21/{first}-02.parquet",
    ]
    frame = spark.read.parquet(str(tmp_path / "out/schema_name=shop/table_name=item"))
    assert sorted(row.id for row in latest(frame).collect()) == [1, 2, 3]
    assert not (tmp_path / "out/_staging" / first).exists()


def test_second_delivery_replaces(spark, tmp_path: Path) -> None:
    """Written but not acked; then, in a new process, the same batch comes with another end."""
    out = str(tmp_path / "out")
    whole = [inserts(0, 4), inserts(50, 1, table="order", position=1500)]
    log = Log([whole])
    with pytest.raises(ConnectionError):
        run(log, spark, _dies_after(ParquetSink(spark, out)))
    assert ids(spark, tmp_path / "out") == [0, 1, 2, 3]

    again = Log([[inserts(0, 4)], [inserts(50, 1, table="order", position=1500)]])
    sink = ParquetSink(spark, out)
    run(again, spark, sink)
    assert ids(spark, tmp_path / "out") == [0, 1, 2, 3]
    assert ids(spark, tmp_path / "out", "order") == [50]
    assert sum(sink.counts.values()) == 5


def test_retry_counts_once(spark, tmp_path: Path) -> None:
    sink = ParquetSink(spark, str(tmp_path / "out"))
    calls: list[int] = []

    def flaky(frames, message) -> None:
        sink(frames, message)
        calls.append(message.id)
        if len(calls) == 1:
            raise ConnectionError("after the write")

    run(Log([[inserts(0, 4)], [inserts(4, 1, position=5000)]]), spark, flaky, retries=1)
    assert sum(sink.counts.values()) == 5
    assert ids(spark, tmp_path / "out") == [0, 1, 2, 3, 4]


def test_batch_name_is_the_first_row_of_all() -> None:
    batches = [
        inserts(0, 1, journal_name="bin.1000000", position=4),
        inserts(0, 1, journal_name="bin.999999", position=900),
        inserts(0, 0, journal_name="bin.000001"),
    ]
    assert batch_name(batches) == "bin.999999-000000000900-00000000"
    assert batch_name([]) == ""


def _dies_after(sink: ParquetSink):
    def function(frames, message) -> None:
        sink(frames, message)
        raise ConnectionError("killed before the ack")

    return function
