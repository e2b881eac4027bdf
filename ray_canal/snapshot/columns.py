"""How a table's columns are selected, and how a result's values become a chunk's columns.

A column is read by its storage code, the one that row events of it have, so a row that is selected
and a row that is streamed are of the same types. Numbers and times come as numbers, ENUM and SET as
index and mask, texts in the column's own character set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ray_canal.binlog.plan import DecodePlan
from ray_canal.errors import TableMetaMismatch, UnsupportedEvent
from ray_canal.kernels.base import codes
from ray_canal.kernels.result.rows import PACKED, SHORT
from ray_canal.kernels.rows import wire
from ray_canal.model.table_meta import ColumnMeta, TableMeta
from ray_canal.types import mysql as t
from ray_canal.types.charset_tables import UTF8_CHARSETS, table_of
from ray_canal.types.charsets import canonical
from ray_canal.types.registry import FIELDS, storage_code

_DIGITS_64 = 18
_UNSIGNED_FLAG = 32
_CAST = (codes.ENUM, codes.SET, codes.BIT)


class _Number(NamedTuple):
    """How a value of fixed size is read, and the type that the server gives its column."""

    read: int
    size_bytes: int
    kind: int
    unsigned: bool | None = None


_NUMBERS = {
    codes.I8: _Number(wire.READ_8, 1, t.TINY, False),
    codes.U8: _Number(wire.READ_8, 1, t.TINY, True),
    codes.I16: _Number(wire.READ_16, 2, t.SHORT, False),
    codes.U16: _Number(wire.READ_16, 2, t.SHORT, True),
    codes.I24: _Number(wire.READ_32, 4, t.INT24, False),
    codes.U24: _Number(wire.READ_32, 4, t.INT24, True),
    codes.I32: _Number(wire.READ_32, 4, t.LONG, False),
    codes.U32: _Number(wire.READ_32, 4, t.LONG, True),
    codes.I64: _Number(wire.READ_64, 8, t.LONGLONG, False),
    codes.U64: _Number(wire.READ_64, 8, t.LONGLONG, True),
    codes.F32: _Number(wire.READ_32, 4, t.FLOAT),
    codes.F64: _Number(wire.READ_64, 8, t.DOUBLE),
    codes.YEAR: _Number(wire.READ_16, 2, t.YEAR),
    codes.BIT: _Number(wire.READ_64, 8, t.LONGLONG, True),
    codes.SET: _Number(wire.READ_64, 8, t.LONGLONG, True),
    codes.ENUM: _Number(wire.READ_ENUM, 8, t.LONGLONG, True),
}
_SHORT_YEAR = _Number(wire.READ_16, 8, t.LONGLONG, True)
_MOMENTS = {
    codes.DATE: (wire.READ_DATE, wire.NULL_32, (t.DATE, t.NEWDATE)),
    codes.DATETIME: (wire.READ_DATETIME, wire.NULL_64, (t.DATETIME,)),
    codes.TIMESTAMP: (wire.READ_TIMESTAMP, wire.NULL_64, (t.TIMESTAMP,)),
    codes.TIME: (wire.READ_TIME, wire.NULL_64, (t.TIME,)),
}
_DECIMALS = (codes.DEC128, codes.DEC256)
_PACKED_KINDS = {code for code, field in FIELDS.items() if field.has_charset}
_PACKED_KINDS |= {t.JSON, t.GEOMETRY, t.VECTOR}
_ADDRESSES = ("uuid", "inet4", "inet6")


class ResultColumn(NamedTuple):
    """A column's definition in a result set."""

    name: str
    kind: int
    flags: int


@dataclass(frozen=True, slots=True)
class Selection:
    """A SELECT of a table, and how its answer is read."""

    meta: TableMeta
    plan: DecodePlan

    @property
    def expressions(self) -> str:
        """The select list."""
        pairs = zip(self.meta.columns, self.plan.codes, strict=True)
        return ", ".join(_expression(column, code) for column, code in pairs)

    def check(self, found: Sequence[ResultColumn]) -> None:
        """Raise TableMetaMismatch where a result is not of these columns: the table was altered."""
        if len(found) != len(self.plan.codes):
            raise TableMetaMismatch(
                f"{self.meta.full_name}: {len(found)} columns came, {len(self.plan.codes)} were "
                "asked for"
            )
        for column, code, result in zip(self.meta.columns, self.plan.codes, found, strict=True):
            if not _fits(column, code, result):
                raise TableMetaMismatch(
                    f"{self.meta.full_name}.{column.name} is {column.mysql_type} in the schema, "
                    f"{t.type_name(result.kind)} in the result"
                )


