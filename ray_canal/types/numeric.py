"""Numbers: integers, floats, decimals, bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ray_canal.errors import CorruptEvent
from ray_canal.kernels.base import codes
from ray_canal.kernels.rows import wire
from ray_canal.kernels.rows.decimals import decimal_bytes, decimal_groups
from ray_canal.model.table_meta import ColumnMeta
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
    size_between,
)

INTEGERS: Final = frozenset({mysql.TINY, mysql.SHORT, mysql.INT24, mysql.LONG, mysql.LONGLONG})
_DIGITS_64 = 18
_DIGITS_128 = 38
_PRECISION_MAX, _SCALE_MAX = 65, 38  # MariaDB allows 38 digits behind the point


def _integer(
    code: int, size: int, reads: tuple[int, int], storages: tuple[int, int], word: str
) -> FieldType:
    """Return an integer type; `reads` and `storages` are those of signed and unsigned columns."""

    def plan(column: RowColumn) -> PlanLine:
        return fixed(reads[column.unsigned], size, storages[column.unsigned])

    def storage(column: ColumnMeta) -> int:
        return storages[column.unsigned]

    return FieldType(
        code=code, plan=plan, declare=_named(word), storage=storage, size_bytes=size, has_sign=True
    )


def _named(word: str) -> Callable[[MetadataColumn], Declared]:
    return lambda _: Declared(word)


def _decimal(column: RowColumn) -> PlanLine:
    precision, scale = column.metadata >> 8, column.metadata & 0xFF
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
    return PlanLine(read, size, -codes.WIDTH_BYTES[code], code, precision, scale, groups)


def _declared_decimal(column: MetadataColumn) -> Declared:
    precision, scale = column.metadata >> 8, column.metadata & 0xFF
    return Declared(f"decimal({precision},{scale})", precision=precision, scale=scale)


def _decimal_storage(column: ColumnMeta) -> int:
    return codes.DEC128 if column.precision <= _DIGITS_128 else codes.DEC256


def _bit(column: RowColumn) -> PlanLine:
    return fixed(wire.READ_BIT, size_between((column.metadata + 7) // 8, 1, 8), codes.BIT)


FIELDS = (
    _integer(
        mysql.TINY, 1, (wire.READ_8, wire.READ_8), (codes.I8, codes.U8), "tinyint"
    ),
    _integer(
        mysql.SHORT, 2, (wire.READ_16, wire.READ_16), (codes.I16, codes.U16), "smallint"
    ),
    _integer(
        mysql.INT24, 3, (wire.READ_S24, wire.READ_U24), (codes.I24, codes.U24), "mediumint"
    ),
    _integer(
        mysql.LONG, 4, (wire.READ_32, wire.READ_32), (codes.I32, codes.U32), "int"
    ),
    _integer(
        mysql.LONGLONG, 8, (wire.READ_64, wire.READ_64), (codes.I64, codes.U64), "bigint"
    ),
    FieldType(
        code=mysql.FLOAT,
        plan=lambda _: fixed(wire.READ_32, 4, codes.F32),
        declare=_named("float"),
        storage=lambda _: codes.F32,
        metadata_bytes=1,
        size_bytes=4,
        has_sign=True,
    ),
    FieldType(
        code=mysql.DOUBLE,
        plan=lambda _: fixed(wire.READ_64, 8, codes.F64),
        declare=_named("double"),
        storage=lambda _: codes.F64,
        metadata_bytes=1,
        size_bytes=8,
        has_sign=True,
    ),
    FieldType(
        code=mysql.NEWDECIMAL,
        plan=_decimal,
        declare=_declared_decimal,
        storage=_decimal_storage,
        metadata_bytes=2,
        read_metadata=lambda code, first, second: (code, first << 8 | second),
        has_sign=True,
    ),
    FieldType(code=mysql.DECIMAL, storage=_decimal_storage, same_as=mysql.NEWDECIMAL),
    FieldType(
        code=mysql.BIT,
        plan=_bit,
        declare=lambda column: Declared(f"bit({column.metadata})", length=column.metadata),
        storage=lambda _: codes.BIT,
        metadata_bytes=2,
        read_metadata=lambda code, first, second: (code, second * 8 + first),
    ),
)  # fmt: skip

WORDS = (
    TypeWord(word="tinyint", code=mysql.TINY, synonyms=("bool", "boolean", "int1")),
    TypeWord(word="smallint", code=mysql.SHORT, synonyms=("int2",)),
    TypeWord(word="mediumint", code=mysql.INT24, synonyms=("int3", "middleint")),
    TypeWord(word="int", code=mysql.LONG, synonyms=("integer", "int4")),
    TypeWord(word="bigint", code=mysql.LONGLONG, synonyms=("int8", "serial")),
    TypeWord(word="float", code=mysql.FLOAT, synonyms=("float4",)),
    TypeWord(
        word="double", code=mysql.DOUBLE, synonyms=("double precision", "float8", "real")
    ),
    TypeWord(
        word="decimal", code=mysql.NEWDECIMAL, synonyms=("numeric", "dec", "fixed", "number")
    ),
    TypeWord(word="bit", code=mysql.BIT, is_sized=True),
)  # fmt: skip


def _simple(
    code: int, arrow: str, spark: str, sql_type: int, sql_widened: int | None = None
) -> Storage:
    return Storage(
        code=code,
        arrow=lambda pa, _: getattr(pa, arrow)(),
        spark=spark,
        sql_type=sql_type,
        sql_widened=sql_widened,
    )


STORAGES = (
    _simple(codes.I8, "int8", "tinyint", sql.TINYINT),
    _simple(codes.U8, "uint8", "smallint", sql.TINYINT, sql.SMALLINT),
    _simple(codes.I16, "int16", "smallint", sql.SMALLINT),
    _simple(codes.U16, "uint16", "int", sql.SMALLINT, sql.INTEGER),
    _simple(codes.I24, "int32", "int", sql.INTEGER),
    _simple(codes.U24, "uint32", "bigint", sql.INTEGER, sql.INTEGER),
    _simple(codes.I32, "int32", "int", sql.INTEGER),
    _simple(codes.U32, "uint32", "bigint", sql.INTEGER, sql.BIGINT),
    _simple(codes.I64, "int64", "bigint", sql.BIGINT),
    _simple(codes.U64, "uint64", "decimal(20,0)", sql.BIGINT, sql.DECIMAL),
    _simple(codes.F32, "float32", "float", sql.REAL),
    _simple(codes.F64, "float64", "double", sql.DOUBLE),
    _simple(codes.BIT, "uint64", "decimal(20,0)", sql.BIT),
    Storage(
        code=codes.DEC128,
        arrow=lambda pa, column: pa.decimal128(column.precision, column.scale),
        spark="decimal",
        sql_type=sql.DECIMAL,
    ),
    Storage(
        code=codes.DEC256,
        arrow=lambda pa, column: pa.decimal256(column.precision, column.scale),
        spark="string",
        sql_type=sql.DECIMAL,
    ),
)
