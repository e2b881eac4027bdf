"""Arrow types of ray_canal -> Arrow types that Spark 3.5 reads -> Spark's own types.

Spark has no unsigned integers, no dictionaries, no decimals of more than 38 digits and no time of
day; what becomes of them is the table in `docs/how-to/spark.md`. Casts are Arrow's, on whole
columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kind
from pyspark.sql import types as spark

from ray_canal.errors import CanalError
from ray_canal.views.mysql_texts import fraction_digits, fraction_notes, mysql_texts

SPARK_DECIMAL_DIGITS_MAX = 38
_UINT64_DIGITS = 20
_DOUBLE_DIGITS = 15
"""A double keeps every decimal number of so many digits."""
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}

_SIMPLE = {
    pa.bool_(): pa.bool_(),
    pa.int8(): pa.int8(),
    pa.int16(): pa.int16(),
    pa.int32(): pa.int32(),
    pa.int64(): pa.int64(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(_UINT64_DIGITS, 0),
    pa.float16(): pa.float32(),
    pa.float32(): pa.float32(),
    pa.float64(): pa.float64(),
    pa.string(): pa.string(),
    # Spark 3.5 reads Arrow's 64-bit offsets as if they were 32-bit: empty values, and no error.
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.binary(): pa.binary(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date32(): pa.date32(),
    pa.date64(): pa.date32(),
    # Parquet cannot hold Spark's void type; a column without any value may as well be text.
    pa.null(): pa.string(),
}

_SPARK = {
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.date32(): spark.DateType(),
    pa.duration("us"): spark.DayTimeIntervalType(),
}


class UnsupportedType(CanalError):
    """An Arrow type for which there is no Spark type."""


def readable_type(given: pa.DataType) -> pa.DataType:
    """The Arrow type in which Spark gets a column of type `given`. Raises UnsupportedType."""
    found = _SIMPLE.get(given)
    if found is not None:
        return found
    if kind.is_dictionary(given):
        return readable_type(given.value_type)
    if kind.is_decimal(given):
        if given.precision > SPARK_DECIMAL_DIGITS_MAX:
            return pa.string()
        return pa.decimal128(given.precision, given.scale)
    if kind.is_timestamp(given):
        return pa.timestamp("us", tz=given.tz)
    if kind.is_duration(given):
        return pa.duration("us")
    if kind.is_time(given):
        return pa.int64()
    if kind.is_fixed_size_binary(given):
        return pa.binary()
    if kind.is_list(given) or kind.is_large_list(given):
        return pa.list_(readable_type(given.value_type))
    if kind.is_struct(given):
        return pa.struct(
            [pa.field(f.name, readable_type(f.type), f.nullable, f.metadata) for f in given]
        )
    if isinstance(given, pa.BaseExtensionType):
        return readable_type(given.storage_type)
    raise UnsupportedType(f"Spark has no type for Arrow's {given}")


def readable_schema(given: pa.Schema) -> pa.Schema:
    """`readable_type` for each field; names, nullability and metadata stay."""
    fields = [given.field(i) for i in range(len(given))]
    return pa.schema(
        [pa.field(f.name, readable_type(f.type), f.nullable, f.metadata) for f in fields],
        given.metadata,
    )


def readable_array(array: pa.Array, target: pa.DataType, digits: int | None = None) -> pa.Array:
    """`array` as `target`, a type that came from `readable_type`; itself where nothing changes.

    A struct may lack fields of `target`: they come out as NULL. `digits`: the declared fractional
    digits of times (None: unknown).
    """
    given = array.type
    if given == target:
        return array
    if isinstance(given, pa.BaseExtensionType):
        return readable_array(array.storage, target)
    if kind.is_dictionary(given):
        return readable_array(array.dictionary_decode(), target)
    if kind.is_struct(given):
        return _readable_struct(array, target)
    if kind.is_list(given) or kind.is_large_list(given):
        if kind.is_list(target):
            return _readable_list(array, target)
        words = _readable_list(array, pa.list_(pa.string()))
        return pc.binary_join(words, ",").cast(target)  # as MySQL shows a SET
    if kind.is_time(given):
        return readable_array(array.cast(pa.time64("us")).cast(pa.int64()), target)
    if target in (pa.string(), pa.binary()) and readable_type(given) != pa.binary():
        return mysql_texts(array, digits).cast(target)
    # Rounded to the next one, as ALTER TABLE does.
    return array.cast(target, safe=not kind.is_floating(target))


def readable_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`batch` in `schema`, by column name; columns that it lacks come out as NULL."""
    batch = in_letters_of(batch, schema)
    columns = []
    for index in range(len(schema)):
        wanted = schema.field(index)
        at = batch.schema.get_field_index(wanted.name)
        columns.append(
            pa.nulls(batch.num_rows, wanted.type)
            if at < 0
            else readable_array(batch.column(at), wanted.type)
        )
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def in_letters_of(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch whose images name their columns in the letters of `schema`: a column that was renamed
    from `userid` to `userId` is the same one to the server, and to Spark."""
    types = [
        _lettered(f.type, schema.field(f.name).type) if f.name in schema.names else f.type
        for f in batch.schema
    ]
    if all(new.equals(old.type) for new, old in zip(types, batch.schema, strict=True)):
        return batch
    columns = [
        column
        if new.equals(column.type)
        else pa.StructArray.from_arrays(
            [column.field(index) for index in range(column.type.num_fields)],
            fields=list(new),
            mask=column.is_null() if column.null_count else None,
        )
        for column, new in zip(batch.columns, types, strict=True)
    ]
    fields = [f.with_type(new) for f, new in zip(batch.schema, types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, batch.schema.metadata))


@lru_cache(maxsize=4096)
def _lettered(given: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if not (kind.is_struct(given) and kind.is_struct(wanted)):
        return given
    names = {field.name.lower(): field.name for field in wanted}
    return pa.struct([f.with_name(names.get(f.name.lower(), f.name)) for f in given])


def merged_type(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """One type for both: two versions of a table that meet in one batch.

    Structs get the fields of both, in the order and letters of the newer (second) one; numbers
    widen; a DATE that meets a DATETIME is one; what has nothing in common becomes text, with bytes
    bytes. Both must come from `readable_type`.
    """
    if first.equals(second, check_metadata=True):
        return first
    if kind.is_struct(first) and kind.is_struct(second):
        older = {field.name.lower(): field for field in first}
        newer = {field.name.lower(): field for field in second}
        fields = [
            _merged_field(older[name], field)
            if name in older
            else pa.field(field.name, field.type, metadata=field.metadata)
            for name, field in newer.items()
        ]
        return pa.struct([*fields, *(field for name, field in older.items() if name not in newer)])
    if first == second:
        return first
    if pa.binary() in (first, second):
        return pa.binary()
    if kind.is_decimal(first) or kind.is_decimal(second):
        return _merged_decimal(first, second)
    if {first, second} == {pa.date32(), pa.timestamp("us")}:
        return pa.timestamp("us")
    try:
        merged = pa.unify_schemas(
            [pa.schema([("c", first)]), pa.schema([("c", second)])], promote_options="permissive"
        )
        return readable_type(merged.field(0).type)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.string()


def _merged_field(older: pa.Field, newer: pa.Field) -> pa.Field:
    """Return one field for both. Of times it has the digits of whichever has more: rows of the
    other one are shown with them, as after ALTER TABLE, and none loses any."""
    merged = merged_type(older.type, newer.type)
    notes = None
    if kind.is_timestamp(merged) or kind.is_duration(merged):
        digits = [0 if kind.is_date(f.type) else fraction_digits(f) for f in (older, newer)]
        known = [n for n in digits if n is not None]
        notes = fraction_notes(max(known) if len(known) == 2 else None)
    return pa.field(newer.name, merged, metadata=notes)


def _merged_decimal(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """Return the type of a decimal and another type, with all digits of both."""
    if kind.is_floating(first) or kind.is_floating(second):
        return pa.float64()
    whole, scale = 0, 0
    for each in (first, second):
        if kind.is_decimal(each):
            whole, scale = max(whole, each.precision - each.scale), max(scale, each.scale)
        elif each in _DIGITS:
            whole = max(whole, _DIGITS[each])
        else:
            return pa.string()
    if whole + scale > SPARK_DECIMAL_DIGITS_MAX:
        return pa.string()
    return pa.decimal128(whole + scale, scale)


def is_part_of(given: pa.Schema, wanted: pa.Schema) -> bool:
    """Return whether rows of one readable schema can be shown in another without loss: it has all
    their columns, in their types or wider ones."""
    return _is_part(pa.struct(list(given)), pa.struct(list(wanted)))


def _is_part(given: pa.DataType, wanted: pa.DataType) -> bool:
    if kind.is_struct(given) and kind.is_struct(wanted):
        types = {field.name.lower(): field.type for field in wanted}
        return all(
            field.name.lower() in types and _is_part(field.type, types[field.name.lower()])
            for field in given
        )
    return bool(merged_type(given, wanted) == wanted)


def unrounded(given: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """`wanted`, with text for floating numbers in which numbers of `given` would be rounded: a
    BIGINT, or a DECIMAL of more than 15 digits."""
    found = _unrounded(pa.struct(list(given)), pa.struct(list(wanted)))
    return pa.schema(list(found), wanted.metadata)


def _unrounded(given: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if kind.is_struct(given) and kind.is_struct(wanted):
        types = {field.name.lower(): field.type for field in given}
        return pa.struct(
            [
                field.with_type(_unrounded(types.get(field.name.lower(), field.type), field.type))
                for field in wanted
            ]
        )
    digits = given.precision if kind.is_decimal(given) else _DIGITS.get(given, 0)
    return pa.string() if kind.is_floating(wanted) and digits > _DOUBLE_DIGITS else wanted


def spark_type(readable: pa.DataType) -> spark.DataType:
    """Spark's type for a type that came from `readable_type`. Raises UnsupportedType."""
    found = _SPARK.get(readable)
    if found is not None:
        return found
    if kind.is_decimal128(readable):
        return spark.DecimalType(readable.precision, readable.scale)
    if kind.is_timestamp(readable):
        # MySQL's DATETIME has no zone, TIMESTAMP is an instant: Spark has a type for each.
        return spark.TimestampNTZType() if readable.tz is None else spark.TimestampType()
    if kind.is_list(readable):
        return spark.ArrayType(spark_type(readable.value_type))
    if kind.is_struct(readable):
        return spark.StructType(
            [
                spark.StructField(f.name, spark_type(f.type), f.nullable, _notes(f.metadata))
                for f in readable
            ]
        )
    raise UnsupportedType(f"Spark has no type for Arrow's {readable}")


def spark_schema(readable: pa.Schema) -> spark.StructType:
    """Spark's schema; the Arrow schema's metadata goes to the metadata of each top-level field."""
    notes = _notes(readable.metadata)
    fields = [readable.field(i) for i in range(len(readable))]
    return spark.StructType(
        [spark.StructField(f.name, spark_type(f.type), f.nullable, notes) for f in fields]
    )


def _notes(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Return ray_canal's own metadata as Spark keeps them."""
    return {
        key.decode(): value.decode("utf-8", "replace")
        for key, value in (metadata or {}).items()
        if key.startswith(b"canal.")
    }


def schema_json(readable: pa.Schema) -> str:
    """`spark_schema` as the JSON that Spark's JVM side parses."""
    return json.dumps(spark_schema(readable).jsonValue())


def _readable_struct(array: pa.StructArray, target: pa.StructType) -> pa.StructArray:
    children = []
    for field in target:
        at = array.type.get_field_index(field.name)
        children.append(
            pa.nulls(len(array), field.type)
            if at < 0
            else readable_array(array.field(at), field.type, fraction_digits(array.type.field(at)))
        )
    mask = array.is_null() if array.null_count else None
    if not children:
        return pa.array([None if gone else {} for gone in array.is_null().to_pylist()], type=target)
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def _readable_list(array: pa.ListArray, target: pa.ListType) -> pa.ListArray:
    # A sliced list array's offsets start above 0 while values are kept whole: both stay as they
    # are.
    values = readable_array(array.values, target.value_type)
    mask = array.is_null() if array.null_count else None
    offsets = array.offsets.cast(pa.int32())
    if offsets.offset:
        offsets = pa.concat_arrays([offsets])
    if mask is not None and mask.offset:
        mask = pa.concat_arrays([mask])
    return pa.ListArray.from_arrays(offsets, values, type=target, mask=mask)
