"""JSON: MySQL's binary documents, decoded to text. (MariaDB's JSON is a LONGTEXT in its rows.)"""

from __future__ import annotations

from ray_canal.kernels.base import codes
from ray_canal.kernels.rows import wire
from ray_canal.types import mysql, sql
from ray_canal.types.column_type import (
    Declared,
    FieldType,
    PlanLine,
    RowColumn,
    Storage,
    TypeWord,
    size_between,
)


def _document(column: RowColumn) -> PlanLine:
    prefix = size_between(column.metadata, 1, 4)
    return PlanLine(wire.READ_JSON, -prefix, wire.NULL_OFFSET, codes.JSON)


FIELDS = (
    FieldType(
        code=mysql.JSON,
        plan=_document,
        declare=lambda _: Declared("json"),
        storage=lambda _: codes.JSON,
        metadata_bytes=1,
    ),
)

WORDS = (TypeWord(word="json", code=mysql.JSON),)

STORAGES = (
    Storage(
        code=codes.JSON,
        arrow=lambda pa, _: pa.string(),
        spark="string",
        sql_type=sql.VARCHAR,
        sql_null=sql.OTHER,
    ),
)
