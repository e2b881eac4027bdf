"""RecordBatches -> one Spark DataFrame per table.

Two ways, both without a Python worker in the executors. *Object store*: the batches go into Ray's
object store as Arrow streams, and RayDP's executors (JVM) read them from shared memory. *Driver*:
an Arrow stream in a temporary file, read by the driver's JVM; taken where the first way does not
work, with one log line.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal

import pyarrow as pa
import ray
from pyspark.sql import DataFrame, SparkSession
from ray._private import worker as ray_worker

from ray_canal.errors import CanalError, UnsupportedEvent
from ray_canal.model.table_event import STATEMENT
from ray_canal.spark.schema import merged_type, readable_batch, readable_schema, schema_json
from ray_canal.views.table_events import RENAMED_FROM, RENAMED_TO, SQL, is_of_table

Statements = Literal["error", "ignore"]

NOTES = ("sql", "renamed_from", "renamed_to")
"""Columns of frames that have changes of a table as a whole; NULL for changes of rows."""

_NO_TABLE = "."

PARTITION_BYTES = 8 << 20
"""Batches of a table are joined into Spark partitions of about this size."""

_log = logging.getLogger(__name__)
_object_store_works: dict[str, bool] = {}


@dataclass(slots=True)
class Frames:
    """DataFrames by `schema.table`. They are lazy: keep this object until Spark is done with them.

    `release` frees the memory behind them; reading a frame after that fails in Spark.
    """

    by_table: dict[str, DataFrame] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    _references: list[Any] = field(default_factory=list, repr=False)
    _files: list[str] = field(default_factory=list, repr=False)

    def release(self) -> None:
        """Drop the references to Ray's objects and the temporary files. May be called twice."""
        self._references.clear()
        while self._files:
            name = self._files.pop()
            if os.path.exists(name):
                os.unlink(name)

    def __enter__(self) -> Frames:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def table_name(batch: pa.RecordBatch) -> str:
    """`schema.table` of a batch, from its metadata. Raises CanalError: it has none."""
    notes = batch.schema.metadata or {}
    try:
        return f"{notes[b'canal.schema'].decode()}.{notes[b'canal.table'].decode()}"
    except KeyError as error:
        raise CanalError(f"the batch has no metadata {error}: not a batch of ray_canal") from None


def to_frames(
    spark: SparkSession,
    batches: Iterable[pa.RecordBatch],
    *,
    tables: Iterable[str] | None = None,
    object_store: bool | None = None,
    statements: Statements = "error",
) -> Frames:
    """One DataFrame per table, rows in log order. Several versions of a table share one schema.

    `tables`: only these (`schema.table`). `object_store`: force the way, None chooses.
    `statements`: what becomes of rows that a statement changed of which the log has the text alone:
    UnsupportedEvent, or a warning ("ignore").
    """
    wanted = None if tables is None else frozenset(tables)
    grouped: dict[str, list[pa.RecordBatch]] = {}
    for batch in batches:
        name = table_name(batch)
        if not batch.num_rows or not (wanted is None or name in wanted or name == _NO_TABLE):
            continue
        if is_statement(batch):
            _refuse_statement(batch, name, statements)
        else:
            grouped.setdefault(name, []).append(with_notes(batch))
    made = Frames()
    through_store = object_store_works(spark) if object_store is None else object_store
    try:
        for name, group in grouped.items():
            schema, ready = _one_schema(name, group)
            made.rows[name] = sum(batch.num_rows for batch in group if not has_notes(batch))
            made.by_table[name] = (
                _through_object_store(spark, schema, ready, made._references)
                if through_store
                else _through_driver(spark, schema, ready, made._files)
            )
    except BaseException:
        made.release()
        raise
    return made


def is_statement(batch: pa.RecordBatch) -> bool:
    """Whether a batch has statements whose rows are not in the log."""
    return is_of_table(batch) and batch.column("event_type")[0].as_py() == STATEMENT


def _refuse_statement(batch: pa.RecordBatch, name: str, statements: Statements) -> None:
    what = "rows of some table were" if name == _NO_TABLE else f"rows of {name} were"
    sql = batch.schema.metadata[SQL].decode()
    at = f"{batch.column('journal_name')[0].as_py()}:{batch.column('position')[0].as_py()}"
    text = f"at {at} {what} changed by a statement of which the log has the text alone: {sql[:200]}"
    if statements == "error":
        raise UnsupportedEvent(
            f'{text}; set binlog_format=ROW on the server, or pass over it (statements="ignore") '
            "and read the table anew"
        )
    _log.warning("%s", text)


def has_notes(batch: pa.RecordBatch) -> bool:
    """Whether a batch came from `with_notes` with changes of a table as a whole."""
    return NOTES[0] in batch.schema.names


