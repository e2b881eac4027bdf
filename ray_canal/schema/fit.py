"""Tell if a known schema can be that of rows, by their TABLE_MAP: types, sizes, signs."""

from __future__ import annotations

from dataclasses import replace

from ray_canal.binlog.table_map import TableMap
from ray_canal.model.schema_record import TableState
from ray_canal.model.table_meta import ColumnMeta, TableMeta
from ray_canal.schema.ddl.column_type import DEFAULT_CHARSET, blob_size, is_text
from ray_canal.types import mysql
from ray_canal.types.charsets import canonical, char_bytes_max, charset_of_collation
from ray_canal.types.registry import field_type, schema_type

_CHARSETS = {4: "utf8mb4", 3: "utf8mb3", 1: "latin1"}
"""Most bytes of a character: the character set that it is taken for, where only that is known (the
database was made before the log began)."""
_ELEMENT_BYTES = 4
"""Types of a VECTOR, which is a VARBINARY in the rows of MariaDB."""
_FRACTIONAL = (mysql.TIME2, mysql.DATETIME2, mysql.TIMESTAMP2)
_OLD_TEMPORAL = (mysql.TIME, mysql.DATETIME, mysql.TIMESTAMP)
"""Their TABLE_MAP does not tell the digits of fractional seconds (MariaDB has such)."""


def with_hidden_key(table_map: TableMap, meta: TableMeta, name: str) -> TableMeta:
    """Return the schema with a hidden BIGINT key of this name after its columns, if it has no key
    and the rows have one BIGINT more; else as it is."""
    columns = meta.columns
    if (
        len(table_map.types) != len(columns) + 1
        or table_map.types[-1] != mysql.LONGLONG
        or meta.hidden
        or any(column.is_key for column in columns)
    ):
        return meta
    key = ColumnMeta(name, mysql.LONGLONG, "bigint", nullable=False, is_key=True, visible=False)
    return replace(meta, columns=(*columns, key))


def misfit(table_map: TableMap, meta: TableMeta) -> str:
    """Return why a schema cannot be that of these rows; empty if it can."""
    count = len(meta.columns)
    if count + meta.hidden != len(table_map.types):
        hashes = f" and {meta.hidden} hidden" * bool(meta.hidden)
        return f"{count} columns{hashes} are known, the rows have {len(table_map.types)}"
    if any(kind != mysql.LONGLONG for kind in table_map.types[count:]):
        return f"the rows have {mysql.type_name(table_map.types[-1])} where a hidden hash should be"
    for number, column in enumerate(meta.columns):
        problem = _misfit(table_map, number, column)
        if problem:
            return f"column {column.name} is {column.mysql_type}, the rows have {problem}"
    return ""


def _misfit(table_map: TableMap, number: int, column: ColumnMeta) -> str:
    kind, size = table_map.types[number], table_map.metadata[number]
    if column.type_code == mysql.VECTOR and kind == mysql.VARCHAR:
        is_it = size == _ELEMENT_BYTES * column.length
        return "" if is_it else f"{size} bytes"
    if schema_type(column.type_code) != schema_type(kind) and not _is_json_text(column, kind):
        return mysql.type_name(kind)
    if kind in (mysql.STRING, mysql.VARCHAR) and column.length:
        charset = _charset(table_map, number) or column.charset
        if charset and size != column.length * char_bytes_max(charset):
            return f"{size} bytes ({charset}: {column.length * char_bytes_max(charset)})"
        if not charset and size / column.length not in _CHARSETS:
            return f"{size} bytes, and its character set is not known"
    elif kind == mysql.NEWDECIMAL and size != column.precision << 8 | column.scale:
        return f"decimal({size >> 8},{size & 0xFF})"
    elif kind == mysql.BIT and size != column.length:
        return f"{size} bits"
    elif kind in (mysql.ENUM, mysql.SET) and column.labels and size != _label_bytes(kind, column):
        return f"labels of {size} bytes"
    elif kind in _FRACTIONAL and size != column.fraction:
        return f"{size} digits of fractional seconds"
    elif field_type(kind).has_sign and table_map.unsigned and kind != mysql.YEAR:
        unsigned = table_map.unsigned[number]
        if unsigned != column.unsigned:
            return "unsigned numbers" if unsigned else "signed numbers"
    return ""


def _label_bytes(kind: int, column: ColumnMeta) -> int:
    count = len(column.labels)
    if kind == mysql.ENUM:
        return 1 if count < 256 else 2
    size = (count + 7) // 8
    return 8 if size > 4 else size


def misfit_of_state(table_map: TableMap, state: TableState) -> str:
    """Do as `misfit` for a table whose columns may be unknown."""
    return state.problem or misfit(table_map, state.meta)


