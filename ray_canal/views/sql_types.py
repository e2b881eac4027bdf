"""Canal's sqlType (java.sql.Types) of a column."""

from __future__ import annotations

from typing import Final

from ray_canal.kernels import codes
from ray_canal.protocol.table_meta import ColumnMeta

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
    codes.BYTES: BLOB, codes.GEOMETRY: BLOB, codes.JSON: VARCHAR,
}  # fmt: skip
_WIDENED = {
    codes.U8: SMALLINT, codes.U16: INTEGER, codes.U24: INTEGER, codes.U32: BIGINT,
    codes.U64: DECIMAL,
}  # fmt: skip


def sql_type(column: ColumnMeta, code: int) -> int:
    """The sqlType of a value whose top bit is clear, as Canal has it."""
    if code == codes.TEXT:
        kind = column.mysql_type.lower()
        return CHAR if kind.startswith("char") else VARCHAR if kind.startswith("var") else CLOB
    return _BY_CODE[code]


def widened(column: ColumnMeta, code: int) -> int:
    """The sqlType of an unsigned value whose top bit is set."""
    return _WIDENED.get(code, sql_type(column, code))


def null_type(column: ColumnMeta, code: int) -> int:
    """The sqlType of NULL."""
    return {codes.JSON: OTHER, codes.SET: BLOB}.get(code, sql_type(column, code))
