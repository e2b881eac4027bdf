"""Strings: texts and bytes of any length, ENUM and SET."""

from __future__ import annotations

from collections.abc import Iterable

from ray_canal.kernels.base import codes
from ray_canal.kernels.rows import wire
from ray_canal.model.table_meta import ColumnMeta
from ray_canal.types import mysql, sql
from ray_canal.types.charset_tables import UTF8_CHARSETS, table_of
from ray_canal.types.charsets import char_bytes_max
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

_SET_BYTES_MAX = 8
_BLOB_SIZES = {1: "tiny", 2: "", 3: "medium", 4: "long"}


def length_bytes(column: RowColumn) -> int:
    """Return how many bytes of length come before a value of CHAR or VARCHAR."""
    return 1 if column.metadata <= 255 else 2


def _characters(column: RowColumn) -> PlanLine:
    return _string(column, length_bytes(column))


def _blob(column: RowColumn) -> PlanLine:
    return _string(column, size_between(column.metadata, 1, 4))


def _string(column: RowColumn, prefix: int) -> PlanLine:
    """Return the plan of a text or of bytes: copied where they are UTF-8, else transcoded."""
    charset, most, null = column.charset, column.metadata, wire.NULL_OFFSET
    if charset == "binary":
        read = wire.READ_PADDED if column.type_code == mysql.STRING else wire.READ_COPY
        return PlanLine(read, -prefix, null, codes.BYTES, most)
    if charset in UTF8_CHARSETS:
        return PlanLine(wire.READ_COPY, -prefix, null, codes.TEXT, most)
    family, offset = table_of(charset)
    return PlanLine(wire.READ_TRANSCODED, -prefix, null, codes.TEXT, most, 0, offset, family)


def string_storage(column: ColumnMeta) -> int:
    """Return the storage of a text or of bytes."""
    return codes.BYTES if column.charset == "binary" else codes.TEXT


def declared_varchar(column: MetadataColumn) -> Declared:
    """Return the declaration of a VARCHAR or VARBINARY."""
    length = column.metadata // char_bytes_max(column.charset)
    word = "varbinary" if column.charset == "binary" else "varchar"
    return Declared(f"{word}({length})", length)


def _declared_char(column: MetadataColumn) -> Declared:
    length = column.metadata // char_bytes_max(column.charset)
    word = "binary" if column.charset == "binary" else "char"
    return Declared(f"{word}({length})", length)


def declared_blob(column: MetadataColumn) -> Declared:
    """Return the declaration of a blob or text, by the bytes of its length."""
    word = "blob" if column.charset == "binary" else "text"
    return Declared(_BLOB_SIZES.get(column.metadata, "") + word)


def _enum(column: RowColumn) -> PlanLine:
    return fixed(wire.READ_ENUM, size_between(column.metadata, 1, 2), codes.ENUM)


def _set(column: RowColumn) -> PlanLine:
    return fixed(wire.READ_SET, size_between(column.metadata, 1, _SET_BYTES_MAX), codes.SET)


def _declared_labels(column: MetadataColumn) -> Declared:
    word = "enum" if column.type_code == mysql.ENUM else "set"
    return Declared(word + label_list(column.labels))


def label_list(labels: Iterable[str]) -> str:
    """Return the labels of an ENUM or SET as SQL in parentheses, without backslash escapes."""
    quoted = ("'" + label.replace("'", "''") + "'" for label in labels)
    return f"({','.join(quoted)})"


def _real_type(code: int, first: int, second: int) -> tuple[int, int]:
    """Return the type and size of a STRING: ENUM and SET travel as one, with their real type
    first; lengths over 255 keep two bits in that byte, inverted."""
    if first & 0x30 != 0x30:
        return first | 0x30, second | (first & 0x30 ^ 0x30) << 4
    return first, second


def _varchar_metadata(code: int, first: int, second: int) -> tuple[int, int]:
    return code, first | second << 8


def _blob_type(code: int) -> FieldType:
    return FieldType(
        code=code,
        plan=_blob,
        declare=declared_blob,
        storage=string_storage,
        same_as=None if code == mysql.BLOB else mysql.BLOB,
        stands_for=(mysql.JSON, mysql.GEOMETRY) if code == mysql.BLOB else (),
        metadata_bytes=1,
        has_charset=True,
    )


