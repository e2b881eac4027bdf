"""A column's type as a MySQL or MariaDB target takes it in CREATE TABLE.

A declared type is what the source's DDL says, by that statement's sql_mode and next to other
clauses. Alone, with a clause on its character set and in a session without backslash escapes, some
mean another type, or none.
"""

from __future__ import annotations

from ray_canal.model.table_meta import ColumnMeta
from ray_canal.types import mysql
from ray_canal.types.registry import SYNONYMS
from ray_canal.types.string import label_list

_BYTES_OF = {
    "char": "binary", "varchar": "varbinary", "tinytext": "tinyblob", "text": "blob",
    "mediumtext": "mediumblob", "longtext": "longblob",
}  # fmt: skip


def declared_type(column: ColumnMeta) -> str:
    """Return a column's type: ENUM and SET with their labels' own characters, text without the
    words that choose its character set, bytes as bytes."""
    text = column.mysql_type
    word, paren, rest = text.partition("(")
    if column.labels:
        return word + label_list(column.labels)
    if text == "serial":
        return "bigint unsigned"
    if column.type_code == mysql.DOUBLE and paren and "," not in rest:
        return f"double{rest.partition(')')[2]}"  # FLOAT(53)
    name = SYNONYMS.get(word, word)
    if name in _BYTES_OF:
        word = _BYTES_OF[name] if column.charset == "binary" else name
    if word == "number":  # MariaDB's alone, and known to it in its sql_mode=ORACLE
        word = name
    return word + paren + rest
