"""Values of a column that the source has added in rows that are there, as Arrow has them."""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Callable, Collection, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal

import pyarrow as pa

from ray_canal.client.message import TableChange
from ray_canal.model.table_meta import ColumnMeta, TableMeta
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.port import READ_AGAIN, SinkError
from ray_canal.types import mysql

logger = logging.getLogger(__name__)

_AS_MYSQL = Context(prec=100, rounding=ROUND_HALF_UP)


def filled(
    name: str, kind: pa.DataType, meta: TableMeta, change: TableChange
) -> pa.Scalar | None:
    """Return what rows have in a column of this name and Arrow type that a statement has added;
    None: NULL."""
    found = [value for column, value in change.filled if column == name]
    if not found:
        return None
    (column,) = (each for each in meta.columns if each.name == name)
    value = None if found[0] is None else constant(found[0], column, kind)
    if value is None:
        logger.warning(
            "at %s:%d %s.%s got column %s, and the log does not tell what rows that are there have "
            "in it: in the target it is NULL until they change", change.journal_name,
            change.position, change.schema, change.table, name,
        )  # fmt: skip
    return value


def kept_key(
    columns: Sequence[ColumnSpec], change: TableChange, there: Collection[str]
) -> list[ColumnSpec]:
    """Return columns of the primary key that a statement has added, and that the target has from
    before (`there`), with values of a column that is gone: it was dropped by the same statement, or
    by one that the target did not follow."""
    known, remade = {each.lower() for each in there}, {each.lower() for each in change.remade}
    added = {each.lower() for each in change.added} & known
    return [
        column._replace(fill=None)
        for column in columns
        if column.name.lower() in added and (column.fill is None or column.name.lower() in remade)
    ]


def refuse_untold_key(
    name: object, columns: Sequence[ColumnSpec], has_rows: Callable[[], bool]
) -> None:
    """Raises SinkError: these are columns of the primary key whose values in rows that are there
    are not known, so that none of these could be found again."""
    names = ", ".join(column.name for column in columns if column.is_key and column.fill is None)
    if names and has_rows():
        raise SinkError(
            f"{name} lacks {names} of the primary key, and the log does not tell what rows that "
            f"are there have in it: drop {name} in the target, {READ_AGAIN}",
            "schema",
        )


def refuse_held_key(name: object, held: Sequence[str], columns: Sequence[ColumnSpec]) -> None:
    """Raises SinkError: a table has a primary key of columns of the source's table, which has none,
    so that it may have equal rows."""
    if {each.lower() for each in held} <= {column.name.lower() for column in columns}:
        raise SinkError(
            f"{name} has the primary key ({', '.join(held)}), and the source's table has none, or "
            f"no longer: drop that of {name}, and start again",
            "schema",
        )


def constant(value: str | bytes, column: ColumnMeta, kind: pa.DataType) -> pa.Scalar | None:
    """Return a DEFAULT's constant as a value of this column, whose Arrow type is `kind`. None: it
    cannot be told, as that of a TIMESTAMP, which depends on the session's time zone."""
    try:
        return pa.scalar(_value(value, column, kind), kind)
    except (ArithmeticError, NotImplementedError, TypeError, ValueError):  # Arrow's are some, too
        return None


def _value(value: str | bytes, column: ColumnMeta, kind: pa.DataType) -> object:
    types = pa.types
    if types.is_integer(kind):
        if isinstance(value, bytes):
            return int.from_bytes(value, "big")
        number = int(_rounded(value, 0))
        if column.type_code == mysql.YEAR and 0 < number < 100:
            raise ValueError("a year of two digits")
        return number
    if types.is_binary(kind) or types.is_large_binary(kind):
        raw = value if isinstance(value, bytes) else value.encode()
        is_padded = column.mysql_type.startswith("binary")
        return raw.ljust(column.length, b"\0") if is_padded else raw
    text = value.decode("ascii") if isinstance(value, bytes) else value  # in any character set
    if types.is_boolean(kind):
        return bool(int(text))
    if types.is_floating(kind):
        return float(text)
    if types.is_decimal(kind):
        return _rounded(text, kind.scale)
    if types.is_date(kind) or (types.is_timestamp(kind) and kind.tz is None):
        if len(text.partition(".")[2].rstrip("0")) > column.fraction:
            raise ValueError(text)  # MySQL rounds it, MariaDB does not
        return pa.scalar(text).cast(kind)
    if types.is_duration(kind):
        return _span(text, column)
    if types.is_dictionary(kind):
        return _label(text, column)
    if types.is_list(kind) and types.is_string(kind.value_type):
        return [_label(each, column) for each in text.split(",")] if text else []
    if types.is_string(kind) or types.is_large_string(kind):
        return text.rstrip(" ") if column.mysql_type.startswith("char") else text
    raise NotImplementedError(str(kind))


def _span(text: str, column: ColumnMeta) -> dt.timedelta:
    """Return a TIME of hours, minutes and seconds. Raises ValueError: it is written otherwise, or
    has more fractional digits than its column, which rounds it."""
    found = re.fullmatch(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?", text)
    fraction = "" if found is None else (found[5] or "").rstrip("0")
    if found is None or len(fraction) > column.fraction:
        raise ValueError(text)
    hours, minutes, seconds = map(int, found.group(2, 3, 4))
    micros = int(fraction.ljust(6, "0"))
    span = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds, microseconds=micros)
    return -span if found[1] else span


def _rounded(text: str, scale: int) -> Decimal:
    return Decimal(text).quantize(Decimal(1).scaleb(-scale), context=_AS_MYSQL)


def _label(text: str, column: ColumnMeta) -> str:
    for label in column.labels:
        if label.casefold() == text.casefold():
            return label
    raise ValueError(text)
