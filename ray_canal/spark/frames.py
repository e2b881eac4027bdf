"""RecordBatches -> one Spark DataFrame per table.

Written first (`write_frames`: Arrow only, in any thread), then shown to Spark (`Written.frames`).
The ways are in `row_transfer.py`; in none does a Python worker run in an executor.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Literal, TypedDict

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ray_canal.errors import CanalError, UnsupportedEvent
from ray_canal.model.table_event import STATEMENT
from ray_canal.spark.keys import by_key, key_of
from ray_canal.spark.lacking import told, with_flags
from ray_canal.spark.row_transfer import Shown, Way, Writer, chosen_way, cores_of, writer_of
from ray_canal.spark.schema import merged_type, readable_schema
from ray_canal.views.row_places import table_name
from ray_canal.views.table_events import RENAMED_FROM, RENAMED_TO, SQL, is_of_table

if TYPE_CHECKING:
    from typing_extensions import Unpack

Statements = Literal["error", "ignore"]
PartitionBy = Literal["key"]

NOTES = ("sql", "renamed_from", "renamed_to")
"""Columns of frames that have changes of a table as a whole; NULL for changes of rows."""

_NO_TABLE = "."

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Frames:
    """DataFrames by `schema.table`. They are lazy: keep this object until Spark is done with them.

    `release` frees the memory behind them; reading a frame after that fails in Spark.
    """

    by_table: dict[str, DataFrame] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    _writer: Writer | None = field(default=None, repr=False)

    def release(self) -> None:
        """Free what the DataFrames read. May be called twice."""
        if self._writer is not None:
            self._writer.release()
            self._writer = None

    def __enter__(self) -> Frames:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@dataclass(slots=True)
class Written:
    """A message's batches, by table, where Spark can read them."""

    writer: Writer
    shown: dict[str, Shown] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)

    def frames(self, spark: SparkSession) -> Frames:
        """The DataFrames; what was written is theirs from now on."""
        made = {name: frame(spark) for name, frame in self.shown.items()}
        return Frames(made, self.rows, self.writer)

    def release(self) -> None:
        """Free what was written, if no frame is made of it."""
        self.writer.release()


class FrameOptions(TypedDict, total=False):
    """How batches become frames, as keyword arguments.

    `tables`: only these get a frame (`schema.table`); None: all. `statements`: what becomes of rows
    that a statement changed of which the log has the text alone: UnsupportedEvent ("error", the
    default), or a warning ("ignore"). `partition_by="key"`: all changes of a key are in one
    partition, in log order, and a change of the key is with both; None: the rows are divided as
    they come.
    """

    tables: Iterable[str] | None
    statements: Statements
    partition_by: PartitionBy | None


@dataclass(frozen=True, slots=True)
class Options:
    """FrameOptions as they count in one session. `way` and `cores` are of the session; `shown`:
    frames have their rows, else none."""

    way: Way
    cores: int = 1
    tables: frozenset[str] | None = None
    statements: Statements = "error"
    partition_by: PartitionBy | None = None
    shown: bool = True

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        tables: Iterable[str] | None = None,
        statements: Statements = "error",
        partition_by: PartitionBy | None = None,
        way: Way | None = None,
    ) -> Options:
        """Return checked options. Raises ConfigError."""
        wanted = None if tables is None else frozenset(tables)
        return cls(
            chosen_way(spark) if way is None else way,
            cores_of(spark),
            wanted,
            statements,
            partition_by,
        )


def to_frames(
    spark: SparkSession,
    batches: Iterable[pa.RecordBatch],
    *,
    way: Way | None = None,
    **frames: Unpack[FrameOptions],
) -> Frames:
    """Return one DataFrame per table, rows in log order. Several versions of a table share one
    schema. `way`: how Spark gets the rows (spark/row_transfer.py); None takes the best that works.
    """
    options = Options.of(spark, way=way, **frames)
    written = write_frames(batches, options)
    try:
        return written.frames(spark)
    except BaseException:
        written.release()
        raise


def write_frames(batches: Iterable[pa.RecordBatch], options: Options) -> Written:
    """The batches where Spark can read them; no Spark is called, so it may be another thread."""
    grouped = tables_batches(batches, options.tables, options.statements)
    made = Written(writer_of(options.way, options.cores))
    try:
        for name, group in grouped.items():
            made.rows[name] = sum(batch.num_rows for batch in group if not has_notes(batch))
            if not options.shown:
                made.shown[name] = _empty
                continue
            schema = common_schema(group)
            group = [told(batch, schema) for batch in group]
            parts = by_key(group, key_of(schema), options.cores) if options.partition_by else None
            try:
                made.shown[name] = made.writer.table(group, schema, parts)
            except pa.ArrowException as error:
                raise CanalError(
                    f"table {name}: its versions in this batch have no common type: {error}"
                ) from error
    except BaseException:
        made.release()
        raise
    return made


def _empty(spark: SparkSession) -> DataFrame:
    return DataFrame(spark._jsparkSession.emptyDataFrame(), spark)


def tables_batches(
    batches: Iterable[pa.RecordBatch], wanted: frozenset[str] | None, statements: Statements
) -> dict[str, list[pa.RecordBatch]]:
    """Batches by table, of the wanted ones. Raises UnsupportedEvent; see to_frames."""
    found: dict[str, list[pa.RecordBatch]] = {}
    for batch in batches:
        name = table_name(batch)
        if not batch.num_rows or not (wanted is None or name in wanted or name == _NO_TABLE):
            continue
        if is_statement(batch):
            _refuse_statement(batch, name, statements)
        else:
            found.setdefault(name, []).append(with_notes(batch))
    return found


def is_statement(batch: pa.RecordBatch) -> bool:
    """Return whether a batch has statements whose rows are not in the log."""
    return is_of_table(batch) and batch.column("event_type")[0].as_py() == STATEMENT


def _refuse_statement(batch: pa.RecordBatch, name: str, statements: Statements) -> None:
    what = "rows of some table were" if name == _NO_TABLE else f"rows of {name} were"
    sql = batch.schema.metadata[SQL].decode()
    at = f"{batch.column('journal_name')[0].as_py()}:{batch.column('position')[0].as_py()}"
    text = f"at {at} {what} changed by a statement of which the log has the text alone: {sql[:200]}"
    if statements == "error":
        raise UnsupportedEvent(
            f'{text}; set binlog_format=ROW on the server, or pass over it (statements="ignore") '
            "and read the table again"
        )
    _log.warning("%s", text)


def has_notes(batch: pa.RecordBatch) -> bool:
    """Return whether a batch came from `with_notes` with changes of a table as a whole."""
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


def common_schema(group: list[pa.RecordBatch]) -> pa.Schema:
    """The schema in which Spark reads the batches of one table."""
    schemas = [readable_schema(batch.schema) for batch in group]
    schema = with_flags(reduce(_merged_schema, schemas))
    # Of a table whose columns are not known (it was dropped), the key is not, either; but one whose
    # newest rows have no key has none.
    of_rows = [batch.schema.metadata for batch in group if not has_notes(batch)]
    return schema.with_metadata(of_rows[-1] if of_rows else schema.metadata)


def _merged_schema(first: pa.Schema, second: pa.Schema) -> pa.Schema:
    if first.equals(second, check_metadata=True):
        return second
    merged = merged_type(pa.struct(list(first)), pa.struct(list(second)))
    return pa.schema(list(merged), second.metadata)
