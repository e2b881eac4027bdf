"""Changes to Parquet, each exactly once, and read from there.

Layout: `schema_name=S/table_name=T/date=D/NAME.parquet`, where NAME begins with the place of the
batch's first row. Batches are committed whole (spark/commits.py); of each table the last row that
was written is kept with them, so a batch that comes again, cut as it may be, adds only rows that
are not there. The path may be of any file system that Spark knows; on a cluster it must be one that
all nodes share.
"""

from __future__ import annotations

import copy
import hashlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ray_canal.errors import ConfigError
from ray_canal.spark.commits import Commit, Commits, Files, last_commit, staged, unfinished
from ray_canal.spark.frames import is_statement
from ray_canal.spark.hadoop_files import HadoopFiles
from ray_canal.spark.parquet_tasks import stage_by_tasks, task_folder
from ray_canal.spark.place import file_name, is_above, order_of, read_file_name
from ray_canal.spark.prepared import outcomes
from ray_canal.spark.row_transfer import cores_of
from ray_canal.spark.session import REBASED_IN_WRITE
from ray_canal.spark.state import latest
from ray_canal.spark.versions import in_one_schema
from ray_canal.views.row_places import RowPlace, place_at, rows_above, table_name

PARTITIONED_BY = ("schema_name", "table_name", "date")

Counts = Counter[tuple[str, str]]

_NUMBERED = {"gtid", "transaction_row"}
_RANK = "_rank"
_TOLD = ""
"""The place among last ones up to which outcomes of transactions were taken; no table's name."""

_log = logging.getLogger(__name__)


def change_counts(batches: list[pa.RecordBatch]) -> Counts:
    """Changes by (schema.table, event type)."""
    counts: Counts = Counter()
    for batch in batches:
        name = table_name(batch)
        for entry in pc.value_counts(batch.column("event_type")).to_pylist():
            counts[name, str(entry["values"])] += entry["counts"]
    return counts


