"""Slowly changing dimension, type 2: every version that a table's rows had, with its times."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ray_canal.errors import ConfigError, UnsupportedEvent
from ray_canal.model.table_event import STATEMENT
from ray_canal.spark.frames import NOTES, Statements
from ray_canal.spark.lineage import ENDS, table_events
from ray_canal.spark.place import order_of
from ray_canal.spark.prepared import Named, Undone, committed
from ray_canal.spark.state import key_columns, key_field
from ray_canal.views.presence import PRESENT

VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
_LACKING = (
    "images of the table lack columns, so its versions are not known: set binlog_row_image=FULL on "
    "the server; generated columns, which MariaDB 11.8 leaves out even then, leave out with "
    "filter.black_fields of the destination"
)
_BEFORE, _AFTER = 0, 1
"""Within one change the old row goes before the new one comes."""


def scd2(
    frame: DataFrame,
    key: Sequence[str] | None = None,
    *,
    statements: Statements = "error",
    uncommitted: Collection[Named | Undone] = (),
) -> DataFrame:
    """Every version of every row in the changes in `frame`: the columns of `after`, and
    `valid_from` (inclusive) and `valid_to` (exclusive), the commit times of the change that made it
    and of the one that ended it; `valid_to` is NULL, and `is_current` true, while it stands.

    `key`: the key columns; None takes the primary key that the frame carries. A change of the key
    ends one row and begins another; TRUNCATE, DROP and a RENAME of another table to this name end
    all. What rows were before their first change in `frame` is not in it. Commit times are the
    server's (MariaDB and MySQL before 8.0 log those of statements), but no version begins before
    the one that it follows; two changes in one moment leave a version of no length.

    `uncommitted`: transactions and rows that do not count, as `Prepared` knows them.

    Raises ConfigError: no key, or images that lack columns; UnsupportedEvent: rows were changed by
    a statement of which the log has the text alone, unless `statements` is "ignore".
    """
    names = tuple(key) if key is not None else key_columns(frame)
    if not names:
        raise ConfigError("the frame carries no primary key; give `key=[...]`")
    if any(name in frame.columns for name in PRESENT):
        raise ConfigError(_LACKING)
    frame = committed(frame, uncommitted)
    order = [column.alias(f"order_{n}") for n, column in enumerate(order_of(frame.columns))]
    keys = [f"key_{n}" for n in range(len(names))]
    changes = frame.drop(*NOTES).where(~F.col("event_type").isin(*ENDS, STATEMENT))

    def steps(rows: DataFrame, step: int, image: str, shown: Column) -> DataFrame:
        of_key = [key_field(frame, image, n).alias(k) for n, k in zip(names, keys, strict=True)]
        time = F.col("execute_time").alias(VALID_FROM)
        return rows.select(*order, F.lit(step).alias("step"), time, *of_key, shown.alias("row"))

    nothing = F.lit(None).cast(frame.schema["after"].dataType)
    gone = steps(changes.where("before IS NOT NULL"), _BEFORE, "before", nothing)
    come = steps(changes.where("after IS NOT NULL"), _AFTER, "after", F.col("after"))
    both = come.unionByName(gone)
    if NOTES[0] in frame.columns:
        _refuse_statements(frame, statements)
        time = F.col("execute_time").alias(VALID_FROM)
        ends = frame.where(F.col("event_type").isin(*ENDS)).select(
            *order, F.lit(_BEFORE).alias("step"), time, nothing.alias("row")
        )
        both = both.unionByName(both.select(*keys).distinct().crossJoin(ends))
    places = [f"order_{n}" for n in range(len(order))]
    rows = Window.partitionBy(*keys).orderBy(*places, "step")
    # A statement that waited for a lock has an older time on MariaDB than what it waited for.
    times = F.max(VALID_FROM).over(rows.rowsBetween(Window.unboundedPreceding, 0))
    timed = both.withColumn(VALID_FROM, times)
    versions = timed.withColumn(VALID_TO, F.lead(VALID_FROM).over(rows)).where("row IS NOT NULL")
    return versions.select(
        "row.*", VALID_FROM, VALID_TO, F.col(VALID_TO).isNull().alias(IS_CURRENT)
    )


def _refuse_statements(frame: DataFrame, statements: Statements) -> None:
    found = [event for event in table_events(frame) if event.kind == STATEMENT]
    if found and statements == "error":
        raise UnsupportedEvent(
            f"at {found[0].place} rows were changed by a statement of which the log has the text "
            f'alone: {found[0].sql[:200]}; set binlog_format=ROW, or statements="ignore"'
        )
