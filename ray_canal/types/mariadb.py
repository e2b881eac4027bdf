"""Types that MariaDB alone has: compressed columns, UUID, INET4, INET6.

UUID and INET are BINARY in its rows; only the schema tells them, and SELECT shows them as text.
Its VECTOR is in spatial.py, its JSON in json.py, its old times with a fraction in temporal.py.
"""

from __future__ import annotations

from collections.abc import Callable

from ray_canal.kernels.base import codes
from ray_canal.kernels.rows import wire
from ray_canal.types import mysql, sql
from ray_canal.types.charset_tables import UTF8_CHARSETS, table_of
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
from ray_canal.types.string import declared_blob, declared_varchar, length_bytes, string_storage


def _compressed_varchar(column: RowColumn) -> PlanLine:
    return _compressed(column, length_bytes(column))


def _compressed_blob(column: RowColumn) -> PlanLine:
    return _compressed(column, size_between(column.metadata, 1, 4))


def _compressed(column: RowColumn, prefix: int) -> PlanLine:
    charset, most = column.charset, column.metadata
    code = codes.BYTES if charset == "binary" else codes.TEXT
    is_plain = charset == "binary" or charset in UTF8_CHARSETS
    family, offset = (0, 0) if is_plain else table_of(charset)
    return PlanLine(
        wire.READ_INFLATED, -prefix, wire.NULL_OFFSET, code, most, 0, offset, family
    )  # fmt: skip


def _declared_compressed(column: MetadataColumn) -> Declared:
    # One byte of the length says how the value is compressed.
    return declared_varchar(column._replace(metadata=column.metadata - 1))


def _address(read: int) -> Callable[[RowColumn], PlanLine]:
    return lambda column: PlanLine(
        read, -length_bytes(column), wire.NULL_OFFSET, codes.TEXT, column.metadata
    )


FIELDS = (
    FieldType(
        code=mysql.MARIADB_VARCHAR_COMPRESSED,
        plan=_compressed_varchar,
        declare=_declared_compressed,
        storage=string_storage,
        same_as=mysql.VARCHAR,
        metadata_bytes=2,
        read_metadata=lambda code, first, second: (code, first | second << 8),
        has_charset=True,
        sql_text=sql.VARCHAR,
    ),
    FieldType(
        code=mysql.MARIADB_BLOB_COMPRESSED,
        plan=_compressed_blob,
        declare=declared_blob,
        storage=string_storage,
        same_as=mysql.BLOB,
        metadata_bytes=1,
        has_charset=True,
    ),
)

WORDS = tuple(
    TypeWord(
        word=word,
        code=mysql.STRING,
        charset="binary",
        key_bytes=key_bytes,
        plans={mysql.STRING: _address(read)},
        storage=codes.TEXT,
    )
    for word, key_bytes, read in (
        ("uuid", 16, wire.READ_UUID),
        ("inet4", 4, wire.READ_INET4),
        ("inet6", 16, wire.READ_INET6),
    )
)

STORAGES: tuple[Storage, ...] = ()
