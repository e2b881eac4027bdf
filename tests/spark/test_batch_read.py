"""spark.read.format("ray_canal"): binlog files, and what the log of a destination holds."""

from __future__ import annotations

import contextlib
import datetime as dt
import gc
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

import ray_canal as canal
from ray_canal.client.connector import Connector
from ray_canal.client.log_end import LogEnd, reach_of
from ray_canal.client.transport import RayTransport
from ray_canal.demo import BINLOGS
from ray_canal.errors import ConfigError
from ray_canal.file_parts import plan_parts
from ray_canal.spark import batch_read
from ray_canal.spark.batch_read import BatchReads, log_batches, log_schema, pruned
from ray_canal.spark.chunks import MemoryFile
from ray_canal.spark.frames import to_frames
from ray_canal.spark.keys import key_of
from ray_canal.spark.read_options import ReadOptions
from ray_canal.spark.schema import readable_schema
from ray_canal.spark.stream_schema import table_filter
from tests.local_destination import destination_of
from tests.loop_thread import LoopThread
from tests.lossy_calls import LossyCalls
from tests.spark.conftest import ITEM, Log, change_batch, inserts

TABLE = "shop.orders"
PLACE = ("journal_name", "position", "row")


def places(rows: list[Any]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in PLACE) for row in rows)


@pytest.fixture(scope="module")
def truth() -> list[pa.RecordBatch]:
    return list(canal.decode_files(BINLOGS, tables=r"shop\.orders"))


def reader(spark: Any, **options: Any) -> Any:
    made = spark.read.format("ray_canal").option("table", TABLE).option("part_bytes", "40k")
    for name, value in options.items():
        made = made.option(name, value)
    return made


def test_files_have_the_rows_and_columns_that_run_gives(spark, truth: Any) -> None:
    frame = reader(spark).load([str(path) for path in BINLOGS])
    assert frame.rdd.getNumPartitions() > 3
    with to_frames(spark, truth) as made:
        wanted = made.by_table[TABLE]
        names = [field for field in wanted.columns if field in frame.columns]
        assert names == wanted.columns
        order = [*PLACE, "event_type"]
        assert frame.select(names).orderBy(order).collect() == wanted.orderBy(order).collect()
    assert frame.count() == sum(batch.num_rows for batch in truth)


def test_a_query_reads_its_columns_alone(spark, truth: Any) -> None:
    frame = reader(spark).load(str(Path(BINLOGS[0]).parent))
    paid = frame.where("event_type = 'UPDATE'").groupBy("after.status").count().collect()
    after = [
        row["after"]["status"]
        for batch in truth
        for row in batch.to_pylist()
        if row["event_type"] == "UPDATE"
    ]
    assert {row["status"]: row["count"] for row in paid} == {s: after.count(s) for s in after}


def test_columns_that_no_version_has_are_null_in_every_row(spark, truth: Any) -> None:
    frame = reader(spark).load([str(path) for path in BINLOGS])
    count = sum(batch.num_rows for batch in truth)
    assert frame.where("sql IS NULL").count() == count
    after = StructType([*frame.schema["after"].dataType, StructField("added", IntegerType())])
    wider = StructType([StructField("after", after)])
    frame = reader(spark).schema(wider).load([str(path) for path in BINLOGS])
    assert [row.added for row in frame.select("after.added").collect()] == [None] * count
    deleted = sum(batch.column("after").null_count for batch in truth)
    assert frame.where("after IS NULL AND after.added IS NULL").count() == deleted


def test_an_rdd_has_its_rows_when_its_frame_is_gone(spark, truth: Any) -> None:
    whole = reader(spark, part_bytes="16m").load([str(path) for path in BINLOGS])
    rdd = whole.select("position").rdd
    assert rdd.getNumPartitions()  # it is planned now
    del whole
    for _ in range(2):
        gc.collect()
        spark._jvm.System.gc()
        time.sleep(0.5)
    assert rdd.count() == sum(batch.num_rows for batch in truth)


def test_a_table_without_changes_is_named(spark) -> None:
    with pytest.raises(Exception, match=r"no change of shop\.nothing in"):
        reader(spark, table="shop.nothing").load([str(path) for path in BINLOGS])
    with pytest.raises(Exception, match="part_bytes is 'many'"):
        reader(spark, part_bytes="many").load(str(BINLOGS[0]))
    with pytest.raises(Exception, match="no binlog file /nowhere"):
        reader(spark).load("/nowhere")


