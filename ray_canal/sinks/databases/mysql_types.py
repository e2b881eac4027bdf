"""Types of columns as MySQL and MariaDB show and take them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from ray_canal.binlog.events import version_numbers
from ray_canal.sinks.column_specs import ColumnSpec

KEY_TEXT = "VARCHAR(255)"
_SCALE_MAX = 30
_INTEGERS = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
_SYNONYMS = {
    "numeric": "decimal", "dec": "decimal", "fixed": "decimal", "real": "double",
    "double precision": "double", "integer": "int", "bool": "tinyint(1)", "boolean": "tinyint(1)",
    "geomcollection": "geometrycollection", "float4": "float", "float8": "double",
}  # fmt: skip


class _Known(NamedTuple):
    """A type's first MySQL and MariaDB; `otherwise`: what servers without it get, of `charset`."""

    mysql: tuple[int, ...]
    mariadb: tuple[int, ...]
    otherwise: str
    charset: str = ""


_NEVER = (1 << 30,)
_KNOWN = {
    "json": _Known((5, 7, 8), (10, 2, 7), "longtext", "utf8mb4"),
    "vector(": _Known((9, 0), (11, 7), "longblob"),
    "vector": _Known((9, 0), _NEVER, "longblob"),  # of any length
    "geomcollection": _Known((8, 0, 11), _NEVER, "geometrycollection"),
    "uuid": _Known(_NEVER, (10, 7), "char(36)", "ascii"),
    "inet6": _Known(_NEVER, (10, 5), "varchar(45)", "ascii"),
    "inet4": _Known(_NEVER, (10, 10), "varchar(15)", "ascii"),
}


def is_since(version: str, mysql: tuple[int, ...], mariadb: tuple[int, ...]) -> bool:
    """Return whether a server, by its VERSION(), is at least that MySQL, or that MariaDB."""
    return version_numbers(version) >= (mariadb if "mariadb" in version.lower() else mysql)


def has_long_scale(kind: pa.DataType) -> bool:
    """Return whether it is a decimal with more fractional digits than MySQL has; MariaDB has 38."""
    return bool(pa.types.is_decimal(kind) and kind.scale > _SCALE_MAX)


def known_to(version: str, column: ColumnSpec) -> ColumnSpec:
    """Return the column with a type that a server of this version knows: another kind of server's,
    or a newer one's, has some that it does not."""
    if has_long_scale(column.kind) and "mariadb" not in version.lower():
        width = column.kind.precision + len("-0.")
        return column._replace(declared=f"varchar({width})", charset="ascii")
    word, bracket, _ = column.declared.lower().partition("(")
    known = _KNOWN.get(word + bracket)
    if known is None or is_since(version, known.mysql, known.mariadb):
        return column
    return column._replace(declared=known.otherwise, charset=known.charset)


def charset_words(
    kind: str, charset: str, is_key: bool, collations: Mapping[str, str | None]
) -> str:
    """Return the words on the character set of a column of this type, with a binary collation in a
    key. `charset`: empty where the log does not tell it, as of a database that is older than what
    is read; `collations`: that of each character set that takes no space at the end for none."""
    if not charset and is_key and re.match(r"(var)?char|(tiny|medium|long)?text", kind.lower()):
        if not collations.get("utf8mb4"):
            return " BINARY"
        charset = "utf8mb4"
    if not charset or charset == "binary" or kind.lower() == "json":
        return ""  # JSON is a text in MariaDB, but without a word on its charset
    of_key = f" COLLATE {collations.get(charset) or f'{charset}_bin'}" if is_key else ""
    return f" CHARACTER SET {charset}{of_key}"


def canonical_type(declared: str) -> str:
    """Return a type's text as servers show it, so far as numbers have several names. How wide an
    integer is shown is no part of it: MySQL 8 shows no widths, others do."""
    text = re.sub(r"\s*([(,])\s*|\s*(\))", r"\1\2", " ".join(declared.lower().split()))
    word = re.match(r"[a-z]+[48]?(?: precision)?", text)
    if word is not None:
        text = _SYNONYMS.get(word[0], word[0]) + text[word.end() :]
    text = re.sub(r"^((?:tiny|small|medium|big)?int|year)\(\d+\)", r"\1", text)
    text = re.sub(r"^(float|time|datetime|timestamp)\(\d+\)", _with_digits, text)
    text = re.sub(r"^decimal(?!\()|^decimal\(0(,0)?\)", "decimal(10,0)", text)
    return re.sub(r"^decimal\((\d+)\)", r"decimal(\1,0)", text)


def _with_digits(kind: re.Match[str]) -> str:
    """Return a type with its digits as servers show it: those of FLOAT choose a type, and no
    fractional ones of a time are not shown."""
    word, digits = kind[0][:-1].split("(")
    if word == "float":
        return "double" if int(digits) > 24 else "float"
    return kind[0] if int(digits) else word


def has_no_empty_label(declared: str) -> bool:
    """Return whether it is an ENUM none of whose labels is the empty text."""
    return declared.startswith("enum(") and not re.search(r"[(,]''[,)]", declared)


def default_words(version: str, column: ColumnSpec, literal: str) -> str:
    """Return the words on a column's DEFAULT, which is this literal; none where a server of this
    version takes none. Of some types it is taken as an expression alone (MySQL's manual, section
    "Data Type Default Values")."""
    declared = known_to(version, column).declared or mysql_type(column.kind)
    if not re.match(r"(tiny|medium|long)?(text|blob)|json|geometry|vector", declared.lower()):
        return f" DEFAULT {literal}"
    return f" DEFAULT ({literal})" if is_since(version, (8, 0, 13), (10, 2, 1)) else ""


def shown(kind: object) -> str:
    """Return a text of information_schema, which some servers give as bytes, in lower case."""
    return str(kind.decode() if isinstance(kind, bytes) else kind).lower()


def mysql_type(kind: pa.DataType, is_key: bool = False) -> str:
    """Return MySQL's type for Arrow's, of a column that no declaration is known of."""
    types = pa.types
    if types.is_integer(kind):
        return _INTEGERS[int(kind.bit_width)] + " UNSIGNED" * bool(types.is_unsigned_integer(kind))
    if types.is_floating(kind):
        return "DOUBLE" if kind.bit_width == 64 else "FLOAT"
    if types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if types.is_boolean(kind):
        return "TINYINT(1)"
    if types.is_date(kind):
        return "DATE"
    if types.is_timestamp(kind):
        return "DATETIME(6)"
    if types.is_duration(kind):
        return "TIME(6)"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_list(kind):
        return "VARBINARY(255)" if is_key else "LONGBLOB"
    return KEY_TEXT if is_key else "LONGTEXT"
