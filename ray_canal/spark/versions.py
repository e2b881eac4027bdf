"""Frames of one table's changes, from before and after a DDL, in one schema."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from ray_canal.spark.schema import merged_type, readable_type, spark_type

_BYTES, _TEXT = spark.BinaryType(), spark.StringType()
_PLAIN_DIGITS = 6
"""With more digits behind the point Spark's text of a small decimal has an exponent."""


def in_one_schema(frames: list[DataFrame]) -> list[DataFrame]:
    """The frames, oldest first, with the columns of all: structs with the fields of all, numbers in
    the wider type, text where types have nothing in common. Notes (the key) are the newest one's.
    """
    if all(frame.schema == frames[0].schema for frame in frames):
        return frames
    arrow = [readable_type(to_arrow_type(frame.schema)) for frame in frames]
    merged = spark_type(reduce(merged_type, arrow))
    if not isinstance(merged, spark.StructType):
        return frames
    notes: dict[str, str] = next((f.metadata for f in frames[-1].schema.fields if f.metadata), {})
    return [
        frame.select(
            *(
                _as(
                    F.col(f"`{field.name}`"), _type_of(frame.schema, field.name), field.dataType
                ).alias(field.name, metadata=notes)
                for field in merged
            )
        )
        for frame in frames
    ]


def _type_of(struct: spark.DataType, name: str) -> spark.DataType | None:
    field = field_named(struct, name)
    return None if field is None else field.dataType


def field_named(struct: spark.DataType, name: str) -> spark.StructField | None:
    """Return a field, in whichever letters."""
    if not isinstance(struct, spark.StructType):
        return None
    return next((field for field in struct if field.name.lower() == name.lower()), None)


def _as(column: Column, given: spark.DataType | None, wanted: spark.DataType) -> Column:
    """A column, which may not be there, as another type; structs by the names of their fields."""
    if given is None:
        return F.lit(None).cast(wanted)
    if given == wanted:
        return column
    if not isinstance(wanted, spark.StructType):
        if isinstance(given, spark.ArrayType):
            column = F.array_join(column, ",")  # as MySQL shows a SET
        elif isinstance(given, spark.DayTimeIntervalType):
            column = _time_text(column)
        elif isinstance(given, spark.DecimalType) and given.scale > _PLAIN_DIGITS:
            column = _decimal_text(column) if wanted in (_TEXT, _BYTES) else column
        # A number's bytes are not its text.
        return column.cast("string").cast(wanted) if wanted == _BYTES else column.cast(wanted)
    fields = []
    for field in wanted:
        found = field_named(given, field.name)
        value = column[field.name if found is None else found.name]
        fields.append(
            _as(value, _type_of(given, field.name), field.dataType).alias(field.name)
        )
    return F.when(column.isNotNull(), F.struct(*fields))


def _time_text(column: Column) -> Column:
    """A TIME as MySQL shows it, and as `time_texts` makes it of Arrow."""
    day, hour, minute, second = (
        F.abs(F.extract(F.lit(part), column)) for part in ("DAY", "HOUR", "MINUTE", "SECOND")
    )
    sign = F.when(column < F.expr("INTERVAL '0' SECOND"), "-").otherwise("")
    hours = (day * 24 + hour).cast("int")
    text = F.format_string("%s%02d:%02d:%09.6f", sign, hours, minute, second.cast("double"))
    return F.when(column.isNotNull(), text)


def _decimal_text(column: Column) -> Column:
    """A decimal with all its digits."""
    value = F.abs(column)
    sign = F.when(column < 0, "-").otherwise("")
    behind = F.substring_index((value % 1 + 1).cast("string"), ".", -1)
    return F.concat(sign, F.floor(value).cast("string"), F.lit("."), behind)