@pytest.fixture
def destination(local_ray: None) -> Iterator[str]:
    name = f"read_{uuid.uuid4().hex[:8]}"
    source = {"files": [str(path) for path in BINLOGS], "start": "earliest"}
    instance = {"destination": name, "source": source}
    canal.start({"meta": {"backend": "memory"}, "instance": [instance]})
    yield name
    canal.stop(name)


def test_what_a_log_holds(spark, destination: str, truth: Any) -> None:
    made = spark.read.format("ray_canal").option("table", TABLE).option("destination", destination)
    frame = made.load()
    expected = places([row for batch in truth for row in batch.to_pylist()])
    assert places(frame.select(*PLACE).collect()) == expected
    assert places(frame.select(*PLACE).collect()) == expected  # nothing was acked
    assert canal.subscribers(destination)[destination] == []


def test_a_log_that_is_full_ends_a_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, truth: Any
) -> None:
    """Without Ray: a destination in this process, whose log has room for a third of the files."""
    thread, stack = LoopThread(), contextlib.AsyncExitStack()
    made = destination_of(tmp_path, store={"buffer_size": 512})
    store = thread.run(stack.enter_async_context(made))
    LossyCalls(store, thread.loop).install(monkeypatch)
    connector = Connector(RayTransport("x"), 9)
    connector.subscribe(table_filter(TABLE), policy="block")
    end = LogEnd(lambda: reach_of(thread.run(store.status()), 9))
    options = ReadOptions.of({"table": TABLE, "destination": "x"})
    found = [batch for each in log_batches(connector, options, end) for batch in each]
    thread.run(stack.aclose())
    thread.end()
    rows = places([row for batch in found for row in batch.to_pylist()])
    whole = places([row for batch in truth for row in batch.to_pylist()])
    assert 100 < len(rows) < len(whole) / 2
    assert rows == whole[: len(rows)]


@pytest.mark.parametrize("memory_part", [8, 1 << 60])
def test_without_ray_threads_decode_into_memory_or_files(
    truth: Any, memory_part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_read, "_MEMORY_PART", memory_part)
    reads = BatchReads(lambda _: MemoryFile(), lambda: 2, lambda: False)
    options = ReadOptions.of({"table": TABLE, "path": str(Path(BINLOGS[0]).parent)})
    schema = reads.schema(options)
    assert {"sql", "renamed_from", "after"} <= set(schema.names)
    name, places = reads.open(options, schema)
    rows = [row for place in places for row in read(place)]
    is_file = os.readlink(places[0].split(":")[1]).startswith(tempfile.gettempdir())
    assert is_file == (memory_part > 8)
    assert len(rows) == sum(batch.num_rows for batch in truth)
    reads.release(name)
    with pytest.raises(FileNotFoundError):
        read(places[0])
    name, places = reads.open(options, pa.schema([]))  # they are counted
    assert sum(len(read(place)) for place in places) == len(rows)
    reads.release(name)


def read(place: str) -> list[dict[str, Any]]:
    """The rows in a chunk of a memory file."""
    path, _, begin, length = place.removeprefix("memory:").rsplit(":", 3)
    with open(path, "rb") as file:
        file.seek(int(begin))
        data = pa.py_buffer(file.read(int(length)))
    stream, rows = pa.BufferReader(data), []
    while stream.tell() < data.size:
        try:
            rows += pa.ipc.open_stream(stream).read_all().to_pylist()
        except pa.ArrowInvalid:  # the end alone, where there are no rows
            break
    return rows