@dataclass
class ParquetSink:
    """A function for `ray_canal.spark.run`: writes each batch, and counts what it wrote.

    Into a folder of a local or shared disk Ray tasks write, several times as fast as Spark, which
    writes to any other file system.

    Each row is there once, whatever is repeated: a call, a run, a process that died at any moment.
    Not for two consumers at once on one `path`.
    """

    spark: SparkSession
    path: str
    _counts: Counts = field(default_factory=Counter)
    _files: Files | None = None
    _commits: Commits | None = None
    _begun: Commit | None = None

    @property
    def counts(self) -> Counts:
        """Changes that this sink has committed, each counted once."""
        return self._counts.copy()

    @property
    def reads_frames(self) -> bool:
        """Return whether Spark writes; Ray tasks take the batches (`run`)."""
        return task_folder(self.path) is None

    def __call__(self, frames: dict[str, DataFrame], message: Any) -> None:
        try:
            self._write(frames, message.batches, getattr(message, "transactions", None))
        except BaseException:
            self._commits = None  # what was done is read from the folder
            raise

    def _write(
        self,
        frames: dict[str, DataFrame],
        batches: list[pa.RecordBatch],
        transactions: pa.RecordBatch | None,
    ) -> None:
        commits = self._opened()
        last = commits.last.last
        found = [
            b for b in batches if b.num_rows and table_name(b) in frames and not is_statement(b)
        ]
        new = [_new_rows(batch, last.get(table_name(batch))) for batch in found]
        skipped = sum(b.num_rows for b in found) - sum(b.num_rows for b in new)
        new = [batch for batch in new if batch.num_rows]
        if skipped:
            _log.info("%d rows come again and are in %s already", skipped, self.path)
        told = outcomes(transactions)
        if _TOLD in last:
            told = [one for one in told if one.place.key > last[_TOLD].key]
        if not new and not told:
            return
        commit = self._begun = commits.begin()
        ends = {table_name(batch): place_at(batch, -1) for batch in new}
        folder = task_folder(self.path)
        if folder is not None:
            tables = {name: [b for b in new if table_name(b) == name] for name in ends}
            self._stage_by_tasks(folder / commit.staging, tables)
        else:
            for number, table in enumerate(sorted(ends)):
                frame, written = frames[table], last.get(table)
                if written is not None and _overlaps(found, table, written):
                    frame = frame.where(is_above(written, frame.columns))
                self._stage(table, frame, f"{commit.staging}/{number}")
        prepared = copy.deepcopy(commits.last.prepared)
        prepared.take(told)
        commit = Commit(
            commit.number,
            commit.attempt,
            self._moves(commit, [place_at(batch, 0) for batch in new]),
            {**last, **ends, **({_TOLD: told[-1].place} if told else {})},
            _by_table(change_counts(new)),
            prepared,
        )
        commits.commit(commit)
        self._settle(commit)

    def _opened(self) -> Commits:
        if self._commits is None:
            self._files = self._files or HadoopFiles(self.spark, self.path)
            commits = Commits(self._files)
            commits.open()
            self._commits = commits
            if self._begun is not None and self._begun.attempt == commits.last.attempt:
                self._settle(commits.last)  # it was done, and only its answer got lost
        return self._commits

    def _settle(self, commit: Commit) -> None:
        self._begun = None
        for table, kinds in commit.counts.items():
            for kind, count in kinds.items():
                self._counts[table, kind] += count

    def _stage_by_tasks(self, folder: Path, tables: dict[str, list[pa.RecordBatch]]) -> None:
        stage_by_tasks(folder, tables, cores_of(self.spark))

    def _stage(self, table: str, frame: DataFrame, folder: str) -> None:
        schema_name, _, name = table.partition(".")
        # Parquet has no structs without fields: of a table whose columns are not known.
        unknown = [f.name for f in frame.schema if f.dataType == StructType()]
        frame = frame.drop(*unknown)
        shape = hashlib.sha256(frame.schema.json().encode()).hexdigest()[:8]
        frame = (
            frame.withColumn("schema_name", F.lit(schema_name))
            .withColumn("table_name", F.lit(name))
            .withColumn("date", F.to_date("execute_time"))
        )
        with _dates_as_they_are(self.spark):
            frame.write.partitionBy(*PARTITIONED_BY).parquet(f"{self._root}/{folder}-{shape}")

    def _moves(self, commit: Commit, places: list[RowPlace]) -> tuple[tuple[str, str], ...]:
        """Return where each staged file belongs. `places`: of some rows, the batch's first among
        them."""
        if self._files is None or not places:
            return ()
        moves, first = [], min(places, key=lambda at: at.key)
        for ordinal, path in enumerate(staged(self._files, commit)):
            parts = path.split("/")
            shape = parts[0].rpartition("-")[2]
            target = "/".join([*parts[1:-1], file_name(first, ordinal, shape)])
            moves.append((f"{commit.staging}/{path}", target))
        return tuple(moves)

    @property
    def _root(self) -> str:
        return self.path.rstrip("/")


@contextmanager
def _dates_as_they_are(spark: SparkSession) -> Iterator[None]:
    """Write with dates before 1582, which Spark 3.5 else refuses: they may mean another calendar
    to Spark 2."""
    before = {name: spark.conf.get(name) for name in REBASED_IN_WRITE}
    for name in REBASED_IN_WRITE:
        spark.conf.set(name, "CORRECTED")
    try:
        yield
    finally:
        for name, mode in before.items():
            spark.conf.set(name, str(mode))


def read_changes(spark: SparkSession, path: str, table: str) -> DataFrame:
    """The changes of a table (`schema.table`) that a `ParquetSink` has written to `path`, in one
    schema, whatever DDL came between them; of whole batches only. What came again behind a change
    of the server is there once, where transactions have GTIDs.

    Columns are those of a frame of `run`. Raises ConfigError: there are no changes of the table.
    """
    return _changes(spark, path, table)


