"""The last known value of each column of each row, of changes whose images lack columns.

A row's life begins with an INSERT, or with an UPDATE that gives it its key, and ends with a DELETE,
or with an UPDATE that gives it another key. In a life, a column's value is that of the last image
that has it. A row that was given another key takes with it what its life before knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from ray_canal.errors import ConfigError
from ray_canal.spark.place import order_of

Absent = Literal["error", "null", "flag"]
PRESENT = "present"
"""The column that `absent="flag"` adds."""

_BORN, _MOVED, _SAME, _GONE = "born", "moved", "same", "gone"


def merged(
    frame: DataFrame, key: Sequence[str], defaults: Mapping[str, Any], absent: Absent
) -> DataFrame:
    """The rows that are left after the changes in `frame`, column by column as they are known."""
    image = _fields(frame, "after")
    names = [field.name for field in image]
    unknown = [name for name in (*key, *defaults) if name not in names]
    if unknown:
        raise ConfigError(f"there is no column {unknown[0]} in the frame's images")
    lives = _lives(_steps(frame, key, names, defaults), names)
    lives = _with_defaults(lives, image, defaults)
    rows = lives.where((F.col("began") != _GONE) & F.col("ends_at").isNull())
    rows = _with_earlier_lives(rows, lives, names)
    return _shown(_without_guesses(rows, names), image, absent)


def _fields(frame: DataFrame, name: str) -> spark.StructType:
    found = frame.schema[name].dataType
    if not isinstance(found, spark.StructType):
        raise ConfigError(f"`{name}` is no struct: not a frame of changes")
    return found


def _steps(
    frame: DataFrame, key: Sequence[str], names: Sequence[str], defaults: Mapping[str, Any]
) -> DataFrame:
    """Return what happens to each key: key, at, step, kind, parent (the key before), lacking (the
    columns that the table did not have), and of each column a struct (value, is_unknown,
    lacking), NULL where the change does not tell it."""
    sides = {side: _Side(frame, side) for side in ("before", "after")}
    before, after = sides["before"], sides["after"]
    old = F.struct(*(before.key(name).alias(name) for name in key))
    new = F.struct(*(after.key(name, before).alias(name) for name in key))
    lacking = [F.when(after.is_without(n, before), F.lit(n)) for n in names]
    frame = frame.withColumn("lacking", F.array_compact(F.array(*lacking)))
    values = [
        F.coalesce(after.known(n, before, defaults), before.known(n, after, defaults)).alias(
            _value(n)
        )
        for n in names
    ]
    both = F.col("before").isNotNull() & F.col("after").isNotNull()
    kind = (
        F.when(F.col("before").isNull(), _BORN)
        .when(F.col("after").isNull(), _GONE)
        .when(old.eqNullSafe(new), _SAME)
        .otherwise(_MOVED)
    )
    changes = frame.where("before IS NOT NULL OR after IS NOT NULL").select(
        F.struct(*(c.alias(f"o{n}") for n, c in enumerate(order_of(frame.columns)))).alias("at"),
        F.when(F.col("after").isNotNull(), new).alias("new"),
        F.when(F.col("before").isNotNull(), old).alias("old"),
        kind.alias("kind"),
        F.when(both, old).alias("parent"),
        "lacking",
        *values,
    )
    come = changes.where(F.col("kind") != _GONE).select(
        F.col("new").alias("key"),
        "at",
        F.lit(1).alias("step"),
        "kind",
        "parent",
        "lacking",
        *map(_of, names),
    )
    gone = changes.where(F.col("kind").isin(_GONE, _MOVED)).select(
        F.col("old").alias("key"),
        "at",
        F.lit(0).alias("step"),
        F.lit(_GONE).alias("kind"),
        F.lit(None).cast(come.schema["parent"].dataType).alias("parent"),
        "lacking",
        *(F.lit(None).cast(come.schema[_value(n)].dataType).alias(_value(n)) for n in names),
    )
    return come.unionByName(gone)


class _Side:
    """One image of a frame, and which columns it has."""

    def __init__(self, frame: DataFrame, side: str) -> None:
        self._image = F.col(side)
        self._kinds = _fields(frame, side)
        name = f"{side}_present"
        self._present = F.col(name) if name in frame.columns else None
        self._flags = set(_fields(frame, name).names) if self._present is not None else set()

    def _has(self, name: str) -> Column:
        """Return whether the image has a column; NULL: a change of its value alone."""
        if self._present is None or name not in self._flags:
            return F.lit(True)
        return F.when(self._present.isNull(), F.lit(True)).otherwise(self._present.getField(name))

    def is_without(self, name: str, other: _Side) -> Column:
        """Return whether the table did not have a column then (spark/lacking.py)."""
        if self._present is None or name not in self._flags & other._flags:
            return F.lit(False)
        left_out = F.coalesce(~other._has(name), F.lit(False))
        is_partial = self._image.isNotNull() & self._present.isNotNull()
        return is_partial & self._has(name).isNull() & ~left_out

    def known(self, name: str, other: _Side, defaults: Mapping[str, Any]) -> Column:
        has, field = self._has(name), self._kinds[name]
        value = _told(self._image.getField(name), is_unknown=has.isNull())
        default = _default(field, defaults.get(name))
        without = _told(default, lacking=None if name in defaults else F.col("lacking"))
        value = F.when(self.is_without(name, other), without).otherwise(value)
        return F.when(self._image.isNotNull() & F.coalesce(has, F.lit(True)), value)

    def key(self, name: str, other: _Side | None = None) -> Column:
        """A key column; what the image lacks is as in the other one."""
        missing = other.key(name) if other is not None else self._error_without_key(name)
        has = F.coalesce(self._has(name), F.lit(False))
        value = F.when(self._image.isNotNull(), key_value(self._image, self._kinds[name]))
        return F.when(has, value).otherwise(missing)

    def _error_without_key(self, name: str) -> Column:
        text = f"an image lacks the key column {name}: give a `key` that rows always have"
        error = F.raise_error(F.lit(text)).cast(self._kinds[name].dataType)
        return F.when(self._image.isNotNull(), error)


def _told(
    value: Column, is_unknown: Column | None = None, lacking: Column | None = None
) -> Column:
    """A struct of what a change tells of a column. `is_unknown`: it has another value, but which is
    not told; `lacking`: what the table did not have then: this one, and these others."""
    return F.struct(
        value.alias("value"),
        (F.lit(False) if is_unknown is None else is_unknown).alias("is_unknown"),
        (F.lit(None).cast("array<string>") if lacking is None else lacking).alias("lacking"),
    )


def _default(field: spark.StructField, value: Any) -> Column:
    return F.lit(value).cast(field.dataType)


def key_value(image: Column, field: spark.StructField) -> Column:
    """A key column of an image that is there; an error if it is NULL: rows that are NULL there are
    not told apart, and would become one row."""
    error = F.raise_error(F.lit(_NO_KEY.format(name=field.name))).cast(field.dataType)
    return F.coalesce(image.getField(field.name), error)


_NO_KEY = (
    "a change has NULL in the key column {name}, which tells no rows apart: give a `key` that is "
    "never NULL, or, if the table got this column later, begin with its rows as they are now"
)


def _lives(steps: DataFrame, names: Sequence[str]) -> DataFrame:
    """key, began (how), began_at, ends_at (NULL: it lasts), parent, lacking (at its last change),
    and the last known values."""
    by_key = Window.partitionBy("key").orderBy("at", "step")
    starts = (F.col("kind") != _SAME).cast("int")
    numbered = steps.withColumn("life", F.sum(starts).over(by_key))
    first = F.struct("at", "step")
    known = [F.max_by(_of(n), F.when(_of(n).isNotNull(), first)).alias(_value(n)) for n in names]
    lives = numbered.groupBy("key", "life").agg(
        F.min_by("kind", first).alias("began"),
        F.min("at").alias("began_at"),
        F.min_by("parent", first).alias("parent"),
        F.max_by("lacking", first).alias("lacking"),
        *known,
    )
    follows = Window.partitionBy("key").orderBy("life")
    return lives.withColumn("ends_at", F.lead("began_at").over(follows))


def _with_defaults(
    lives: DataFrame, image: spark.StructType, defaults: Mapping[str, Any]
) -> DataFrame:
    """Give columns that an INSERT does not tell their defaults."""
    for name, value in defaults.items():
        given = _told(_default(image[name], value))
        told = F.when(_of(name).isNull() & (F.col("began") == _BORN), given).otherwise(_of(name))
        lives = lives.withColumn(_value(name), told)
    return lives


def _with_earlier_lives(rows: DataFrame, lives: DataFrame, names: Sequence[str]) -> DataFrame:
    """Give a row that got another key what it lacks, from its life before."""
    lacks = F.lit(False)
    for name in names:
        lacks = lacks | _of(name).isNull()
    waits = (F.col("began") == _MOVED) & lacks
    if not rows.where(waits).limit(1).count():
        return rows
    lives = lives.where(F.col("began") != _GONE).localCheckpoint()
    done, rows = rows.where(~waits), rows.where(waits).localCheckpoint()
    columns = [F.col(_quoted(name)) for name in done.columns]
    while rows.limit(1).count():
        mine, theirs = rows.alias("mine"), lives.alias("theirs")
        same_row = F.col("mine.parent").eqNullSafe(F.col("theirs.key")) & F.col(
            "mine.began_at"
        ).eqNullSafe(F.col("theirs.ends_at"))
        told = [
            F.coalesce(F.col(f"mine.{_quoted(n)}"), F.col(f"theirs.{_quoted(n)}")).alias(n)
            for n in map(_value, names)
        ]
        rows = mine.join(theirs, same_row, "left").select(
            "mine.key",
            "mine.life",
            # Without a life before, nothing more is known.
            F.coalesce("theirs.began", F.lit(_SAME)).alias("began"),
            "theirs.began_at",
            "theirs.parent",
            "mine.lacking",
            *told,
            "mine.ends_at",
        )
        rows = rows.select(*columns).localCheckpoint()
        done, rows = done.unionByName(rows.where(~waits)), rows.where(waits)
    return done


def _without_guesses(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Forget that a table did not have a column when a row was last told all of it, if the table
    has lost another one until the row's last change: the column may be that one, renamed."""
    values = []
    for name in names:
        lost = F.array_except("lacking", _of(name).getField("lacking"))
        values.append(F.when(~(F.size(lost) > 0), _of(name)).alias(_value(name)))
    return rows.select("key", *values)


