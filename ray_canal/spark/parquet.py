"""Changes to Parquet, so that a batch that is delivered again replaces its files.

Layout: `schema_name=S/table_name=T/date=D/NAME-NN.parquet`, where NAME is the place of the batch's
first row in the binlog. A batch that was written but not acked comes again with the same first
row, hence with the same name. The paths may be of any file system that Spark knows; on a cluster
it must be one that all nodes share.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ray_canal.protocol.position import journal_key

PARTITIONED_BY = ("schema_name", "table_name", "date")
_STAGING = "_staging"

Counts = Counter[tuple[str, str]]


def batch_name(batches: list[pa.RecordBatch]) -> str:
    """The name of a message's files: where its first row is; '' if it has no rows."""
    firsts = [_first(batch) for batch in batches if batch.num_rows]
    if not firsts:
        return ""
    journal, position, row = min(firsts, key=lambda at: (journal_key(at[0]), *at[1:]))
    return f"{re.sub(r'[^A-Za-z0-9.-]', '_', journal)}-{position:012d}-{row:08d}"


def change_counts(batches: list[pa.RecordBatch]) -> Counts:
    """Changes by (schema.table, event type)."""
    counts: Counts = Counter()
    for batch in batches:
        notes = batch.schema.metadata
        name = f"{notes[b'canal.schema'].decode()}.{notes[b'canal.table'].decode()}"
        for entry in pc.value_counts(batch.column("event_type")).to_pylist():
            counts[name, str(entry["values"])] += entry["counts"]
    return counts


@dataclass
class ParquetSink:
    """A function for `ray_canal.spark.run`: writes each batch, and counts what it wrote.

    Not for two consumers at once on one `path`. Needs the same filter after a restart as before it.
    """

    spark: SparkSession
    path: str
    _settled: Counts = field(default_factory=Counter)
    _last: tuple[str, Counts] = ("", Counter())
    _seen_batch: bool = False

    @property
    def counts(self) -> Counts:
        """Changes written by this sink, each counted once even if its batch came twice."""
        return self._settled + self._last[1]

    def __call__(self, frames: dict[str, DataFrame], message: Any) -> None:
        batches = message.batches
        name = batch_name(batches)
        if not name:
            return
        if not self._seen_batch or name == self._last[0]:
            self._remove(name)
        staging = f"{self.path}/{_STAGING}/{name}"
        for table, frame in frames.items():
            self._stage(table, frame, staging)
        self._publish(staging, name)
        if name != self._last[0]:
            self._settled += self._last[1]
        self._last = (name, change_counts(batches))
        self._seen_batch = True

    def _stage(self, table: str, frame: DataFrame, staging: str) -> None:
        schema_name, _, table_name = table.partition(".")
        (
            frame.withColumn("schema_name", F.lit(schema_name))
            .withColumn("table_name", F.lit(table_name))
            .withColumn("date", F.to_date("execute_time"))
            .write.mode("append")
            .partitionBy(*PARTITIONED_BY)
            .parquet(staging)
        )

    def _publish(self, staging: str, name: str) -> None:
        """Move the staged files to their partitions under the batch's name."""
        source = self._hadoop_path(staging)
        system = self._file_system(source)
        if not system.exists(source):
            return
        base = system.makeQualified(source).toString().rstrip("/") + "/"
        listing = system.listFiles(source, True)
        moves = []
        while listing.hasNext():
            path = listing.next().getPath()
            if path.getName().endswith(".parquet"):
                folder = path.getParent().toString().removeprefix(base)
                moves.append((path, folder))
        moves.sort(key=lambda move: (move[1], move[0].getName()))
        for number, (path, folder) in enumerate(moves):
            target = self._hadoop_path(f"{self.path}/{folder}")
            system.mkdirs(target)
            if not system.rename(path, self._hadoop_path(f"{target}/{name}-{number:02d}.parquet")):
                raise OSError(f"cannot move {path} to {target}")
        system.delete(source, True)

    def _remove(self, name: str) -> None:
        """Remove what an earlier delivery of this batch left: files, and a half-written staging."""
        pattern = "/".join(f"{column}=*" for column in PARTITIONED_BY)
        glob = self._hadoop_path(f"{self.path}/{pattern}/{name}-*.parquet")
        system = self._file_system(glob)
        for status in system.globStatus(glob) or ():
            system.delete(status.getPath(), False)
        system.delete(self._hadoop_path(f"{self.path}/{_STAGING}"), True)

    def _hadoop_path(self, path: str) -> Any:
        return self.spark.sparkContext._jvm.org.apache.hadoop.fs.Path(path)

    def _file_system(self, path: Any) -> Any:
        return path.getFileSystem(self.spark.sparkContext._jsc.hadoopConfiguration())


def _first(batch: pa.RecordBatch) -> tuple[str, int, int]:
    return (
        str(batch.column("journal_name")[0].as_py()),
        int(batch.column("position")[0].as_py()),
        int(batch.column("row")[0].as_py()),
    )
