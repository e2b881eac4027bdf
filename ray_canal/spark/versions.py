"""Frames of one table's changes, from before and after a DDL, in one schema."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from ray_canal.spark.lacking import frames_told
from ray_canal.spark.schema import merged_type, readable_type, spark_type
from ray_canal.views.mysql_texts import (
    DOUBLE_WIDTH,
    FLOAT_DIGITS,
    FLOAT_WIDTH,
    FRACTION,
    PLAIN_MAX,
)

_BYTES, _TEXT = spark.BinaryType(), spark.StringType()
_WHOLE_SECONDS = len("2026-11-28 01:02:03")
_EPOCH = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"


def in_one_schema(frames: list[DataFrame], *, tells_lacking: bool = False) -> list[DataFrame]:
    """The frames, oldest first, with the columns of all: structs with the fields of all, numbers in
    the wider type, text where types have nothing in common. Notes (the key) are the newest one's.

    `tells_lacking`: which columns a row's version did not have is told of whole images, too.
    """
    if all(frame.schema == frames[0].schema for frame in frames):
        return frames
    frames = frames_told(frames, tells_lacking)
    arrow = [readable_type(_arrow_type(frame.schema)) for frame in frames]
    merged = spark_type(reduce(merged_type, arrow))
    if not isinstance(merged, spark.StructType):
        return frames
    notes: dict[str, str] = next((f.metadata for f in frames[-1].schema.fields if f.metadata), {})
    return [
        frame.select(
            *(
                _as(
                    F.col(f"`{field.name}`"), field_named(frame.schema, field.name), field.dataType
                ).alias(field.name, metadata=notes)
                for field in merged
            )
        )
        for frame in frames
    ]


def _arrow_type(given: spark.DataType) -> pa.DataType:
    """Return Arrow's type, whose fields have the metadata of Spark's."""
    if not isinstance(given, spark.StructType):
        return to_arrow_type(given)
    return pa.struct(
        [pa.field(f.name, _arrow_type(f.dataType), f.nullable, f.metadata or None) for f in given]
    )


def field_named(struct: spark.DataType, name: str) -> spark.StructField | None:
    """Return a field, in whichever letters."""
    if not isinstance(struct, spark.StructType):
        return None
    return next((field for field in struct if field.name.lower() == name.lower()), None)


def _as(column: Column, given: spark.StructField | None, wanted: spark.DataType) -> Column:
    """A column, which may not be there, as another type; structs by the names of their fields."""
    if given is None:
        return F.lit(None).cast(wanted)
    if given.dataType == wanted:
        return column
    if not isinstance(wanted, spark.StructType):
        text = _mysql_text(column, given) if wanted in (_TEXT, _BYTES) else column
        return text.cast(wanted)
    fields = []
    for field in wanted:
        found = field_named(given.dataType, field.name)
        value = column[field.name if found is None else found.name]
        as_wanted = _as(value, found, field.dataType)
        fields.append(as_wanted.alias(field.name, metadata=field.metadata))
    return F.when(column.isNotNull(), F.struct(*fields))


def _mysql_text(column: Column, field: spark.StructField) -> Column:
    """A column of another type as `mysql_texts` (views/mysql_texts.py) makes it of Arrow's."""
    given = field.dataType
    if given == _BYTES:
        return column
    if isinstance(given, spark.ArrayType):
        return F.array_join(column, ",")
    if isinstance(given, spark.FractionalType) and not isinstance(given, spark.DecimalType):
        return _number_text(column, given)
    if isinstance(given, spark.DecimalType) and given.scale > 0:
        return _decimal_text(column)
    if isinstance(given, spark.DayTimeIntervalType):
        return _with_digits(_time_text(column), field)
    if isinstance(given, spark.TimestampType):
        seconds = (F.unix_micros(column).cast("decimal(20, 0)") / 1_000_000).cast("decimal(18, 6)")
        column = F.expr(_EPOCH) + F.make_dt_interval(secs=seconds)
    if isinstance(given, spark.TimestampType | spark.TimestampNTZType):
        text = column.cast("string")  # which ends in no zeros
        point = F.when(F.length(text) == _WHOLE_SECONDS, ".").otherwise("")
        return _with_digits(F.rpad(F.concat(text, point), _WHOLE_SECONDS + 7, "0"), field)
    return column.cast("string")