FIELDS = (
    FieldType(
        code=mysql.STRING,
        plan=_characters,
        declare=_declared_char,
        storage=string_storage,
        metadata_bytes=2,
        read_metadata=_real_type,
        has_charset=True,
        sql_text=sql.CHAR,
    ),
    FieldType(
        code=mysql.VARCHAR,
        plan=_characters,
        declare=declared_varchar,
        storage=string_storage,
        stands_for=(mysql.VECTOR,),
        metadata_bytes=2,
        read_metadata=_varchar_metadata,
        has_charset=True,
        sql_text=sql.VARCHAR,
    ),
    FieldType(
        code=mysql.VAR_STRING,
        plan=_characters,
        declare=declared_varchar,
        storage=string_storage,
        same_as=mysql.VARCHAR,
        metadata_bytes=2,
        read_metadata=_real_type,
        has_charset=True,
        sql_text=sql.VARCHAR,
    ),
    *map(_blob_type, (mysql.TINY_BLOB, mysql.BLOB, mysql.MEDIUM_BLOB, mysql.LONG_BLOB)),
    FieldType(
        code=mysql.ENUM,
        plan=_enum,
        declare=_declared_labels,
        storage=lambda _: codes.ENUM,
        metadata_bytes=2,
        read_metadata=_real_type,
        size_bytes=2,
    ),
    FieldType(
        code=mysql.SET,
        plan=_set,
        declare=_declared_labels,
        storage=lambda _: codes.SET,
        metadata_bytes=2,
        read_metadata=_real_type,
        size_bytes=_SET_BYTES_MAX,
    ),
)

WORDS = (
    TypeWord(
        word="char",
        code=mysql.STRING,
        synonyms=("character", "nchar", "national char", "national character"),
        charset="text",
        is_sized=True,
    ),
    TypeWord(
        word="varchar",
        code=mysql.VARCHAR,
        synonyms=(
            "character varying", "char varying", "nvarchar", "nchar varchar", "nchar varying",
            "national varchar", "national char varying", "national character varying",
            "varcharacter", "national varcharacter",
        ),
        charset="text",
        is_sized=True,
    ),
    TypeWord(word="binary", code=mysql.STRING, charset="binary", is_sized=True),
    TypeWord(word="varbinary", code=mysql.VARCHAR, charset="binary", is_sized=True),
    TypeWord(word="tinytext", code=mysql.BLOB, charset="text"),
    TypeWord(word="text", code=mysql.BLOB, charset="text"),
    TypeWord(
        word="mediumtext",
        code=mysql.BLOB,
        synonyms=("long", "long varchar", "long char varying", "long character varying"),
        charset="text",
    ),
    TypeWord(word="longtext", code=mysql.BLOB, charset="text"),
    TypeWord(word="tinyblob", code=mysql.BLOB, charset="binary"),
    TypeWord(word="blob", code=mysql.BLOB, charset="binary"),
    TypeWord(word="mediumblob", code=mysql.BLOB, synonyms=("long varbinary",), charset="binary"),
    TypeWord(word="longblob", code=mysql.BLOB, charset="binary"),
    TypeWord(word="enum", code=mysql.ENUM, charset="text"),
    TypeWord(word="set", code=mysql.SET, charset="text"),
)  # fmt: skip

STORAGES = (
    Storage(
        code=codes.TEXT,
        arrow=lambda pa, _: pa.string(),
        spark="string",
        sql_type=sql.CLOB,  # FieldType.sql_text comes first
    ),
    Storage(
        code=codes.BYTES,
        arrow=lambda pa, _: pa.binary(),
        spark="binary",
        sql_type=sql.BLOB,
    ),
    Storage(
        code=codes.ENUM,
        arrow=lambda pa, _: pa.dictionary(pa.uint16(), pa.string()),
        spark="string",
        sql_type=sql.INTEGER,
    ),
    Storage(
        code=codes.SET,
        arrow=lambda pa, _: pa.list_(pa.string()),
        spark="array<string>",
        sql_type=sql.BIT,
        sql_null=sql.BLOB,
    ),
)