def test_a_log_is_read_to_its_end_in_all_versions_of_the_table() -> None:
    wider = pa.struct([*ITEM, ("price", pa.float64())])
    later = change_batch([("INSERT", None, {"id": 9, "name": "n", "price": 2.5})], wider)
    log = Log([[inserts(1, 2)], [inserts(3, 1, table="order")], [inserts(5, 1), later]])
    options = ReadOptions.of({"table": "shop.item", "destination": "d"})
    batches = list(log_batches(log, options, LogEnd(lambda: None)))
    schema = log_schema(batches, options)
    assert schema.field("after").type.get_field_index("price") == 2
    reads = BatchReads(lambda _: MemoryFile(), lambda: 1, lambda: True)
    name, places = reads.open_log(options, pa.schema([schema.field("after")]), batches)
    rows = [row["after"] for place in places for row in read(place)]
    assert [(row["id"], row.get("price")) for row in rows] == [
        (1, None),
        (2, None),
        (5, None),
        (9, 2.5),
    ]
    reads.release(name)
    name, places = reads.open_log(options, pa.schema([]), batches)  # they are counted
    assert sum(len(read(place)) for place in places) == 4
    reads.release(name)
    assert log.acked == 0
    with pytest.raises(ConfigError, match=r"holds no change of shop\.item"):
        log_schema([], options)


def test_a_readers_clock_ends_no_read() -> None:
    newer = [inserts(n, 1, position=1000 + n, day=dt.date(2099, 1, 1)) for n in range(5)]
    options = ReadOptions.of({"table": "shop.item", "destination": "d"})
    messages = log_batches(Log([[batch] for batch in newer]), options, LogEnd(lambda: None))
    found = [row["after"]["id"] for each in messages for b in each for row in b.to_pylist()]
    assert found == list(range(5))


def test_rows_of_versions_that_lack_all_columns_of_a_query_are_there() -> None:
    """Columns that came later, alone and beside others, and columns of whole-table changes."""
    changes = [("INSERT", None, {"id": 1, "name": "x"}), ("DELETE", {"id": 1, "name": "x"}, None)]
    batch = change_batch([*changes, *changes], ITEM)
    price = pa.field("after", pa.struct([("price", pa.int64())]))
    for fields in ([price], [pa.field("position", pa.int64()), price]):
        for rows in (batch, batch.slice(1)):
            found = pruned(rows, pa.schema(fields))
            assert found.num_rows == rows.num_rows
            assert found.column("after").is_valid().equals(rows.column("after").is_valid())
    schema = pa.schema([("sql", pa.string())])
    reads = BatchReads(lambda _: MemoryFile(), lambda: 1, lambda: True)
    options = ReadOptions.of({"table": "shop.item", "destination": "d"})
    name, places = reads.open_log(options, schema, [[batch]])
    assert [len(read(place)) for place in places] == [4]
    reads.release(name)


def test_pruning() -> None:
    batch = inserts(1, 3)
    only_id = pa.schema([("after", pa.struct([("id", pa.int64())]))])
    assert pruned(batch, only_id).to_pylist() == [{"after": {"id": n}} for n in (1, 2, 3)]
    nothing = pruned(batch, pa.schema([]))
    assert (nothing.num_rows, nothing.schema.names) == (3, [])
    narrow = pa.schema([("after", pa.struct([("id", pa.int16())]))])
    with pytest.raises(ConfigError, match="other types"):
        pruned(batch, narrow)
    whole = readable_schema(batch.schema)
    assert pruned(batch, whole).to_pylist() == batch.to_pylist()


def test_options_that_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match="no option client_id"):
        ReadOptions.of({"table": TABLE, "destination": "d", "client_id": "3"})
    with pytest.raises(ConfigError, match="give "):
        ReadOptions.of({"table": TABLE})
    with pytest.raises(ConfigError, match="a DataFrame has one table"):
        ReadOptions.of({"path": "x"})


def test_a_version_that_comes_back_is_the_newest() -> None:
    """An ALTER TABLE that is taken back: frames carry the key that counts at the log's end."""
    first, last = inserts(1, 2), inserts(5, 1, position=3000)
    other = inserts(3, 1, position=2000)
    other = other.replace_schema_metadata({**other.schema.metadata, b"canal.key": b'["name"]'})
    options = ReadOptions.of({"table": "shop.item", "destination": "d"})
    assert key_of(log_schema([[first, other]], options)) == ("name",)
    assert key_of(log_schema([[first], [other, last]], options)) == ("id",)


def test_columns_of_a_part_are_those_of_its_rows(truth: Any) -> None:
    parts = plan_parts(BINLOGS, tables=r"shop\.orders", part_bytes=40_000)
    rows = {str(batch.schema.field("after").type) for batch in truth if batch.num_rows}
    schemas = {str(s.field("after").type) for part in parts for s in part.schemas(TABLE)}
    assert rows <= schemas
