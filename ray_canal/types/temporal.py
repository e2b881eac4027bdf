"""Dates and times: MySQL's formats since 5.6, the older ones, and MariaDB's old ones with a
fraction."""

from __future__ import annotations

from collections.abc import Callable

from ray_canal.errors import CorruptEvent
from ray_canal.kernels.base import codes
from ray_canal.kernels.rows import wire
from ray_canal.kernels.rows.temporal import hires_bytes
from ray_canal.types import mysql, sql
from ray_canal.types.column_type import (
    Declared,
    FieldType,
    MetadataColumn,
    PlanLine,
    RowColumn,
    Storage,
    TypeWord,
    fixed,
)

_FRACTION_MAX = 6


def _date(_: RowColumn) -> PlanLine:
    return PlanLine(wire.READ_DATE, 3, wire.NULL_32, codes.DATE)


def _with_fraction(read: int, size: int, code: int) -> Callable[[RowColumn], PlanLine]:
    """Return the plan of a format since MySQL 5.6, whose metadata is the digits of its fraction."""

    def plan(column: RowColumn) -> PlanLine:
        digits = column.metadata
        if digits > _FRACTION_MAX:
            raise CorruptEvent(f"{digits} digits of fractional seconds are impossible")
        fraction = (digits + 1) // 2
        return PlanLine(read, size + fraction, wire.NULL_64, code, 0, fraction)

    return plan


def _old(read: int, size: int, hires: int, code: int) -> Callable[[RowColumn], PlanLine]:
    """Return the plan of a format before MySQL 5.6. MariaDB's has a fraction (read by `hires`),
    which only the schema tells."""

    def plan(column: RowColumn) -> PlanLine:
        digits = column.schema.fraction
        if 0 < digits <= _FRACTION_MAX:
            return PlanLine(hires, hires_bytes(hires, digits), wire.NULL_64, code, 0, digits)
        return PlanLine(read, size, wire.NULL_64, code)

    return plan


def _declared(word: str) -> Callable[[MetadataColumn], Declared]:
    """Return the declaration of a type without metadata, or with the digits of its fraction."""

    def declare(column: MetadataColumn) -> Declared:
        digits = column.metadata
        return Declared(word + (f"({digits})" if digits else ""), fraction=digits)

    return declare


FIELDS = (
    FieldType(
        code=mysql.YEAR,
        plan=lambda _: fixed(wire.READ_YEAR, 1, codes.YEAR),
        declare=_declared("year"),
        storage=lambda _: codes.YEAR,
        size_bytes=1,
        has_sign=True,
    ),
    FieldType(
        code=mysql.DATE,
        plan=_date,
        declare=_declared("date"),
        storage=lambda _: codes.DATE,
        size_bytes=3,
    ),
    FieldType(
        code=mysql.NEWDATE,
        plan=_date,
        declare=_declared("date"),
        storage=lambda _: codes.DATE,
        same_as=mysql.DATE,
        size_bytes=3,
    ),
    FieldType(
        code=mysql.TIME,
        plan=_old(wire.READ_TIME_OLD, 3, wire.READ_TIME_HIRES, codes.TIME),
        declare=_declared("time"),
        storage=lambda _: codes.TIME,
        same_as=mysql.TIME2,
    ),
    FieldType(
        code=mysql.TIME2,
        plan=_with_fraction(wire.READ_TIME, 3, codes.TIME),
        declare=_declared("time"),
        storage=lambda _: codes.TIME,
        metadata_bytes=1,
    ),
    FieldType(
        code=mysql.DATETIME,
        plan=_old(wire.READ_DATETIME_OLD, 8, wire.READ_DATETIME_HIRES, codes.DATETIME),
        declare=_declared("datetime"),
        storage=lambda _: codes.DATETIME,
        same_as=mysql.DATETIME2,
    ),
    FieldType(
        code=mysql.DATETIME2,
        plan=_with_fraction(wire.READ_DATETIME, 5, codes.DATETIME),
        declare=_declared("datetime"),
        storage=lambda _: codes.DATETIME,
        metadata_bytes=1,
    ),
    FieldType(
        code=mysql.TIMESTAMP,
        plan=_old(wire.READ_TIMESTAMP_OLD, 4, wire.READ_TIMESTAMP_HIRES, codes.TIMESTAMP),
        declare=_declared("timestamp"),
        storage=lambda _: codes.TIMESTAMP,
        same_as=mysql.TIMESTAMP2,
    ),
    FieldType(
        code=mysql.TIMESTAMP2,
        plan=_with_fraction(wire.READ_TIMESTAMP, 4, codes.TIMESTAMP),
        declare=_declared("timestamp"),
        storage=lambda _: codes.TIMESTAMP,
        metadata_bytes=1,
    ),
)

WORDS = (
    TypeWord(word="year", code=mysql.YEAR),
    TypeWord(word="date", code=mysql.DATE),
    TypeWord(word="time", code=mysql.TIME2),
    TypeWord(word="datetime", code=mysql.DATETIME2),
    TypeWord(word="timestamp", code=mysql.TIMESTAMP2),
)

STORAGES = (
    Storage(
        code=codes.YEAR,
        arrow=lambda pa, _: pa.uint16(),
        spark="int",
        sql_type=sql.VARCHAR,
    ),
    Storage(
        code=codes.DATE,
        arrow=lambda pa, _: pa.date32(),
        spark="date",
        sql_type=sql.DATE,
    ),
    Storage(
        code=codes.DATETIME,
        arrow=lambda pa, _: pa.timestamp("us"),
        spark="timestamp_ntz",
        sql_type=sql.TIMESTAMP,
    ),
    Storage(
        code=codes.TIMESTAMP,
        arrow=lambda pa, _: pa.timestamp("us", "UTC"),
        spark="timestamp",
        sql_type=sql.TIMESTAMP,
    ),
    Storage(
        code=codes.TIME,
        arrow=lambda pa, _: pa.duration("us"),
        spark="interval day to second",
        sql_type=sql.TIME,
    ),
)
