"""The ways in which Spark's JVMs get the rows of a batch, best first.

"memory": `format("ray_canal")` over memory files of this process; it and Spark are on one node.
"objects": the same over objects in Ray's object store. "rows": RayDP's reader, which makes rows of
all columns. "driver": an Arrow stream in a temporary file that the driver's JVM makes rows of.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol

import pyarrow as pa
import ray
from pyspark.sql import DataFrame, SparkSession

from ray_canal.errors import CanalError
from ray_canal.spark.chunks import (
    Carrier,
    MemoryFile,
    StoreObjects,
    stored,
    write_chunks,
    write_parts,
)
from ray_canal.spark.schema import readable_batch, schema_json

Way = Literal["memory", "objects", "rows", "driver"]
Shown = Callable[[SparkSession], DataFrame]
Parts = list[list[pa.RecordBatch]]

ROWS_PARTITION_BYTES = 8 << 20
"""Batches of a table are joined into partitions of about this size, where rows are made of them."""

_NODES_S = 5.0
"""So often at most a session that reads memory files looks whether its cluster has other nodes."""

_log = logging.getLogger(__name__)
_chosen: dict[str, Way] = {}
_looked_s: dict[str, float] = {}


class Writer(Protocol):
    """Writes the tables of one message. `release` frees what was written."""

    def table(
        self, batches: list[pa.RecordBatch], schema: pa.Schema, parts: Parts | None
    ) -> Shown:
        """Write a table's batches, `parts`: divided so; return what makes the DataFrame."""
        ...

    def release(self) -> None: ...


def writer_of(way: Way, cores: int) -> Writer:
    """Return a writer for one message."""
    if way == "rows":
        return _Objects()
    return _File() if way == "driver" else _Chunks(carrier_of(way), cores)


def carrier_of(way: Way) -> Carrier:
    """Return a carrier for chunks that `format("ray_canal")` reads. Raises CanalError: it does not
    work here."""
    if way not in ("memory", "objects"):
        raise CanalError(
            f'this session reads changes by the way "{way}", not by format("ray_canal"); see the '
            "warning of its first batch"
        )
    return MemoryFile() if way == "memory" else StoreObjects()


def cores_of(spark: SparkSession) -> int:
    """Cores of the session's executors."""
    return int(spark.sparkContext.defaultParallelism)


def chosen_way(spark: SparkSession) -> Way:
    """The best way that works; each is tried once a session, and again when a cluster of one node
    has got others, where executors may come to be. One log line, if rows are made."""
    key = spark.sparkContext.applicationId
    if _chosen.get(key) == "memory" and _on_ray(spark) and _has_grown(key):
        del _chosen[key]
    if key not in _chosen:
        reasons = []
        for way in _candidates(spark):
            try:
                _probe(spark, way)
            except Exception as error:
                lines = str(error).strip().splitlines()
                reasons.append(f"{way}: {lines[0][:200] if lines else repr(error)}")
            else:
                _chosen[key] = way
                break
        else:
            raise CanalError(f"Spark reads no batch in any way ({'; '.join(reasons)})")
        if _chosen[key] in ("rows", "driver"):
            _log.warning(
                'Spark makes rows of changes before it reads them (way "%s"), which is slower: %s',
                _chosen[key],
                "; ".join(reasons),
            )
    return _chosen[key]


def _candidates(spark: SparkSession) -> Iterator[Way]:
    if spark.sparkContext.master.startswith("local") or (_on_ray(spark) and _one_node()):
        yield "memory"
    if _on_ray(spark):
        yield "objects"
        yield "rows"
    yield "driver"


def _on_ray(spark: SparkSession) -> bool:
    return bool(spark.sparkContext.master.startswith("ray"))


def _has_grown(key: str) -> bool:
    now_s = time.monotonic()
    if now_s < _looked_s.get(key, -_NODES_S) + _NODES_S:
        return False
    _looked_s[key] = now_s
    return not _one_node()


