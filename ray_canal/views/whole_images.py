"""Complete images that the server has cut (binlog_row_image), for messages that have whole rows.

What `after` of an UPDATE lacks is what `before` has. What both lack is told as Debezium does it, by
a text that stands for a value that did not change.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.errors import UnsupportedEvent
from ray_canal.kernels.base import codes
from ray_canal.model.arrays import Bools
from ray_canal.model.table_meta import TableMeta
from ray_canal.types import mysql
from ray_canal.types.registry import storage_code
from ray_canal.views.presence import PRESENT_OF
from ray_canal.views.row_places import table_name

UNAVAILABLE = "__debezium_unavailable_value"
_BLOBS = {
    mysql.TINY_BLOB, mysql.MEDIUM_BLOB, mysql.LONG_BLOB, mysql.BLOB, mysql.MARIADB_BLOB_COMPRESSED,
}  # fmt: skip


def whole(batch: pa.RecordBatch, meta: TableMeta | None) -> pa.RecordBatch:
    """Return a batch whose images have all columns. Raises UnsupportedEvent: a value is neither
    there nor has a text to stand for it, as with binlog_row_image=MINIMAL."""
    if PRESENT_OF["after"] not in batch.schema.names:
        return batch
    images: dict[str, list[pa.Array]] = {"before": [], "after": []}
    is_insert: Bools = np.asarray(batch["before"].is_null())
    fields = list(batch.schema.field("after").type)
    for each in fields:
        before, old = _column(batch, "before", each.name)
        after, new = _column(batch, "after", each.name)
        if (fill := new & ~old & ~is_insert).any():
            after, new = pc.if_else(pa.array(fill), before, after), new & old
        blank = _may_be_null(meta, each.name)
        for side, values, absent in (("before", before, old), ("after", after, new)):
            stands = absent & ~is_insert
            left_out = not blank and (absent & is_insert).any()
            if left_out or (stands.any() and not _has_text(each, meta)):
                _refuse(batch, side, each.name)
            if stands.any():
                text = pa.scalar(UNAVAILABLE.encode(), pa.binary()).cast(values.type)
                values = pc.if_else(pa.array(stands), text, values)
            images[side].append(values)
    for side, columns in images.items():
        made = pa.StructArray.from_arrays(columns, fields=fields, mask=batch[side].is_null())
        batch = batch.set_column(batch.schema.get_field_index(side), batch.schema.field(side), made)
    return batch


def _column(batch: pa.RecordBatch, side: str, name: str) -> tuple[pa.Array, Bools]:
    """(values, which of the images that there are lack the column)"""
    present = batch[PRESENT_OF[side]]
    flags = pc.struct_field(present, [name])
    if pc.any(pc.and_(present.is_valid(), flags.is_null())).as_py():
        _refuse(batch, side, name)  # a JSON diff without what it was made to
    absent: Bools = np.asarray(pc.and_(present.is_valid(), pc.invert(pc.fill_null(flags, True))))
    return pc.struct_field(batch[side], [name]), absent


def _has_text(field: pa.Field, meta: TableMeta | None) -> bool:
    """Return whether a text can stand for a column's value."""
    is_, kind = pa.types, field.type
    is_text = is_.is_string(kind) or is_.is_large_string(kind)
    is_text = is_text or is_.is_binary(kind) or is_.is_large_binary(kind)
    column = next((c for c in meta.columns if c.name == field.name), None) if meta else None
    return is_text and (column is None or storage_code(column) != codes.GEOMETRY)


def _may_be_null(meta: TableMeta | None, name: str) -> bool:
    """Return whether a column that an INSERT has not is NULL: a BLOB or TEXT; servers write those
    of another DEFAULT."""
    return meta is not None and any(
        column.name == name and column.type_code in _BLOBS for column in meta.columns
    )


def _refuse(batch: pa.RecordBatch, side: str, name: str) -> None:
    raise UnsupportedEvent(
        f"a row of {table_name(batch)} has no {name} in its image {side!r}, and nothing can stand "
        "for it in Debezium's format: set binlog_row_image=FULL on the source (or NOBLOB), for "
        "each session"
    )
