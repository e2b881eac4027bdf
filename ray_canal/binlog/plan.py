"""How a table version's rows are read: one line of numbers per column for the row kernels.

Types and sizes come from the TABLE_MAP event, for the rows' bytes follow it; sign and character set
too where it has them (MySQL 8), else from the table's schema. TableMetaMismatch where the two
cannot be the same table; UnsupportedEvent, naming the column, for what is not decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ray_canal.binlog import types as t
from ray_canal.binlog.charset_tables import UTF8_CHARSETS, table_of
from ray_canal.binlog.charsets import canonical, charset_of_collation
from ray_canal.binlog.parsed import TableVersion
from ray_canal.binlog.table_map import TableMap
from ray_canal.errors import CorruptEvent, TableMetaMismatch, UnsupportedEvent
from ray_canal.kernels.base import codes
from ray_canal.kernels.rows import wire
from ray_canal.kernels.rows.decimals import decimal_bytes, decimal_groups
from ray_canal.kernels.rows.temporal import hires_bytes
from ray_canal.model.arrays import Int64s
from ray_canal.model.table_meta import ColumnMeta


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """`lines`: int64[columns, wire.PLAN_FIELDS], of hidden columns, too."""

    lines: Int64s
    codes: tuple[int, ...]


_Line = tuple[int, int, int, int, int, int, int, int]

_INTEGERS = {
    t.TINY: (wire.READ_8, 1, codes.I8, codes.U8),
    t.SHORT: (wire.READ_16, 2, codes.I16, codes.U16),
    t.LONG: (wire.READ_32, 4, codes.I32, codes.U32),
    t.LONGLONG: (wire.READ_64, 8, codes.I64, codes.U64),
}
_DIGITS_64 = 18
_DIGITS_128 = 38
_PRECISION_MAX, _SCALE_MAX = 65, 38  # MariaDB allows 38 digits behind the point
_FRACTION_MAX = 6
_SET_BYTES_MAX = 8
_OLD_FAMILIES = {
    t.TIME2: t.TIME,
    t.DATETIME2: t.DATETIME,
    t.TIMESTAMP2: t.TIMESTAMP,
    t.NEWDATE: t.DATE,
    t.VAR_STRING: t.VARCHAR,
    t.TINY_BLOB: t.BLOB,
    t.MEDIUM_BLOB: t.BLOB,
    t.LONG_BLOB: t.BLOB,
    t.MARIADB_VARCHAR_COMPRESSED: t.VARCHAR,
    t.MARIADB_BLOB_COMPRESSED: t.BLOB,
}
_SAME_IN_CATALOG = (
    {t.BLOB, t.JSON}, {t.BLOB, t.GEOMETRY}, {t.DECIMAL, t.NEWDECIMAL}, {t.VARCHAR, t.VECTOR}
)  # fmt: skip
"""Types that a schema's text and the TABLE_MAP may give differently (MariaDB's JSON is a text, its
VECTOR a VARBINARY)."""


_HIDDEN = ColumnMeta("DB_ROW_HASH", t.LONGLONG, "bigint unsigned", unsigned=True, visible=False)


@lru_cache(maxsize=2048)
def make_plan(version: TableVersion) -> Plan:
    """The plan of a table version."""
    table_map, meta = version.table_map, version.meta
    hidden = (_HIDDEN,) * meta.hidden
    if len(meta.columns) + meta.hidden != len(table_map.types):
        raise TableMetaMismatch(
            f"{table_map.full_name}: the schema has {len(meta.columns) + meta.hidden} columns, "
            f"the TABLE_MAP {len(table_map.types)}"
        )
    lines = []
    for number, column in enumerate((*meta.columns, *hidden)):
        _check_type(table_map, number, column)
        try:
            lines.append(_line(table_map, number, column))
        except (UnsupportedEvent, CorruptEvent) as error:
            name = f"{table_map.full_name}.{column.name}"
            raise type(error)(f"column {name}: {error}") from None
    plan = np.zeros((len(lines), wire.PLAN_FIELDS), np.int64)
    plan[:, : wire.RUN] = np.reshape(lines, (len(lines), wire.RUN))
    note_runs(plan)
    return Plan(plan, tuple(int(code) for code in plan[:, wire.CODE]))


def note_runs(plan: Int64s) -> None:
    """Fill RUN and RUN_BYTES."""
    run = size = 0
    for line in plan[::-1]:
        if line[wire.SIZE] < 0 or run == wire.RUN_MAX:
            run = size = 0
        if line[wire.SIZE] >= 0:
            run, size = run + 1, size + int(line[wire.SIZE])
            line[[wire.RUN, wire.RUN_BYTES]] = run, size


def _check_type(table_map: TableMap, number: int, column: ColumnMeta) -> None:
    seen = _OLD_FAMILIES.get(table_map.types[number], table_map.types[number])
    known = _OLD_FAMILIES.get(column.type_code, column.type_code)
    if seen != known and not any({seen, known} <= same for same in _SAME_IN_CATALOG):
        raise TableMetaMismatch(
            f"{table_map.full_name}: column {number + 1} ({column.name}) is "
            f"{t.type_name(column.type_code)} in the schema, "
            f"{t.type_name(table_map.types[number])} in the TABLE_MAP"
        )


def _line(table_map: TableMap, number: int, column: ColumnMeta) -> _Line:
    kind, meta = table_map.types[number], table_map.metadata[number]
    unsigned = table_map.unsigned[number] if table_map.unsigned else column.unsigned
    if kind in _INTEGERS:
        read, size, signed_code, unsigned_code = _INTEGERS[kind]
        return _fixed(read, size, unsigned_code if unsigned else signed_code)
    if kind == t.INT24:
        read = wire.READ_U24 if unsigned else wire.READ_S24
        return _fixed(read, 3, codes.U24 if unsigned else codes.I24)
    if kind == t.FLOAT:
        return _fixed(wire.READ_32, 4, codes.F32)
    if kind == t.DOUBLE:
        return _fixed(wire.READ_64, 8, codes.F64)
    if kind == t.YEAR:
        return _fixed(wire.READ_YEAR, 1, codes.YEAR)
    if kind == t.BIT:
        return _fixed(wire.READ_BIT, _size((meta + 7) // 8, 1, 8), codes.BIT)
    if kind == t.ENUM:
        return _fixed(wire.READ_ENUM, _size(meta, 1, 2), codes.ENUM)
    if kind == t.SET:
        return _fixed(wire.READ_SET, _size(meta, 1, _SET_BYTES_MAX), codes.SET)
    if kind == t.NEWDECIMAL:
        return _decimal(meta >> 8, meta & 0xFF)
    if kind in _TEMPORAL:
        return _hires(kind, column.fraction) or _temporal(kind, meta)
    return _string(table_map, number, column)


def _fixed(read: int, size: int, code: int) -> _Line:
    return read, size, -codes.WIDTH_BYTES[code], code, 0, 0, 0, 0


def _size(size: int, least: int, most: int) -> int:
    if not least <= size <= most:
        raise CorruptEvent(f"a size of {size} bytes is not between {least} and {most}")
    return size


def _decimal(precision: int, scale: int) -> _Line:
    if not 1 <= precision <= _PRECISION_MAX or scale > min(precision, _SCALE_MAX):
        raise CorruptEvent(f"decimal({precision},{scale}) is impossible")
    if precision <= _DIGITS_64:
        read, code = wire.READ_DECIMAL64, codes.DEC128
    elif precision <= _DIGITS_128:
        read, code = wire.READ_DECIMAL128, codes.DEC128
    else:
        read, code = wire.READ_DECIMAL256, codes.DEC256
    size = decimal_bytes(precision, scale)
    groups = decimal_groups(precision, scale) if read == wire.READ_DECIMAL64 else 0
    return read, size, -codes.WIDTH_BYTES[code], code, precision, scale, groups, 0


# By type: (reader, bytes without fraction, whether a fraction may follow, storage code)
_TEMPORAL = {
    t.DATE: (wire.READ_DATE, 3, False, codes.DATE),
    t.NEWDATE: (wire.READ_DATE, 3, False, codes.DATE),
    t.TIME: (wire.READ_TIME_OLD, 3, False, codes.TIME),
    t.TIME2: (wire.READ_TIME, 3, True, codes.TIME),
    t.DATETIME: (wire.READ_DATETIME_OLD, 8, False, codes.DATETIME),
    t.DATETIME2: (wire.READ_DATETIME, 5, True, codes.DATETIME),
    t.TIMESTAMP: (wire.READ_TIMESTAMP_OLD, 4, False, codes.TIMESTAMP),
    t.TIMESTAMP2: (wire.READ_TIMESTAMP, 4, True, codes.TIMESTAMP),
}


_HIRES = {
    t.DATETIME: (wire.READ_DATETIME_HIRES, codes.DATETIME),
    t.TIMESTAMP: (wire.READ_TIMESTAMP_HIRES, codes.TIMESTAMP),
    t.TIME: (wire.READ_TIME_HIRES, codes.TIME),
}
"""MariaDB's old formats with a fraction, which only the schema tells, not the TABLE_MAP."""