def _one_node() -> bool:
    return sum(bool(node["Alive"]) for node in ray.nodes()) == 1


def _probe(spark: SparkSession, way: Way) -> None:
    schema = pa.schema([("n", pa.int32())])
    batch = pa.record_batch([pa.array([7], pa.int32())], schema=schema)
    writer = writer_of(way, 1)
    try:
        rows = writer.table([batch], schema, None)(spark).collect()
    finally:
        writer.release()
    if [row.n for row in rows] != [7]:
        raise CanalError(f"it gave {rows} for one row of 7")


class _Chunks:
    """Ways "memory" and "objects"."""

    def __init__(self, carrier: Carrier, cores: int) -> None:
        self._carrier = carrier
        self._cores = cores

    def table(
        self, batches: list[pa.RecordBatch], schema: pa.Schema, parts: Parts | None
    ) -> Shown:
        if parts is None:
            places = write_chunks(batches, schema, self._carrier, self._cores)
        else:
            places = write_parts(parts, schema, self._carrier)

        def show(spark: SparkSession) -> DataFrame:
            reader = spark.read.format("ray_canal").option("schema", schema_json(schema))
            return reader.option("places", ";".join(places)).load()

        return show

    def release(self) -> None:
        self._carrier.release()


class _Objects:
    """Way "rows": Arrow streams in Ray's object store, by RayDP's RayDatasetRDD.

    The driver owns the objects: it outlives the batch, and what it owns is freed when the last
    reference goes. The RDD fetches each object by id and owner.
    """

    def __init__(self) -> None:
        self._references: list[Any] = []

    def table(
        self, batches: list[pa.RecordBatch], schema: pa.Schema, parts: Parts | None
    ) -> Shown:
        ready = parts or list(_joined(batches))
        mine = [stored(_stream(schema, part)) for part in ready]
        self._references.extend(reference for reference, _ in mine)
        ids = [reference.binary() for reference, _ in mine]
        owners = [owner for _, owner in mine]

        def show(spark: SparkSession) -> DataFrame:
            jvm = spark.sparkContext._jvm
            rdd = jvm.org.apache.spark.rdd.RayDatasetRDD(spark._jsc, ids, owners)
            reader = jvm.org.apache.spark.sql.raydp.ObjectStoreReader
            return DataFrame(
                reader.RayDatasetToDataFrame(spark._jsparkSession, rdd, schema_json(schema)), spark
            )

        return show

    def release(self) -> None:
        self._references.clear()


class _File:
    """Way "driver": an Arrow stream in a temporary file, one partition a table's batch."""

    def __init__(self) -> None:
        self._files: list[str] = []

    def table(
        self, batches: list[pa.RecordBatch], schema: pa.Schema, parts: Parts | None
    ) -> Shown:
        handle, name = tempfile.mkstemp(prefix="ray-canal-", suffix=".arrow")
        self._files.append(name)
        with os.fdopen(handle, "wb") as file:
            file.write(_stream(schema, batches))

        def show(spark: SparkSession) -> DataFrame:
            functions = spark.sparkContext._jvm.PythonSQLUtils
            rows = functions.readArrowStreamFromFile(name)
            made = functions.toDataFrame(rows, schema_json(schema), spark._jsparkSession)
            # One partition: a key is in one.
            return DataFrame(made, spark).coalesce(1) if parts else DataFrame(made, spark)

        return show

    def release(self) -> None:
        while self._files:
            name = self._files.pop()
            if os.path.exists(name):
                os.unlink(name)


def _joined(batches: list[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    part: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        part.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= ROWS_PARTITION_BYTES:
            yield part
            part, size_bytes = [], 0
    if part:
        yield part


def _stream(schema: pa.Schema, batches: list[pa.RecordBatch]) -> bytes:
    """An Arrow IPC stream. `bytes` on purpose: Ray stores them raw, so that a JVM can read them."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(readable_batch(batch, schema))
    stream: bytes = sink.getvalue().to_pybytes()
    return stream
