"""A column was a time and became text: rows of its older version have the digits that the server
shows."""

from __future__ import annotations

import random
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from ray_canal.offline import decode_files
from ray_canal.spark.frames import to_frames
from ray_canal.spark.parquet_tasks import stage_by_tasks
from ray_canal.spark.schema import merged_type
from ray_canal.spark.versions import in_one_schema
from ray_canal.views.mysql_texts import fraction_digits, fraction_notes
from ray_canal.views.table_events import is_of_table
from tests.integration.test_types import TIMES, random_time
from tests.servers import Server

TABLE = "digits.t"


@pytest.fixture(params=["mysql97", "mariadb"])
def versions(request: pytest.FixtureRequest) -> tuple[list[pa.RecordBatch], list[tuple[Any, ...]]]:
    """The changes of a table before and after its times became text, and what SELECT shows."""
    server: Server = request.getfixturevalue(request.param)
    chance = random.Random(23)
    columns = ", ".join(f"{name} {kind} null" for name, kind in TIMES.items())
    rows = ["null" + ", null" * (len(TIMES) - 1)]
    rows += [", ".join(random_time(chance, kind) for kind in TIMES.values()) for _ in range(60)]
    changed = ", ".join(f"modify {name} varchar(40)" for name in TIMES)
    server.execute("flush binary logs")
    first = len(server.binlogs()) - 1
    server.execute(
        "set time_zone = '+00:00'",
        "drop database if exists digits",
        "create database digits",
        f"create table {TABLE} (id int primary key auto_increment, {columns})",
        f"insert into {TABLE} ({', '.join(TIMES)}) values ({'), ('.join(rows)})",
        f"alter table {TABLE} {changed}",
        f"insert into {TABLE} (time3) values ('new')",
        "flush binary logs",
    )
    wanted = server.execute(f"select {', '.join(TIMES)} from {TABLE} order by id")
    found = decode_files(server.binlogs()[first:-1], tables=r"digits\.t")
    return [batch for batch in found if not is_of_table(batch)], [*wanted]


def shown(frame: DataFrame) -> list[tuple[Any, ...]]:
    rows = frame.orderBy("after.id").selectExpr(*(f"after.{name}" for name in TIMES)).collect()
    return [tuple(row) for row in rows]


def test_in_a_batch_of_both_versions(spark: Any, versions: Any) -> None:
    batches, wanted = versions
    assert len(batches) == 2
    with to_frames(spark, batches) as made:
        assert shown(made.by_table[TABLE]) == wanted


@pytest.mark.parametrize("writer", ["spark", "arrow"])
def test_in_files_of_one_version_each(
    writer: str, spark: Any, versions: Any, tmp_path: Path
) -> None:
    batches, wanted = versions
    frames = []
    for number, batch in enumerate(batches):
        folder = tmp_path / str(number)
        if writer == "arrow":
            stage_by_tasks(folder, {TABLE: [batch]}, 1)
            folder = next(folder.iterdir())
        else:
            with to_frames(spark, [batch]) as made:
                made.by_table[TABLE].write.parquet(str(folder))
        frames.append(spark.read.parquet(str(folder)))
    assert shown(reduce(DataFrame.unionByName, in_one_schema(frames))) == wanted


def test_frames_of_two_declarations_have_the_digits_of_the_greater_one(spark: Any) -> None:
    """Read in one schema, they may be read with a third version, in which the column is text."""
    frames = [
        spark.sql(f"SELECT named_struct('t', TIMESTAMP_NTZ '2026-11-28 01:02:03{f}') AS after")
        for f in (".12", ".123456", ".1")
    ]
    texts = spark.sql("SELECT named_struct('t', 'x') AS after")
    told = []
    for frame, digits in zip(frames, (3, 6, None), strict=True):
        schema = frame.schema
        if digits is not None:
            schema["after"].dataType["t"].metadata = {"canal.fraction": str(digits)}
        told.append(spark.createDataFrame(frame.rdd, schema))
    for chosen, wanted in ((told[:2], [".120000", ".123456"]), (told, [".12", ".123456", ".1"])):
        one = reduce(DataFrame.unionByName, in_one_schema(chosen))
        both = reduce(DataFrame.unionByName, in_one_schema([one, texts]))
        found = [row.t for row in both.select("after.t").collect()]
        assert found == [*(f"2026-11-28 01:02:03{each}" for each in wanted), "x"]


@pytest.mark.parametrize(
    ("older", "newer", "digits"),
    [
        (pa.field("t", pa.timestamp("us"), metadata=fraction_notes(6)), 3, 6),
        (pa.field("t", pa.timestamp("us"), metadata=fraction_notes(0)), 3, 3),
        (pa.field("t", pa.timestamp("us")), 3, None),
    ],
)
def test_the_digits_of_two_versions(older: pa.Field, newer: int, digits: int | None) -> None:
    other = pa.field("t", pa.timestamp("us"), metadata=fraction_notes(newer))
    for first, second in ((older, other), (other, older)):
        merged = merged_type(pa.struct([first]), pa.struct([second]))
        assert fraction_digits(merged.field("t")) == digits