def _hires(kind: int, digits: int) -> _Line | None:
    if kind not in _HIRES or not 0 < digits <= _FRACTION_MAX:
        return None
    read, code = _HIRES[kind]
    return read, hires_bytes(read, digits), wire.NULL_64, code, 0, digits, 0, 0


def _temporal(kind: int, digits: int) -> _Line:
    read, size, has_fraction, code = _TEMPORAL[kind]
    fraction = 0
    if has_fraction:
        if digits > _FRACTION_MAX:
            raise CorruptEvent(f"{digits} digits of fractional seconds are impossible")
        fraction = (digits + 1) // 2
    null = wire.NULL_32 if code == codes.DATE else wire.NULL_64
    return read, size + fraction, null, code, 0, fraction, 0, 0


_ADDRESSES = {"uuid": wire.READ_UUID, "inet4": wire.READ_INET4, "inet6": wire.READ_INET6}
"""MariaDB's types that are BINARY to the TABLE_MAP."""


def _string(table_map: TableMap, number: int, column: ColumnMeta) -> _Line:
    kind, meta = table_map.types[number], table_map.metadata[number]
    if kind in (t.STRING, t.VARCHAR, t.VAR_STRING, t.MARIADB_VARCHAR_COMPRESSED):
        prefix = 1 if meta <= 255 else 2
    elif kind in t.BLOB_TYPES | {t.JSON, t.GEOMETRY, t.VECTOR, t.MARIADB_BLOB_COMPRESSED}:
        prefix = _size(meta, 1, 4)
    else:
        raise UnsupportedEvent(f"column type {t.type_name(kind)} is not decoded")
    if kind == t.JSON:
        return wire.READ_JSON, -prefix, wire.NULL_OFFSET, codes.JSON, 0, 0, 0, 0
    if kind == t.GEOMETRY:
        return wire.READ_COPY, -prefix, wire.NULL_OFFSET, codes.GEOMETRY, 0, 0, 0, 0
    if t.VECTOR in (kind, column.type_code):
        return wire.READ_VECTOR, -prefix, wire.NULL_OFFSET, codes.VECTOR, 0, 0, 0, 0
    charset = _charset(table_map, number, column)
    if kind in (t.MARIADB_VARCHAR_COMPRESSED, t.MARIADB_BLOB_COMPRESSED):
        code = codes.BYTES if charset == "binary" else codes.TEXT
        plain = charset == "binary" or charset in UTF8_CHARSETS
        family, offset = (0, 0) if plain else table_of(charset)
        return wire.READ_INFLATED, -prefix, wire.NULL_OFFSET, code, meta, 0, offset, family
    address = _ADDRESSES.get(column.mysql_type.lower())
    if kind == t.STRING and address:
        return address, -prefix, wire.NULL_OFFSET, codes.TEXT, meta, 0, 0, 0
    if charset == "binary":
        read = wire.READ_PADDED if kind == t.STRING else wire.READ_COPY
        return read, -prefix, wire.NULL_OFFSET, codes.BYTES, meta, 0, 0, 0
    if charset in UTF8_CHARSETS:
        return wire.READ_COPY, -prefix, wire.NULL_OFFSET, codes.TEXT, meta, 0, 0, 0
    family, offset = table_of(charset)
    null = wire.NULL_OFFSET
    return wire.READ_TRANSCODED, -prefix, null, codes.TEXT, meta, 0, offset, family


def _charset(table_map: TableMap, number: int, column: ColumnMeta) -> str:
    collation = table_map.collations[number] if table_map.collations else 0
    if collation:
        return charset_of_collation(collation)
    if not column.charset:
        raise UnsupportedEvent("its character set is not known")
    return canonical(column.charset)
