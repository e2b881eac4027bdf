"""Columns that a target's table is to have: from Arrow's types and the source's declarations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from ray_canal.model.table_meta import TableMeta
from ray_canal.sinks.declared import declared_type
from ray_canal.views.arrow import arrow_schema
from ray_canal.views.mysql_texts import field_with_digits, fraction_digits


class ColumnSpec(NamedTuple):
    """A column to be made; `declared` is MySQL's text of its type, empty if only Arrow's is known.
    `charset`: of text, where it is known. `fill`: what rows that are there have; None: NULL.
    `fraction`: the declared fractional digits of a time; None: unknown, or another type."""

    name: str
    kind: pa.DataType
    declared: str = ""
    charset: str = ""
    is_key: bool = False
    fill: pa.Scalar | None = None
    fraction: int | None = None

    @property
    def field(self) -> pa.Field:
        """Arrow's field of the column, with its fractional digits."""
        return field_with_digits(self.name, self.kind, self.fraction)


def column_specs(schema: pa.Schema, meta: TableMeta | None, key: Iterable[str]) -> list[ColumnSpec]:
    """Return the columns of a table version. A type that a transform changed is Arrow's."""
    declared: dict[str, Any] = {}
    if meta is not None:
        kinds = {field.name: field.type for field in arrow_schema(meta).field("after").type}
        declared = {
            column.name: column
            for column in meta.columns
            if schema.field("after").type.get_field_index(column.name) >= 0
            and schema.field("after").type.field(column.name).type == kinds[column.name]
        }
    keys, found = set(key), []
    for field in schema.field("after").type:
        column = declared.get(field.name)
        text, charset = ("", "") if column is None else (declared_type(column), column.charset)
        is_key, fraction = field.name in keys, fraction_digits(field)
        found.append(ColumnSpec(field.name, field.type, text, charset, is_key, fraction=fraction))
    return found
