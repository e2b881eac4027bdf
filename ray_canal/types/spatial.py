"""Coordinates: geometries and vectors."""

from __future__ import annotations

from ray_canal.kernels.base import codes
from ray_canal.kernels.rows import wire
from ray_canal.types import mysql, sql
from ray_canal.types.column_type import (
    Declared,
    FieldType,
    MetadataColumn,
    PlanLine,
    RowColumn,
    Storage,
    TypeWord,
    size_between,
)
from ray_canal.types.string import length_bytes

_GEOMETRIES = (
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geomcollection",
)  # fmt: skip
"""By the number that row metadata has for them."""


def _geometry(column: RowColumn) -> PlanLine:
    prefix = size_between(column.metadata, 1, 4)
    return PlanLine(wire.READ_COPY, -prefix, wire.NULL_OFFSET, codes.GEOMETRY)


def _declared_geometry(column: MetadataColumn) -> Declared:
    known = column.geometry < len(_GEOMETRIES)
    return Declared(_GEOMETRIES[column.geometry] if known else "geometry")


def _vector(column: RowColumn) -> PlanLine:
    prefix = size_between(column.metadata, 1, 4)
    return PlanLine(wire.READ_VECTOR, -prefix, wire.NULL_OFFSET, codes.VECTOR)


def _vector_in_varbinary(column: RowColumn) -> PlanLine:
    """Return the plan of MariaDB's VECTOR, which only the schema tells from a VARBINARY."""
    return PlanLine(wire.READ_VECTOR, -length_bytes(column), wire.NULL_OFFSET, codes.VECTOR)


def _declared_vector(column: MetadataColumn) -> Declared:
    length = column.dimensions
    return Declared(f"vector({length})" if length else "vector", length)


FIELDS = (
    FieldType(
        code=mysql.GEOMETRY,
        plan=_geometry,
        declare=_declared_geometry,
        storage=lambda _: codes.GEOMETRY,
        metadata_bytes=1,
    ),
    FieldType(
        code=mysql.VECTOR,
        plan=_vector,
        declare=_declared_vector,
        storage=lambda _: codes.VECTOR,
        metadata_bytes=1,
    ),
)

WORDS = (
    *(
        TypeWord(word=word, code=mysql.GEOMETRY)
        for word in (*_GEOMETRIES, "geometrycollection")
    ),
    TypeWord(
        word="vector",
        code=mysql.VECTOR,
        is_sized=True,
        plans={mysql.VARCHAR: _vector_in_varbinary},
    ),
)  # fmt: skip

STORAGES = (
    Storage(
        code=codes.GEOMETRY,
        arrow=lambda pa, _: pa.binary(),
        spark="binary",
        sql_type=sql.BLOB,
    ),
    Storage(
        code=codes.VECTOR,
        arrow=lambda pa, _: pa.list_(pa.float32()),
        spark="array<float>",
        sql_type=sql.BLOB,
    ),
)
