"""All column types, from every family, by number and by word; and what asks for more than one.

To add a column type, add it to its family.
"""

from __future__ import annotations

from typing import Final

from ray_canal.errors import UnsupportedEvent
from ray_canal.kernels.base import codes
from ray_canal.model.table_meta import ColumnMeta
from ray_canal.types import json, mariadb, mysql, numeric, spatial, string, temporal
from ray_canal.types.column_type import FieldType, PlanLine, RowColumn, Storage, TypeWord

_FAMILIES = (numeric, temporal, string, json, spatial, mariadb)

FIELDS: Final[dict[int, FieldType]] = {
    field.code: field for family in _FAMILIES for field in family.FIELDS
}
"""Field types by MySQL's number (mysql.py)."""
WORDS: Final[dict[str, TypeWord]] = {
    word.word: word for family in _FAMILIES for word in family.WORDS
}
"""Types by the word that the catalog has for them."""
STORAGES: Final[dict[int, Storage]] = {
    storage.code: storage for family in _FAMILIES for storage in family.STORAGES
}
"""Storages by code (kernels/base/codes.py)."""
SYNONYMS: Final[dict[str, str]] = {
    synonym: word.word for word in WORDS.values() for synonym in word.synonyms
}
"""Other words for types (one, two or three), and the word that they mean."""

UNKNOWN: Final = FieldType(code=-1)


def field_type(type_code: int) -> FieldType:
    """Return a field type; UNKNOWN, which nothing can be done with, for a number without one."""
    return FIELDS.get(type_code, UNKNOWN)


def schema_type(type_code: int) -> int:
    """Return the one number that schemas compare by: old and new formats of a time are one type,
    and so are all sizes of a blob."""
    same = field_type(type_code).same_as
    return type_code if same is None else same


def may_be(in_rows: int, in_schema: int) -> bool:
    """Tell if rows with one field type can be those of a schema that has the other."""
    rows, schema = schema_type(in_rows), schema_type(in_schema)
    stand_ins = (*field_type(rows).stands_for, rows)
    return schema in stand_ins or rows in field_type(schema).stands_for


def declared_word(mysql_type: str) -> TypeWord | None:
    """Return the word of a declared type's text, or None for one that is not known."""
    word = mysql_type.lower().partition("(")[0].partition(" ")[0]
    return WORDS.get(word)


def plan_line(column: RowColumn) -> PlanLine:
    """Return how a column's bytes are read.

    Raises UnsupportedEvent: its type or character set is not decoded; CorruptEvent: its metadata
    is impossible.
    """
    word = declared_word(column.schema.mysql_type)
    plan = word.plans.get(column.type_code) if word else None
    plan = plan or field_type(column.type_code).plan
    if plan is None:
        raise UnsupportedEvent(f"column type {mysql.type_name(column.type_code)} is not decoded")
    return plan(column)


def storage_code(column: ColumnMeta) -> int:
    """Return how a column's values lie in a decoded chunk, by the schema alone. A decoded chunk
    says it itself, from the TABLE_MAP. Raises UnsupportedEvent: a type that is not decoded.
    """
    field = field_type(column.type_code)
    if field.storage is None:
        name = mysql.type_name(column.type_code)
        raise UnsupportedEvent(f"column {column.name}: type {name} is not decoded")
    word = declared_word(column.mysql_type)
    if word and word.storage is not None and word.code == column.type_code:
        return word.storage
    return field.storage(column)


def sql_type(column: ColumnMeta, code: int) -> int:
    """Return Canal's sqlType of a value whose top bit is clear."""
    if code == codes.TEXT:
        return field_type(column.type_code).sql_text
    return STORAGES[code].sql_type


def sql_type_widened(column: ColumnMeta, code: int) -> int:
    """Return Canal's sqlType of an unsigned value whose top bit is set."""
    widened = STORAGES[code].sql_widened
    return sql_type(column, code) if widened is None else widened


def sql_type_of_null(column: ColumnMeta, code: int) -> int:
    """Return Canal's sqlType of NULL."""
    of_null = STORAGES[code].sql_null
    return sql_type(column, code) if of_null is None else of_null