def _with_digits(text: Column, field: spark.StructField) -> Column:
    """Return times with six fractional digits with as many as were declared; where that is unknown,
    without zeros at the end."""
    digits = (field.metadata or {}).get(FRACTION.decode())
    if not digits:
        return F.regexp_replace(text, r"\.?0{1,6}$", "")
    dropped = 6 - int(digits) if int(digits) else 7
    return text.substr(F.lit(1), F.length(text) - dropped)


def _time_text(column: Column) -> Column:
    day, hour, minute, second = (
        F.abs(F.extract(F.lit(part), column)) for part in ("DAY", "HOUR", "MINUTE", "SECOND")
    )
    sign = F.when(column < F.expr("INTERVAL '0' SECOND"), "-").otherwise("")
    hours = (day * 24 + hour).cast("int")
    text = F.format_string("%s%02d:%02d:%09.6f", sign, hours, minute, second.cast("double"))
    return F.when(column.isNotNull(), text)


def _decimal_text(column: Column) -> Column:
    """A decimal with all its digits: Spark's own text of a small one has an exponent."""
    value = F.abs(column)
    sign = F.when(column < 0, "-").otherwise("")
    behind = F.substring_index((value % 1 + 1).cast("string"), ".", -1)
    return F.concat(sign, F.floor(value).cast("string"), F.lit("."), behind)


def _number_text(column: Column, given: spark.DataType) -> Column:
    """A FLOAT or DOUBLE; see `number_text`."""
    is_float = isinstance(given, spark.FloatType)
    size = F.abs(column.cast("double"))
    written = _six_digits(size) if is_float else _shortest(size)
    mantissa, power = (F.substring_index(written, "e", n) for n in (1, -1))
    digits = F.regexp_replace(F.regexp_replace(mantissa, r"\.", ""), "0+$", "")
    count, point = F.length(digits), power.cast("int") + 1
    plain = (
        F.when(point <= 0, F.concat(F.lit("0."), _zeros(-point), digits))
        .when(point < count, F.concat(_first(digits, point), F.lit("."), _rest(digits, point)))
        .otherwise(F.concat(digits, _zeros(point - count)))
    )
    behind = F.when(count > 1, F.concat(F.lit("."), _rest(digits, F.lit(1)))).otherwise("")
    short = F.concat(_first(digits, F.lit(1)), behind, F.lit("e"), (point - 1).cast("string"))
    sign = F.when(column < 0, "-").otherwise("")
    fits = F.length(sign) + F.length(plain) <= (FLOAT_WIDTH if is_float else DOUBLE_WIDTH)
    is_plain = fits & (point > -PLAIN_MAX) & ((point <= PLAIN_MAX) | (count > point))
    text = F.concat(sign, F.when(is_plain, plain).otherwise(short))
    return F.when(size == 0, "0").when(column.isNotNull(), text)


def _zeros(count: Column) -> Column:
    return F.call_function("repeat", F.lit("0"), count)


def _first(text: Column, count: Column) -> Column:
    return text.substr(F.lit(1), count)


def _rest(text: Column, after: Column) -> Column:
    return text.substr(after + 1, F.length(text))


def _six_digits(size: Column) -> Column:
    """Scientific notation. Java rounds half up, MySQL to the even digit."""
    rounded = F.format_string(f"%.{FLOAT_DIGITS - 1}e", size)
    whole = F.format_string("%.16e", size)
    is_tie = whole.rlike(r"^\d\.\d{4}[02468]50*e")
    cut = F.concat(whole.substr(1, FLOAT_DIGITS + 1), F.lit("e"), F.substring_index(whole, "e", -1))
    return F.when(is_tie, cut).otherwise(rounded)


def _shortest(size: Column) -> Column:
    """Scientific notation with the fewest digits that are the same number."""
    found = F.format_string("%.16e", size)
    for places in (15, 14):
        fewer = F.format_string(f"%.{places}e", size)
        found = F.when(fewer.cast("double") == size, fewer).otherwise(found)
    return found
