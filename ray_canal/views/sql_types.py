"""Types of a column by its schema: Canal's sqlType (java.sql.Types), and the storage code."""

from __future__ import annotations

from typing import Final

from ray_canal.binlog import types as t
from ray_canal.errors import UnsupportedEvent
from ray_canal.kernels.base import codes
from ray_canal.model.table_meta import ColumnMeta

BIT: Final = -7
TINYINT, SMALLINT, INTEGER, BIGINT = -6, 5, 4, -5
DECIMAL, REAL, DOUBLE, CHAR, VARCHAR = 3, 7, 8, 1, 12
DATE, TIME, TIMESTAMP, BLOB, CLOB, OTHER = 91, 92, 93, 2004, 2005, 1111

_BY_CODE = {
    codes.I8: TINYINT, codes.U8: TINYINT, codes.I16: SMALLINT, codes.U16: SMALLINT,
    codes.I24: INTEGER, codes.U24: INTEGER, codes.I32: INTEGER, codes.U32: INTEGER,
    codes.I64: BIGINT, codes.U64: BIGINT, codes.F32: REAL, codes.F64: DOUBLE,
    codes.YEAR: VARCHAR, codes.BIT: BIT, codes.SET: BIT, codes.ENUM: INTEGER,
    codes.DEC128: DECIMAL, codes.DEC256: DECIMAL, codes.DATE: DATE,
    codes.DATETIME: TIMESTAMP, codes.TIMESTAMP: TIMESTAMP, codes.TIME: TIME,
    codes.BYTES: BLOB, codes.GEOMETRY: BLOB, codes.VECTOR: BLOB, codes.JSON: VARCHAR,
}  # fmt: skip
_WIDENED = {
    codes.U8: SMALLINT, codes.U16: INTEGER, codes.U24: INTEGER, codes.U32: BIGINT,
    codes.U64: DECIMAL,
}  # fmt: skip

# MySQL's type number: storage code, and its unsigned twin.
_INTEGERS = {
    t.TINY: (codes.I8, codes.U8), t.SHORT: (codes.I16, codes.U16),
    t.INT24: (codes.I24, codes.U24), t.LONG: (codes.I32, codes.U32),
    t.LONGLONG: (codes.I64, codes.U64),
}  # fmt: skip
_STORAGE = {
    t.FLOAT: codes.F32, t.DOUBLE: codes.F64, t.YEAR: codes.YEAR, t.BIT: codes.BIT,
    t.ENUM: codes.ENUM, t.SET: codes.SET, t.JSON: codes.JSON, t.GEOMETRY: codes.GEOMETRY,
    t.VECTOR: codes.VECTOR, t.DATE: codes.DATE, t.NEWDATE: codes.DATE,
    t.TIME: codes.TIME, t.TIME2: codes.TIME,
    t.DATETIME: codes.DATETIME, t.DATETIME2: codes.DATETIME,
    t.TIMESTAMP: codes.TIMESTAMP, t.TIMESTAMP2: codes.TIMESTAMP,
}  # fmt: skip
_TEXTS = {
    t.STRING: CHAR, t.VARCHAR: VARCHAR, t.VAR_STRING: VARCHAR,
    t.MARIADB_VARCHAR_COMPRESSED: VARCHAR,
}  # fmt: skip
_DIGITS_128 = 38
_ADDRESSES = ("uuid", "inet4", "inet6")
"""MariaDB's types that the binlog has as bytes and SELECT shows as text."""


def storage_code(column: ColumnMeta) -> int:
    """How a column's values lie in a decoded chunk (kernels/base/codes.py), by the schema alone.

    A decoded chunk says it itself, from the TABLE_MAP (binlog/plan.py). Raises UnsupportedEvent.
    """
    kind = column.type_code
    if kind in _INTEGERS:
        return _INTEGERS[kind][1 if column.unsigned else 0]
    if kind in (t.DECIMAL, t.NEWDECIMAL):
        return codes.DEC128 if column.precision <= _DIGITS_128 else codes.DEC256
    if kind == t.STRING and column.mysql_type.lower() in _ADDRESSES:
        return codes.TEXT
    if kind in t.CHARACTER_TYPES:
        return codes.BYTES if column.charset == "binary" else codes.TEXT
    if kind not in _STORAGE:
        raise UnsupportedEvent(f"column {column.name}: type {t.type_name(kind)} is not decoded")
    return _STORAGE[kind]


def sql_type(column: ColumnMeta, code: int) -> int:
    """The sqlType of a value whose top bit is clear, as Canal has it."""
    if code == codes.TEXT:
        return _TEXTS.get(column.type_code, CLOB)
    return _BY_CODE[code]


def widened(column: ColumnMeta, code: int) -> int:
    """The sqlType of an unsigned value whose top bit is set."""
    return _WIDENED.get(code, sql_type(column, code))


def null_type(column: ColumnMeta, code: int) -> int:
    """The sqlType of NULL."""
    return {codes.JSON: OTHER, codes.SET: BLOB}.get(code, sql_type(column, code))