def _shown(rows: DataFrame, image: spark.StructType, absent: Absent) -> DataFrame:
    """The columns of the images, and what is said of those that are not known."""
    columns = []
    for field in image:
        found, value = _of(field.name), _of(field.name).getField("value")
        if absent == "error":
            key = F.to_json("key")
            value = (
                F.when(found.isNull(), _raised(field, "", key))
                .when(found.getField("is_unknown"), _raised(field, _CHANGED_ONLY, key))
                .otherwise(value)
            )
        columns.append(value.alias(field.name))
    if absent == "flag":
        flags = [
            F.when(_of(f.name).isNull(), F.lit(False))
            .when(_of(f.name).getField("lacking").isNotNull(), F.lit(False))
            .when(~_of(f.name).getField("is_unknown"), F.lit(True))
            .alias(f.name)
            for f in image
        ]
        columns.append(F.struct(*flags).alias(PRESENT))
    return rows.select(*columns)


_CHANGED_ONLY = ", but for a change of its value"


def _raised(field: spark.StructField, but: str, key: Column) -> Column:
    text = F.concat(
        F.lit("of the row "),
        key,
        F.lit(
            f" no change tells column {field.name}{but}, as the server leaves columns out "
            "(binlog_row_image; MariaDB 11.8 generated ones always): begin with whole rows, or "
            "give `defaults` for what INSERTs leave out, or say with `absent` = "
            '"null" or "flag" how to show it'
        ),
    )
    return F.raise_error(text).cast(field.dataType)


def _value(name: str) -> str:
    return f"of_{name}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _of(name: str) -> Column:
    return F.col(_quoted(_value(name)))
