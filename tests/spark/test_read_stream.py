"""readStream.format("ray_canal") on a real session and a real destination."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from ray_canal.demo import BINLOGS
from tests.processes import wait_for

TABLE = "shop.items"


@pytest.fixture
def destination(local_ray: None) -> Iterator[str]:
    name = f"stream_{uuid.uuid4().hex[:8]}"
    files = [str(path) for path in BINLOGS]
    instance = {"destination": name, "source": {"files": files, "start": "earliest"}}
    canal.start({"meta": {"backend": "memory"}, "instance": [instance]})
    yield name
    canal.stop(name)


def expected() -> list[tuple[str, int, int]]:
    batches = canal.decode_files(BINLOGS, tables=r"shop\.items")
    return [
        (row["journal_name"], row["position"], row["row"])
        for batch in batches
        for row in batch.select(["journal_name", "position", "row"]).to_pylist()
    ]


class Query:
    """Runs of one query with one checkpoint; `fail_at`: the batch that fails after its write."""

    def __init__(self, spark: Any, destination: str, checkpoint: Path) -> None:
        self.spark, self.destination, self.checkpoint = spark, destination, checkpoint
        self.written: dict[int, list[tuple[str, int, int]]] = {}
        self.schema: Any = None

    def run(self, batch_size: int, fail_at: int = -1) -> str:
        """What it failed with, or nothing."""
        reader = self.spark.readStream.format("ray_canal").option("destination", self.destination)
        reader = reader.option("table", TABLE).option("client_id", 71)
        reader = reader.option("batch_size", batch_size).option("maxBytesPerTrigger", "1k")
        if self.schema is not None:
            reader = reader.schema(self.schema)
        frame = reader.load()
        self.schema = frame.schema

        def write(rows: Any, number: int) -> None:
            found = [tuple(r) for r in rows.select("journal_name", "position", "row").collect()]
            assert self.written.setdefault(number, found) == found
            if number == fail_at:
                raise RuntimeError("the disk is full")

        query = (
            frame.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(300)
        except Exception as error:
            return str(error)
        return ""

    @property
    def rows(self) -> list[tuple[str, int, int]]:
        return [row for number in sorted(self.written) for row in self.written[number]]


def test_each_row_once_over_a_failed_batch(spark, destination: str, tmp_path: Path) -> None:
    query = Query(spark, destination, tmp_path)
    assert "the disk is full" in query.run(batch_size=20, fail_at=1)
    assert query.rows == expected()[: len(query.rows)]
    assert query.run(batch_size=60) == ""
    assert len(query.written) > 2
    assert query.rows == expected()
    # Nothing is new: no batch, and what is done is acked.
    count = len(query.written)
    assert query.run(batch_size=60) == ""
    assert len(query.written) == count
    # No change shows the columns, which the destination knows all the same.
    schema, query.schema = query.schema, None
    assert query.run(batch_size=60) == ""
    assert query.schema == schema
    assert len(query.written) == count


def test_a_subscriber_that_was_made_again_is_moved_back_first(
    spark, destination: str, tmp_path: Path
) -> None:
    query = Query(spark, destination, tmp_path)
    assert "the disk is full" in query.run(batch_size=20, fail_at=1)
    canal.subscriber(destination, 71).remove()
    with canal.connect(destination, client_id=71) as connector:
        connector.subscribe(r"shop\.items", start="tail")
    failure = query.run(batch_size=20)
    assert "was removed and made again" in failure
    journal_name, position, _ = query.written[0][-1]
    assert f"seek {journal_name}:{position})" in failure
    canal.subscriber(destination, 71).seek(f"{journal_name}:{position}")
    assert query.run(batch_size=60) == ""
    assert query.rows == expected()


def test_a_query_of_a_table_without_changes_waits_and_stops(
    spark, destination: str, tmp_path: Path
) -> None:
    reader = spark.readStream.format("ray_canal").option("destination", destination)
    reader = reader.option("table", "shop.nothing").option("client_id", 73)
    counts: list[int] = []
    query = (
        reader.schema("event_type STRING")
        .load()
        .writeStream.foreachBatch(lambda rows, _: counts.append(rows.count()))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    wait_for(lambda: bool(counts) or query.exception() is not None, 300, "the first batch")
    query.stop()
    assert query.exception() is None
    assert counts == [0]


def test_what_is_wrong_is_told(spark, destination: str) -> None:
    reader = spark.readStream.format("ray_canal").option("destination", destination)
    with pytest.raises(Exception, match=r"give .option\(.table"):
        reader.load()
    reader = reader.option("table", TABLE).option("client_id", 72)
    with pytest.raises(Exception, match="no option tabel"):
        spark.readStream.format("ray_canal").option("tabel", TABLE).load()
    with pytest.raises(Exception, match="no_such_destination"):
        reader.option("destination", "no_such_destination").load()
    with pytest.raises(Exception, match="a DataFrame has one table"):
        spark.read.format("ray_canal").schema("n INT").load().collect()
