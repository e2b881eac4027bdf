"""Tell which columns a row's version of the table did not have, where versions share a schema.

Rows of a version without a column, which ALTER TABLE has added later or dropped, have NULL there.
Where a frame has `before_present` and `after_present` (views/presence.py), these say so: NULL for
such a column, in both, also of an image that has all columns of its version. A change of a JSON
document's value alone is NULL in `after_present`, and false in `before_present`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kind
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from ray_canal.views.presence import PRESENT_OF


def with_flags(schema: pa.Schema) -> pa.Schema:
    """The schema of versions together, whose columns for it, if any, have a field for each column
    of the images."""
    for side, name in PRESENT_OF.items():
        at = schema.get_field_index(name)
        if at < 0 or side not in schema.names:
            continue
        field, image = schema.field(at), schema.field(side).type
        flags = [pa.field(each.name, pa.bool_()) for each in image]
        if _lacks(field.type, image):
            schema = schema.set(at, field.with_type(pa.struct(flags)))
    return schema


def told(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch that tells so of the columns in `schema`, if that has columns for it. Fields that
    the batch lacks are not made: they are NULL wherever it is shown in `schema`."""
    for side, name in PRESENT_OF.items():
        if name not in schema.names or side not in batch.schema.names:
            continue
        image, wanted = batch.column(batch.schema.get_field_index(side)), schema.field(name).type
        if kind.is_struct(wanted) and _lacks(image.type, wanted) and len(image) > image.null_count:
            batch = _with(batch, name, _flags(batch, name, image, wanted))
    return batch


def _lacks(given: pa.StructType, wanted: pa.StructType) -> bool:
    """Return whether a struct lacks one of these fields, in whichever letters."""
    has = {field.name.lower() for field in given}
    return any(field.name.lower() not in has for field in wanted)


def _flags(
    batch: pa.RecordBatch, name: str, image: pa.StructArray, wanted: pa.StructType
) -> pa.StructArray:
    at = batch.schema.get_field_index(name)
    given = None if at < 0 else batch.column(at)
    names = [field.name for field in image.type]
    shown = {field.name.lower() for field in wanted}
    names = [each for each in names if each.lower() in shown] or names
    if given is None:
        children = [pa.repeat(True, len(image))] * len(names)
    else:
        flags = [given.field(given.type.get_field_index(column)) for column in names]
        children = [pc.if_else(given.is_null(), True, flag) for flag in flags]
    return pa.StructArray.from_arrays(children, names=names, mask=image.is_null())


def _with(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    at = batch.schema.get_field_index(name)
    field = pa.field(name, column.type)
    if at < 0:
        return batch.append_column(field, column)
    return batch.set_column(at, field, column)


def frames_told(frames: Sequence[DataFrame], always: bool) -> list[DataFrame]:
    """Frames of one table's versions that tell so; with `always` also where no frame has columns
    for it, else as they are."""
    tells = any(name in frame.columns for frame in frames for name in PRESENT_OF.values())
    if not (tells or always):
        return list(frames)
    wanted = {
        side: {name.lower() for frame in frames for name in _names(frame.schema, side)}
        for side in PRESENT_OF
    }
    return [_frame_told(frame, wanted) for frame in frames]


def _names(schema: spark.StructType, column: str) -> list[str]:
    """Return the fields of a struct; none: there is no such column."""
    found = schema[column].dataType if column in schema.names else None
    return found.names if isinstance(found, spark.StructType) else []


def _frame_told(frame: DataFrame, wanted: Mapping[str, set[str]]) -> DataFrame:
    for side, present in PRESENT_OF.items():
        names, flags = _names(frame.schema, side), _names(frame.schema, present)
        if not names or wanted[side] <= {name.lower() for name in names}:
            continue
        given = F.col(present)
        has = [
            (
                F.when(given.isNull(), F.lit(True)).otherwise(given.getField(name))
                if name in flags
                else F.lit(True)
            ).alias(name)
            for name in names
        ]
        lacking = wanted[side] - {name.lower() for name in names}
        has += [F.lit(None).cast("boolean").alias(name) for name in sorted(lacking)]
        frame = frame.withColumn(present, F.when(F.col(side).isNotNull(), F.struct(*has)))
    return frame
