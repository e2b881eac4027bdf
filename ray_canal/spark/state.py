"""The state of a table from its changes: the last row image per key."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from ray_canal.errors import ConfigError
from ray_canal.spark.frames import Statements
from ray_canal.spark.lineage import surviving
from ray_canal.spark.merge import Absent, key_value, merged
from ray_canal.spark.place import order_of
from ray_canal.spark.prepared import Named, Undone, committed
from ray_canal.spark.versions import field_named
from ray_canal.views.presence import PRESENT

KEY_NOTE = "canal.key"


def key_columns(frame: DataFrame) -> tuple[str, ...]:
    """The table's primary key, which a frame of changes carries in the metadata of its fields."""
    for field in frame.schema.fields:
        names = field.metadata.get(KEY_NOTE, "") if field.metadata else ""
        if names:
            return tuple(json.loads(names))
    return ()


def latest(
    frame: DataFrame,
    key: Sequence[str] | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
    absent: Absent = "error",
    others: Mapping[str, DataFrame] | None = None,
    statements: Statements = "error",
    uncommitted: Collection[Named | Undone] = (),
) -> DataFrame:
    """The rows that are left when the changes in `frame` are applied in order: the columns of
    `after`.

    `key`: the key columns; None takes the primary key that the frame carries. An UPDATE that
    changes the key removes the old key. Rows that no change touches are not in it. Raises
    ConfigError: no key. A NULL in the key is an error when Spark reads it.

    Where images lack columns (binlog_row_image MINIMAL, NOBLOB), each column has its last known
    value. `defaults` are values of columns that an INSERT leaves out: those of the table's DDL,
    which are not in the log. `absent` says what becomes of a value that nothing tells: Spark raises
    an error when it is read ("error"), NULL, or "flag": NULL, and a last column `present`, a struct
    of booleans, says which values are known (NULL: it changed, but not to what).

    A column that the table did not have when a row was last told, as it was added later or dropped,
    is its value of `defaults`, else NULL (`present`: false); a column that may be a renamed one is
    not known. Of whole images `defaults` count where the frame says which columns the table had:
    where others lack columns, and in `read_rows`. Else such a column is NULL, whatever DEFAULT it
    was added with.

    TRUNCATE and DROP count: nothing from before them is left. A RENAME counts with the changes of
    the table that had these rows, looked up in `others` by its `schema.table` (as `frames` of `run`
    has them). Raises ConfigError: it is not there; UnsupportedEvent: rows were changed by a
    statement of which the log has the text alone, unless `statements` is "ignore".

    `uncommitted`: transactions and rows that do not count, as `Prepared` knows them.
    """
    names = tuple(key) if key is not None else key_columns(frame)
    if not names:
        raise ConfigError("the frame carries no primary key; give `key=[...]`")
    others = {} if others is None else others
    frame = surviving(frame, others, statements, tells_lacking=bool(defaults))
    frame = committed(frame, uncommitted)
    if any(name in frame.columns for name in PRESENT) or absent == "flag":
        return merged(frame, names, defaults or {}, absent)
    return _last_images(frame, names)


def _last_images(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the last image of each key, of changes whose images are whole."""
    order = [f"order_{n}" for n, _ in enumerate(order_of(frame.columns))]
    images = frame.select(
        *(column.alias(name) for column, name in zip(order_of(frame.columns), order, strict=True)),
        F.col("before"),
        F.col("after"),
    )
    # Within one row change the old key goes before the new one comes.
    gone = images.where("before IS NOT NULL").select(
        *order, F.lit(0).alias("step"), *_old_key(frame, names), F.lit(None).alias("row_after")
    )
    come = images.where("after IS NOT NULL OR before IS NULL").select(
        *order, F.lit(1).alias("step"), *_new_key(frame, names), F.col("after").alias("row_after")
    )
    nothing = F.lit(None).cast(frame.schema["after"].dataType)
    both = come.unionByName(gone.withColumn("row_after", nothing))
    newest = Window.partitionBy(*(f"key_{n}" for n in range(len(names)))).orderBy(
        *(F.col(name).desc() for name in (*order, "step"))
    )
    ranked = both.withColumn("rank", F.row_number().over(newest))
    return ranked.where("rank = 1 AND row_after IS NOT NULL").select("row_after.*")


def key_field(frame: DataFrame, image: str, name: str) -> Column:
    """Return a key column of an image that is there. Raises ConfigError: there is no such column.
    """
    return key_value(F.col(image), _field(frame, image, name))


def _field(frame: DataFrame, image: str, name: str) -> StructField:
    field = field_named(frame.schema[image].dataType, name)
    if field is None:
        raise ConfigError(f"there is no column {name} in the frame's images")
    return field


def _old_key(frame: DataFrame, names: Sequence[str]) -> list[Column]:
    return [key_field(frame, "before", name).alias(f"key_{n}") for n, name in enumerate(names)]


def _new_key(frame: DataFrame, names: Sequence[str]) -> list[Column]:
    """Return the key of `after`. A change of the table as a whole has no images: `surviving` has
    taken them out, but of a frame that hides them it cannot."""
    error = F.raise_error(F.lit(_HIDDEN))
    return [
        F.when(F.col("after").isNotNull(), key_field(frame, "after", name))
        .otherwise(error.cast(_field(frame, "after", name).dataType))
        .alias(f"key_{n}")
        for n, name in enumerate(names)
    ]


_HIDDEN = (
    "the frame has a TRUNCATE, DROP or RENAME, but not its column `sql`: read files by read_changes"
)