def _changes(
    spark: SparkSession, path: str, table: str, *, tells_lacking: bool = False
) -> DataFrame:
    files = HadoopFiles(spark, path)
    folder = _table_folder(spark, table)
    listed = [f"{folder}/{name}" for name in files.below(folder)]
    hidden = unfinished(files, listed, folder)
    by_shape: dict[str, list[tuple[RowPlace, str]]] = {}
    for name in listed:
        found = read_file_name(name.rpartition("/")[2])
        if found is not None and name not in hidden:
            by_shape.setdefault(found[1], []).append((found[0], name))
    if not by_shape:
        raise ConfigError(f"{path} has no changes of {table}")
    versions = sorted(by_shape.values(), key=lambda group: max(at.key for at, _ in group))
    # What Ray tasks wrote before they told Spark's version is in the same calendar.
    reader = spark.read.option("datetimeRebaseMode", "CORRECTED")
    frames = [
        reader.parquet(*(files.full(name) for _, name in sorted(group))) for group in versions
    ]
    found = reduce(DataFrame.unionByName, in_one_schema(frames, tells_lacking=tells_lacking))
    timelines = {at.timeline for group in versions for at, _ in group}
    return _once(found) if len(timelines) > 1 and set(found.columns) >= _NUMBERED else found


def _once(frame: DataFrame) -> DataFrame:
    """Without changes that came again under a later timeline: of the same transaction (by its
    GTID), the same number in it, of the same time (a server that was reset gives its GTIDs again),
    and alike in what they say."""
    images = [name for name in ("before", "after") if name in frame.columns]
    of_table = F.when(F.col("transaction_row").isNull(), F.col("row"))
    said = F.xxhash64("event_type", "execute_time", *images, of_table)
    same = Window.partitionBy("gtid", "transaction_row", said).orderBy(*order_of(frame.columns))
    first = frame.where("gtid IS NOT NULL").withColumn(_RANK, F.row_number().over(same))
    return frame.where("gtid IS NULL").unionByName(first.where(f"{_RANK} = 1").drop(_RANK))


def read_rows(
    spark: SparkSession, path: str, table: str, key: Sequence[str] | None = None, **options: Any
) -> DataFrame:
    """The rows that a table (`schema.table`) has after the changes in `path`: `latest` of its
    changes, and of those of tables that it was renamed from; without those of XA transactions that
    are not committed. `options` are those of `latest`.

    Raises what `read_changes` and `latest` raise.
    """
    others = _Written(spark, path, tells_lacking=bool(options.get("defaults")))
    frame = others[table]
    newest = last_commit(HadoopFiles(spark, path))  # behind the files: of XA transactions in them
    if newest is not None:
        options.setdefault("uncommitted", newest.prepared.uncommitted)
    return latest(frame, key, others=others, **options)


class _Written(Mapping[str, DataFrame]):
    """The changes of each table in a folder, read when they are asked for."""

    def __init__(self, spark: SparkSession, path: str, *, tells_lacking: bool) -> None:
        self._spark, self._path, self._tells_lacking = spark, path, tells_lacking

    def __getitem__(self, table: str) -> DataFrame:
        return _changes(self._spark, self._path, table, tells_lacking=self._tells_lacking)

    def __contains__(self, table: object) -> bool:
        try:
            self[str(table)]
        except ConfigError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        raise ConfigError("tables are read by name")

    def __len__(self) -> int:
        raise ConfigError("tables are read by name")


def _table_folder(spark: SparkSession, table: str) -> str:
    names = spark.sparkContext._jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils
    schema_name, _, name = table.partition(".")
    return (
        f"schema_name={names.escapePathName(schema_name)}/table_name={names.escapePathName(name)}"
    )


def _new_rows(batch: pa.RecordBatch, last: RowPlace | None) -> pa.RecordBatch:
    """Those that are not written yet. Raises ConfigError: the batch is of an older timeline."""
    first = place_at(batch, 0)
    if last is not None and first.timeline < last.timeline:
        raise ConfigError(
            f"rows of {table_name(batch)} at {first} come after rows at {last} were written, and "
            "timelines only rise: the destination's cursors were lost, or it is another one; "
            "write to another folder"
        )
    return batch.slice(batch.num_rows - rows_above(batch, last))


def _overlaps(batches: list[pa.RecordBatch], table: str, last: RowPlace) -> bool:
    """Return whether some rows of a table are written already."""
    return any(table_name(b) == table and place_at(b, 0).key <= last.key for b in batches)


def _by_table(counts: Counts) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (table, kind), count in counts.items():
        found.setdefault(table, {})[kind] = count
    return found