def with_notes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of changes of a table as a whole, with what its metadata tell as columns."""
    if not is_of_table(batch):
        return batch
    metadata = dict(batch.schema.metadata)
    for name, key in zip(NOTES, (SQL, RENAMED_FROM, RENAMED_TO), strict=True):
        text = metadata.pop(key, None)
        column = pa.array([None if text is None else text.decode()] * batch.num_rows, pa.string())
        batch = batch.append_column(name, column)
    return batch.replace_schema_metadata(metadata)


def object_store_works(spark: SparkSession) -> bool:
    """Whether executors can read Arrow streams from Ray's object store; tried once a session."""
    key = spark.sparkContext.applicationId
    if key not in _object_store_works:
        try:
            _probe(spark)
            _object_store_works[key] = True
        except Exception as error:
            reason = str(error).strip().splitlines()[0][:200] if str(error) else repr(error)
            _log.warning(
                "Spark reads changes through the driver, not Ray's object store: %s", reason
            )
            _object_store_works[key] = False
    return _object_store_works[key]


def _probe(spark: SparkSession) -> None:
    if not spark.sparkContext.master.startswith("ray"):
        raise CanalError(f"not a RayDP session (master {spark.sparkContext.master})")
    schema = pa.schema([("n", pa.int32())])
    references: list[Any] = []
    batch = pa.record_batch([pa.array([7], pa.int32())], schema=schema)
    rows = _through_object_store(spark, schema, [batch], references).collect()
    if [row.n for row in rows] != [7]:
        raise CanalError(f"the object store gave {rows} for one row of 7")


def _one_schema(name: str, group: list[pa.RecordBatch]) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """The common schema of a table's batches, and the batches in it."""
    schemas = [readable_schema(batch.schema) for batch in group]
    schema = reduce(_merged_schema, schemas)
    # Of a table whose columns are not known (it was dropped), the key is not, either.
    keyed = [s.metadata for s in schemas if (s.metadata or {}).get(b"canal.key", b"[]") != b"[]"]
    schema = schema.with_metadata(keyed[-1] if keyed else schema.metadata)
    try:
        return schema, [readable_batch(batch, schema) for batch in group]
    except pa.ArrowException as error:
        raise CanalError(
            f"table {name}: its versions in this batch have no common type: {error}"
        ) from error


def _merged_schema(first: pa.Schema, second: pa.Schema) -> pa.Schema:
    if first.equals(second):
        return second
    merged = merged_type(pa.struct(list(first)), pa.struct(list(second)))
    return pa.schema(list(merged), second.metadata)


def _through_object_store(
    spark: SparkSession, schema: pa.Schema, batches: list[pa.RecordBatch], references: list[Any]
) -> DataFrame:
    """A DataFrame over Arrow streams in Ray's object store; `references` keep them there.

    The driver owns the objects: it outlives the batch, and what it owns is freed when the last
    reference goes. RayDP's RayDatasetRDD fetches each object by id and owner.
    """
    mine = [ray.put(_stream(schema, part)) for part in _partitions(batches)]
    references.extend(mine)
    this_process: Any = ray_worker.global_worker
    owner = this_process.core_worker
    jvm = spark.sparkContext._jvm
    rdd = jvm.org.apache.spark.rdd.RayDatasetRDD(
        spark._jsc,
        [reference.binary() for reference in mine],
        [owner.get_owner_address(reference) for reference in mine],
    )
    reader = jvm.org.apache.spark.sql.raydp.ObjectStoreReader
    return DataFrame(
        reader.RayDatasetToDataFrame(spark._jsparkSession, rdd, schema_json(schema)), spark
    )


def _through_driver(
    spark: SparkSession, schema: pa.Schema, batches: list[pa.RecordBatch], files: list[str]
) -> DataFrame:
    """A DataFrame over an Arrow stream that the driver's JVM reads from a temporary file."""
    handle, name = tempfile.mkstemp(prefix="ray-canal-", suffix=".arrow")
    files.append(name)
    with os.fdopen(handle, "wb") as file:
        file.write(_stream(schema, batches))
    jvm = spark.sparkContext._jvm
    rows = jvm.PythonSQLUtils.readArrowStreamFromFile(name)
    return DataFrame(
        jvm.PythonSQLUtils.toDataFrame(rows, schema_json(schema), spark._jsparkSession), spark
    )


def _partitions(batches: list[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    part: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        part.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= PARTITION_BYTES:
            yield part
            part, size_bytes = [], 0
    if part:
        yield part


def _stream(schema: pa.Schema, batches: list[pa.RecordBatch]) -> bytes:
    """An Arrow IPC stream. `bytes` on purpose: Ray stores them raw, so that a JVM can read them."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream
