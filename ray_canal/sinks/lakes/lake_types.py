"""The types of Arrow columns in tables of a lake, and values in them.

Lakes have no unsigned and no short integers, no spans of time, and decimals of 38 digits. Wider
types are taken from the start, so that few changes of a source's column are changes there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.config.sink import TablePolicy
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.net_change import plain
from ray_canal.sinks.port import READ_AGAIN, SinkError, source_named
from ray_canal.views.mysql_texts import field_with_digits, fraction_digits
from ray_canal.views.texts import decimal_texts

SOURCE_PROPERTY = "ray_canal.source"
"""Property of a table: the source's table whose rows it has."""
DESTINATION_PROPERTY = "ray_canal.destination"
"""Property of a table: the destination that it is of."""
_INTEGERS = {
    pa.int8(): pa.int32(), pa.int16(): pa.int32(), pa.uint8(): pa.int32(), pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
}  # fmt: skip


def source_told(properties: Mapping[str, str | None], own: str) -> str:
    """Return whose rows a table has, by its properties; "": not known. `own`: the destination of
    the sink; "": it does not matter."""
    source, destination = properties.get(SOURCE_PROPERTY), properties.get(DESTINATION_PROPERTY)
    return source_named(source or "", destination or "", own)


def lake_type(kind: pa.DataType, naive_is_utc: bool) -> pa.DataType:
    """Return the type that a column has. `naive_is_utc`: a DATETIME becomes an instant."""
    types = pa.types
    if kind in _INTEGERS:
        return _INTEGERS[kind]
    if types.is_duration(kind):
        return pa.int64()
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz or ("UTC" if naive_is_utc else None))
    if types.is_decimal256(kind):
        return pa.string()
    if types.is_dictionary(kind):
        return kind.value_type
    if types.is_list(kind):
        return pa.string() if types.is_string(kind.value_type) else kind
    if types.is_struct(kind):
        return pa.struct([(f.name, lake_type(f.type, naive_is_utc)) for f in kind])
    return kind


def lake_field(field: pa.Field, naive_is_utc: bool) -> pa.Field:
    """Return the field that a column has. A time keeps its fractional digits: they tell a TIME from
    other integers, and how many digits its text has."""
    data_type = lake_type(field.type, naive_is_utc)
    return field_with_digits(field.name, data_type, fraction_digits(field))


def lake_array(values: pa.Array, naive_is_utc: bool) -> pa.Array:
    """Return values in their lake's type; a span of time is its microseconds."""
    kind = values.type
    if pa.types.is_struct(kind):
        inner = [lake_array(pc.struct_field(values, [f.name]), naive_is_utc) for f in kind]
        return pa.StructArray.from_arrays(inner, [f.name for f in kind], mask=values.is_null())
    if pa.types.is_decimal256(kind):
        return decimal_texts(values)
    return plain(values).cast(lake_type(kind, naive_is_utc))


def has_other_values(held: pa.Field, kind: pa.DataType) -> bool:
    """Return whether MySQL's conversion of what a column holds to a column of this Arrow type is
    not that of numbers here: of '01:02:03' it makes 10203, of a DATETIME the TIME of its day. A
    column whose digits are not known may be a TIME."""
    was = "span" if is_span(held.type, fraction_digits(held)) else _family(held.type)
    now = _family(kind)
    if pa.types.is_int64(held.type) and now == "span":
        return False
    return was != now and bool(was and now)


def is_span(kind: pa.DataType, digits: int | None) -> bool:
    """Return whether a column of this type, declared with these fractional digits, is a TIME."""
    return digits is not None and bool(pa.types.is_int64(kind))


def _family(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_duration(kind):
        return "span"
    if types.is_timestamp(kind) or types.is_date(kind):
        return "date"
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return "number" if is_number else ""


def lake_fills(columns: Iterable[ColumnSpec], naive_is_utc: bool) -> dict[str, pa.Scalar]:
    """Return the values that rows which are there have in columns that are new, where it is not
    null."""
    return {
        column.name: lake_array(pa.array([column.fill], column.kind), naive_is_utc)[0]
        for column in columns
        if column.fill is not None
    }


def lake_table(table: pa.Table, naive_is_utc: bool) -> pa.Table:
    """Return a table with its columns in the lake's types."""
    columns = {
        field.name: pa.chunked_array(
            [lake_array(chunk, naive_is_utc) for chunk in table[field.name].chunks],
            lake_type(field.type, naive_is_utc),
        )
        for field in table.schema
    }
    return pa.table(columns)


def retyping_advice(policy: TablePolicy) -> str:
    """Return what helps where a value does not fit the type that a column has in the target."""
    name = policy.setting("schema_change")
    return f'set {name} to "evolve"; where it is, drop the table there, {READ_AGAIN}'


def fitting(table: pa.Table, schema: pa.Schema, name: str, advice: str) -> pa.Table:
    """Return a table with the types that the target has. Raises SinkError, with advice."""
    columns = {}
    for column in table.column_names:
        kind = schema.field(column).type
        try:
            columns[column] = table[column].cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SinkError(
                f"{name}: the column {column} is {kind} there, and a value does not fit ({error}): "
                f"{advice}",
                "schema",
            ) from None
    return pa.table(columns)


def as_named(rows: pa.Table, log: pa.Schema) -> pa.Table:
    """Return changes whose columns have, in both images, the letters that their log has for them:
    at the source, names that differ in the case of letters alone are one."""
    for at, image in enumerate(rows.schema):
        if not pa.types.is_struct(image.type) or image.name not in log.names:
            continue
        held = [field.name for field in log.field(image.name).type]
        alike = {name.lower(): name for name in held}
        fields = [
            f if f.name in held else f.with_name(alike.get(f.name.lower(), f.name))
            for f in image.type
        ]
        if fields != list(image.type):
            chunks = [
                pa.StructArray.from_arrays(chunk.flatten(), fields=fields, mask=chunk.is_null())
                for chunk in rows[at].chunks
            ]
            rows = rows.set_column(at, image.name, pa.chunked_array(chunks, pa.struct(fields)))
    return rows


def as_logged(rows: pa.Table, log: pa.Schema, name: str) -> pa.Table:
    """Return changes with the types that the columns of both images have in their log: writers of
    lakes round values, or try indefinitely. Raises SinkError: one does not fit such a column."""
    for at, image in enumerate(rows.schema):
        held = log.field(image.name).type if image.name in log.names else None
        if held is None or not pa.types.is_struct(image.type) or held == image.type:
            continue
        chunks = [_image_as(chunk, held, f"{name}: {image.name}") for chunk in rows[at].chunks]
        rows = rows.set_column(at, image.name, pa.chunked_array(chunks, chunks[0].type))
    return rows


def _image_as(values: pa.StructArray, held: pa.StructType, what: str) -> pa.StructArray:
    fields, arrays = [], []
    for field, array in zip(values.type, values.flatten(), strict=True):
        at = held.get_field_index(field.name)
        if at >= 0:
            array = _value_as(array, held.field(at).type, f"{what}.{field.name}")
        fields.append(field.with_type(array.type))
        arrays.append(array)
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=values.is_null())


def _value_as(values: pa.Array, held: pa.DataType, what: str) -> pa.Array:
    kind = values.type
    if kind == held or _written_alike(kind, held):
        return values
    if values.null_count == len(values):
        return pa.nulls(len(values), held)
    try:
        if _family(kind) == _family(held) == "number":
            found = values.cast(held)
            if found.cast(kind).equals(values):  # not each cast tells that it has rounded
                return found
        why = f"a column that is {kind} now has values that are none of these"
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        why = f"a value of what is {kind} now does not fit ({error})"
    raise SinkError(
        f"{what} is {held} there, and {why}: a log of changes keeps the types of its columns. Move "
        "the table away, and start the sink: it goes on in a new one",
        "schema",
    )


def _written_alike(one: pa.DataType, other: pa.DataType) -> bool:
    texts, blobs = (pa.string(), pa.large_string()), (pa.binary(), pa.large_binary())
    return (one in texts and other in texts) or (one in blobs and other in blobs)
