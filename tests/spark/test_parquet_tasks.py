"""Parquet files by Ray tasks: what Spark reads is what it would have written itself."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ray_canal.errors import CanalError
from ray_canal.spark import parquet_tasks
from ray_canal.spark.frames import common_schema, to_frames, with_notes
from ray_canal.spark.parquet_tasks import stage_by_tasks, task_folder
from tests.spark.conftest import inserts
from tests.spark.test_schema import CASES


def all_types(table: str) -> pa.RecordBatch:
    """A change of a table with a column of each type."""
    names = [f"c{n}" for n in range(len(CASES))]
    row = pa.StructArray.from_arrays([pa.array(c[1], c[0]) for c in CASES], names=names)
    moment = dt.datetime(2026, 11, 21, 12, tzinfo=dt.timezone.utc)
    times = pa.array([moment, moment], pa.timestamp("us", "UTC"))
    notes = {b"canal.schema": b"shop", b"canal.table": table.encode(), b"canal.key": b'["c0"]'}
    schema = pa.schema([("execute_time", times.type), ("after", row.type)], notes)
    return pa.record_batch([times, row], schema=schema)


def test_every_type_comes_back_as_from_spark(spark, tmp_path: Path) -> None:
    batch = all_types("all_types")
    stage_by_tasks(tmp_path, {"shop.all_types": [batch]}, 2)
    read = spark.read.parquet(str(next(tmp_path.iterdir())))
    mine = read.drop("schema_name", "table_name", "date")
    with to_frames(spark, [batch]) as made:
        frame = made.by_table["shop.all_types"]
        frame.write.parquet(str(tmp_path / "theirs"))
        theirs = spark.read.parquet(str(tmp_path / "theirs"))
        assert mine.schema.json() == theirs.schema.json()  # the key among its metadata
        assert mine.collect() == theirs.collect() == frame.collect()


def test_rows_that_were_not_written_are_told(spark, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(parquet_tasks, "results", lambda function, parts, width: [1])
    with pytest.raises(CanalError, match="1 of 3 rows were written"):
        stage_by_tasks(tmp_path, {"shop.item": [inserts(1, 3)]}, 1)


def test_texts_have_dictionaries_and_numbers_none(tmp_path: Path) -> None:
    batch = with_notes(inserts(1, 50))
    part = parquet_tasks._Part([batch], common_schema([batch]), tmp_path, 0)
    assert parquet_tasks._write(part) == 50
    (file,) = tmp_path.rglob("*.parquet")
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = [group.column(n) for n in range(group.num_columns)]
    coded = {c.path_in_schema for c in columns if "RLE_DICTIONARY" in c.encodings}
    assert {"event_type", "journal_name", "after.name"} <= coded
    assert not {"position", "row", "execute_time", "after.id"} & coded


def test_names_are_escaped_as_spark_does(spark, tmp_path: Path) -> None:
    table = "a/b=c%d e:f"
    stage_by_tasks(tmp_path, {f"shop.{table}": [inserts(1, 2, table=table)]}, 1)
    (folder,) = tmp_path.glob("*/schema_name=shop/*")
    spark.range(1).selectExpr(f"'{table}' AS table_name", "id").write.partitionBy(
        "table_name"
    ).parquet(str(tmp_path / "theirs"))
    (theirs,) = (tmp_path / "theirs").glob("table_name=*")
    assert folder.name == theirs.name


def test_a_days_rows_are_in_its_folder(spark, tmp_path: Path) -> None:
    days = [dt.date(2026, 11, 21), dt.date(2026, 11, 22)]
    rows = pa.Table.from_batches([inserts(n, 2, day=day) for n, day in enumerate(days)])
    (batch,) = rows.combine_chunks().to_batches()
    stage_by_tasks(tmp_path, {"shop.item": [batch]}, 1)
    found = {path.parent.name: path for path in tmp_path.rglob("*.parquet")}
    assert sorted(found) == ["date=2026-11-21", "date=2026-11-22"]
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


def test_what_a_task_raises_is_raised(spark, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        stage_by_tasks(tmp_path / "file", {"shop.item": [inserts(1, 1)]}, 1)


def test_only_shared_disks_are_written_by_tasks(local_ray: None, monkeypatch: Any) -> None:
    assert task_folder("file:/tmp/x%20y") == Path("/tmp/x y")
    assert task_folder("relative") == Path.cwd() / "relative"
    assert task_folder("s3a://bucket/x") is None
    assert task_folder("hdfs://name/x") is None
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    assert task_folder("/tmp/x") is None


def test_a_table_without_columns(spark, tmp_path: Path) -> None:
    batch = inserts(1, 1)
    time = batch.schema.field("execute_time")
    empty = pa.schema([("id", pa.int32()), ("after", pa.struct([])), time])
    batch = pa.record_batch(
        [pa.array([1], pa.int32()), pa.array([None], pa.struct([])), batch["execute_time"]],
        schema=empty.with_metadata(batch.schema.metadata),
    )
    stage_by_tasks(tmp_path, {"shop.item": [batch]}, 1)
    assert spark.read.parquet(str(next(tmp_path.iterdir()))).count() == 1