def selection(meta: TableMeta) -> Selection:
    """Return how to read a table with these columns. Raises UnsupportedEvent, naming the column."""
    lines = np.zeros((len(meta.columns), wire.PLAN_FIELDS), np.int64)
    found = []
    for line, column in zip(lines, meta.columns, strict=True):
        try:
            line[: wire.RUN] = _line(column)
        except UnsupportedEvent as error:
            name = f"{meta.full_name}.{column.name}"
            raise UnsupportedEvent(f"column {name}: {error}") from None
        found.append(int(line[wire.CODE]))
    return Selection(meta, DecodePlan(lines, tuple(found)))


def quoted(*names: str) -> str:
    """An identifier in SQL, with its qualifiers."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def _is_short_year(column: ColumnMeta) -> bool:
    """Tell if SELECT shows two digits of the year, of which the log has four: YEAR(2)."""
    return column.type_code == t.YEAR and column.mysql_type.lower().startswith("year(2)")


def _number(column: ColumnMeta, code: int) -> _Number:
    return _SHORT_YEAR if _is_short_year(column) else _NUMBERS[code]


def _expression(column: ColumnMeta, code: int) -> str:
    name = quoted(column.name)
    if _is_short_year(column):
        return f"(IF({name} < 70, 2000, 1900) + {name}) | 0"
    # The bit operation makes it a BIGINT everywhere: of few digits MariaDB casts to an INT.
    return f"CAST({name} AS UNSIGNED) | 0" if code in _CAST else name


def _line(column: ColumnMeta) -> tuple[int, ...]:
    """A plan's line without its last two fields, as binlog/plan.py has them for row events."""
    code = storage_code(column)
    if code in _NUMBERS:
        number = _number(column, code)
        return number.read, number.size_bytes, -codes.WIDTH_BYTES[code], code, 0, 0, 0, 0
    if code in _MOMENTS:
        read, null, _ = _MOMENTS[code]
        return read, SHORT, null, code, 0, column.fraction, 0, 0
    if code in _DECIMALS:
        read = wire.READ_DECIMAL256 if code == codes.DEC256 else wire.READ_DECIMAL128
        read = wire.READ_DECIMAL64 if column.precision <= _DIGITS_64 else read
        null = -codes.WIDTH_BYTES[code]
        return read, PACKED, null, code, column.precision, column.scale, 0, 0
    if code == codes.VECTOR:
        return wire.READ_VECTOR, PACKED, wire.NULL_OFFSET, code, 0, 0, 0, 0
    if code != codes.TEXT or column.mysql_type.lower() in _ADDRESSES:
        return wire.READ_COPY, PACKED, wire.NULL_OFFSET, code, 0, 0, 0, 0
    if not column.charset:
        raise UnsupportedEvent("its character set is not known")
    charset = canonical(column.charset)
    if charset in UTF8_CHARSETS:
        return wire.READ_COPY, PACKED, wire.NULL_OFFSET, code, 0, 0, 0, 0
    family, offset = table_of(charset)
    return wire.READ_TRANSCODED, PACKED, wire.NULL_OFFSET, code, 0, 0, offset, family


def _fits(column: ColumnMeta, code: int, result: ResultColumn) -> bool:
    if code in _NUMBERS:
        number = _number(column, code)
        unsigned = bool(result.flags & _UNSIGNED_FLAG)
        return result.kind == number.kind and number.unsigned in (None, unsigned)
    if code in _MOMENTS:
        return result.kind in _MOMENTS[code][2]
    if code in _DECIMALS:
        return result.kind == t.NEWDECIMAL
    return result.kind in _PACKED_KINDS