def fitted(table_map: TableMap, meta: TableMeta) -> TableMeta:
    """The schema with what the TABLE_MAP knows better: character sets, NULLs, and which type
    MariaDB's JSON is."""
    columns = []
    usual = _usual_charset(table_map, meta)
    for number, column in enumerate(meta.columns):
        charset = _charset(table_map, number) or column.charset
        if column.type_code == mysql.VECTOR:
            charset = ""
        if not charset and is_text(column):
            charset = usual
        kind = column.type_code
        if _is_json_text(column, table_map.types[number]):
            kind, charset = mysql.BLOB, charset or "utf8mb4"
        nullable = table_map.nullable[number]
        if (kind, charset, nullable) != (column.type_code, column.charset, column.nullable):
            column = replace(column, type_code=kind, charset=charset, nullable=nullable)
        columns.append(column)
    return replace(meta, schema=table_map.schema, table=table_map.table, columns=tuple(columns))


def _usual_charset(table_map: TableMap, meta: TableMeta) -> str:
    """Return the character set that columns without a known one have, by the bytes that their
    characters take."""
    for number, column in enumerate(meta.columns):
        kind, size = table_map.types[number], table_map.metadata[number]
        if kind in (mysql.STRING, mysql.VARCHAR) and not column.charset and column.length:
            return _CHARSETS[size // column.length]
    return DEFAULT_CHARSET


def _charset(table_map: TableMap, number: int) -> str:
    """The character set that the TABLE_MAP names; empty: none."""
    collation = table_map.collations[number] if table_map.collations else 0
    return charset_of_collation(collation) if collation else ""


def _is_json_text(column: ColumnMeta, kind: int) -> bool:
    """MariaDB: JSON is a name for LONGTEXT."""
    return column.type_code == mysql.JSON and schema_type(kind) == mysql.BLOB


def with_declared(mine: ColumnMeta, theirs: ColumnMeta) -> ColumnMeta:
    """Return row metadata's column with what only a known schema has of it: its type's text,
    digits that old formats lack, that it is generated, and that MariaDB's VARBINARY is a VECTOR."""
    if theirs.type_code == mysql.VECTOR:
        mine = replace(mine, type_code=mysql.VECTOR, length=theirs.length, charset="")
    return replace(
        mine,
        mysql_type=theirs.mysql_type,
        fraction=theirs.fraction,
        is_generated=theirs.is_generated,
    )


def without_key(mine: TableMeta, known: TableMeta) -> TableMeta:
    """Return row metadata's table without a key, if a known schema with the same columns has none.

    Servers take a unique key over columns that are NOT NULL for the primary one where there is
    none, and TABLE_MAP does not tell them apart. DDL and catalog do, and so does Canal."""
    for one, other in zip(mine.columns, known.columns, strict=True):
        if one.name.lower() != other.name.lower() or other.is_key:
            return mine
        if one.is_key and other.nullable:  # what is known is of another time, or incomplete
            return mine
    unique = tuple(column.name for column in mine.columns if column.is_key)
    columns = tuple(replace(c, is_key=False) if c.is_key else c for c in mine.columns)
    return replace(mine, columns=columns, unique_key=unique)


def same_type(mine: ColumnMeta, theirs: ColumnMeta) -> bool:
    """Tell if two columns differ in nothing but what the binlog does not record: how the type was
    written."""
    if mine.type_code in _OLD_TEMPORAL:
        mine = replace(mine, fraction=theirs.fraction)
    if theirs.type_code == mysql.VECTOR and mine.type_code == mysql.VARCHAR:
        return mine.charset == "binary" and mine.length == _ELEMENT_BYTES * theirs.length
    if schema_type(mine.type_code) != schema_type(theirs.type_code):
        return _is_json_text(mine, theirs.type_code) or _is_json_text(theirs, mine.type_code)
    if schema_type(mine.type_code) == mysql.BLOB and blob_size(mine) != blob_size(theirs):
        return False
    if mine.type_code == mysql.GEOMETRY and _geometry(mine) != _geometry(theirs):
        return False
    if mine.length and theirs.length and mine.length != theirs.length:
        return False  # a type of MariaDB's that is stored as bytes (uuid) has none
    return _measures(mine) == _measures(theirs)


def _measures(column: ColumnMeta) -> tuple[object, ...]:
    return (
        column.unsigned,
        column.labels,
        column.precision,
        column.scale,
        column.fraction,
        canonical(column.charset) == "binary" and not column.labels,
    )


def _geometry(column: ColumnMeta) -> str:
    return column.mysql_type.lower().replace("geometrycollection", "geomcollection")
