"""Read a column's declared type: its words, as in statements and catalogs, and their meaning.

`mysql_type` keeps the declared text the way Canal prints it: lower case, no blanks inside
parentheses (`bool`, `integer(11)`, `enum('a','b')`), `zerofill` with `unsigned` before it, a float
of more than 24 bits as `double(p)`. What the type means lies in the other fields of a ColumnMeta,
so two spellings of one type differ in `mysql_type` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from ray_canal.errors import ConfigError
from ray_canal.model.table_meta import ColumnMeta
from ray_canal.schema.ddl.words import (
    MODE_MAXDB,
    MODE_NO_BACKSLASH_ESCAPES,
    MODE_ORACLE,
    MODE_REAL_AS_FLOAT,
    Token,
    Words,
    number_of,
    unquoted,
)
from ray_canal.types import mysql
from ray_canal.types.charsets import canonical, char_bytes_max, decode_label
from ray_canal.types.column_type import TypeWord

DEFAULT_CHARSET = "utf8mb4"

_BLOB_BYTES = {"tiny": 1 << 8, "": 1 << 16, "medium": 1 << 24, "long": 1 << 32}
_VARCHAR_BYTES_MAX = 65535
_TEXT_CODES = (mysql.STRING, mysql.VARCHAR, mysql.BLOB, mysql.ENUM, mysql.SET)
_FLOAT_BITS_MAX = 24
_ORACLE_TYPES = {
    "date": "datetime", "blob": "longblob", "clob": "longtext", "raw": "varbinary",
    "varchar2": "varchar",
}  # fmt: skip
"""Types of MariaDB's sql_mode=ORACLE that are others there; NUMBER, too, is a DOUBLE without
digits."""


class _Words(NamedTuple):
    synonyms: Mapping[str, str]
    words: Mapping[str, TypeWord]


@cache
def _words() -> _Words:
    # With it come compiled kernels, which the process of a log has no use for until it meets DDL.
    from ray_canal.types.registry import SYNONYMS, WORDS

    return _Words(SYNONYMS, WORDS)


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """A type as read: `word` is a key of WORDS, `text` the declared one."""

    word: str
    text: str
    numbers: tuple[int, ...] = ()
    labels: tuple[str | bytes, ...] = ()  # bytes: of the column's character set
    unsigned: bool = False

    @property
    def national(self) -> bool:
        """Return whether it is NCHAR or NVARCHAR, whose character set is utf8mb3."""
        return self.word in ("char", "varchar") and self.text.startswith("n")


def read_type(words: Words, sql_mode: int = 0, mariadb: bool | None = None) -> DeclaredType:
    """The type that comes next. Raises ConfigError: a type that is not known."""
    text = _type_in_mode(words, sql_mode, mariadb)
    word = _words().synonyms.get(text, text)
    if word not in _words().words:
        shown = text + "".join(t.raw for t in _argument(words))
        raise ConfigError(f"type that is not known: {shown!r}")
    if text == "real" and sql_mode & MODE_REAL_AS_FLOAT:
        word, text = "float", "float"
    arguments = _argument(words)
    values = (number_of(t.text) for t in arguments if t.kind == "word")
    numbers = tuple(value for value in values if value is not None)
    labels = _labels(arguments, sql_mode) if word in ("enum", "set") else ()
    if word == "float" and len(numbers) == 1 and numbers[0] > _FLOAT_BITS_MAX:
        word = text = "double"
    unsigned = zerofill = False
    while found := words.take_any("UNSIGNED", "SIGNED", "ZEROFILL"):
        zerofill |= found == "ZEROFILL"
        unsigned |= found != "SIGNED"
    declared = text + "".join(t.raw for t in arguments)
    declared += " unsigned" * unsigned + " zerofill" * zerofill
    if word == "year":
        unsigned = False
    return DeclaredType(word, declared, numbers, labels, unsigned or text == "serial")


def _type_in_mode(words: Words, sql_mode: int, mariadb: bool | None) -> str:
    """The type that comes next, by the name that it has without this sql_mode."""
    if mariadb and words.take("MARIADB_SCHEMA", "."):
        return _type_words(words)
    text = _type_words(words)
    if sql_mode & MODE_MAXDB and text == "timestamp":
        return "datetime"
    if not (mariadb and sql_mode & MODE_ORACLE):
        return text
    if text == "number" and words.peek() != "(":
        return "double"
    if text == "blob" and words.peek() == "(":
        return text
    return _ORACLE_TYPES.get(text, text)


def _type_words(words: Words) -> str:
    """The longest run of words that is a type."""
    for count in (3, 2):
        run = [words.token(ahead) for ahead in range(count)]
        text = " ".join(token.text.lower() for token in run)
        if text in _words().synonyms and all(token.kind == "word" for token in run):
            for _ in range(count):
                words.skip()
            return text
    token = words.token()
    if token.kind == "word":
        words.skip()
    return token.text.lower()


def _argument(words: Words) -> list[Token]:
    """The tokens of a parenthesis that comes next, if one does, with the parentheses."""
    found: list[Token] = []
    if words.peek() != "(":
        return found
    while not words.done:
        found.append(words.token())
        words.skip()
        if found[-1] == Token("other", ")"):
            break
    return found


def _labels(arguments: list[Token], sql_mode: int) -> tuple[str | bytes, ...]:
    found: list[str | bytes] = []
    for before, token in pairwise(arguments):
        base = before.text.lower() if before.kind == "word" else ""
        if token.kind in ("single", "double") and base in ("x", "b"):
            found.append(_label_bytes(base, token.text))
        elif token.kind in ("single", "double"):
            quote = "'" if token.kind == "single" else '"'
            no_backslash = bool(sql_mode & MODE_NO_BACKSLASH_ESCAPES)
            found.append(unquoted(token.text, no_backslash, quote))
        elif token.kind == "word" and token.text[:2] in ("0x", "0b"):
            found.append(_label_bytes(token.text[1], token.text[2:]))
    return tuple(found)


def _label_bytes(base: str, digits: str) -> bytes:
    """Return the bytes of a label that is written in hexadecimal (`base` x) or in bits (b)."""
    try:
        number = int(digits, 16 if base == "x" else 2)
    except ValueError:
        raise ConfigError(f"label that is no number: {base}'{digits}'") from None
    each = 2 if base == "x" else 8
    return number.to_bytes(-(-len(digits) // each), "big")


def _label(label: str | bytes, charset: str) -> str:
    """A label as the server keeps it: without blanks at its end, if it is a text."""
    text = label if isinstance(label, str) else decode_label(label, charset or DEFAULT_CHARSET)
    return text if charset == "binary" else text.rstrip(" ")


def column_of(
    name: str,
    declared: DeclaredType,
    *,
    charset: str = "",
    nullable: bool = True,
    is_key: bool = False,
    visible: bool = True,
    is_generated: bool = False,
) -> ColumnMeta:
    """The column that has this type; `charset` is ignored for types without one, and empty where
    it is not known."""
    if word := _too_long_for_varchar(declared, charset):
        declared = DeclaredType(word, word)
    word, numbers = declared.word, declared.numbers
    code = _words().words[word].code
    decimal = code == mysql.NEWDECIMAL
    fractional = code in (mysql.TIME2, mysql.DATETIME2, mysql.TIMESTAMP2)
    return ColumnMeta(
        name=name,
        type_code=code,
        mysql_type=declared.text,
        unsigned=declared.unsigned,
        nullable=nullable and not is_key,
        is_key=is_key,
        charset=_charset(word, canonical(charset)),
        length=(numbers[0] if numbers else 1) if _words().words[word].is_sized else 0,
        precision=((numbers[0] if numbers else 10) or 10) if decimal else 0,
        scale=numbers[1] if decimal and len(numbers) > 1 else 0,
        fraction=numbers[0] if fractional and numbers else 0,
        labels=tuple(_label(label, canonical(charset)) for label in declared.labels),
        visible=visible,
        is_generated=is_generated,
    )


def _too_long_for_varchar(declared: DeclaredType, charset: str) -> str:
    """Return the type that the server makes of a VARCHAR or VARBINARY of more than 65,535 bytes
    (sql_mode without STRICT_…); empty: it is none."""
    if declared.word not in ("varchar", "varbinary") or not declared.numbers:
        return ""
    kind = _charset(declared.word, canonical(charset))
    size_bytes = declared.numbers[0] * char_bytes_max(kind)
    if size_bytes <= _VARCHAR_BYTES_MAX:
        return ""
    size = "medium" if size_bytes < _BLOB_BYTES["medium"] else "long"
    return size + ("blob" if kind == "binary" else "text")


def column_meta(
    name: str,
    mysql_type: str,
    *,
    charset: str = "",
    nullable: bool = True,
    is_key: bool = False,
    visible: bool = True,
    is_generated: bool = False,
) -> ColumnMeta:
    """A column from its type's text alone, as information_schema.COLUMN_TYPE prints it.

    Raises ConfigError: a type that is not known.
    """
    try:
        declared = read_type(Words(mysql_type))
    except ConfigError as error:
        raise ConfigError(f"column {name!r} has a {error}") from None
    return column_of(
        name,
        declared,
        charset=charset or DEFAULT_CHARSET,
        nullable=nullable,
        is_key=is_key,
        visible=visible,
        is_generated=is_generated,
    )


def _charset(word: str, charset: str) -> str:
    kind = _words().words[word].charset
    return charset if kind == "text" else kind


def is_text(column: ColumnMeta) -> bool:
    """Tell if a change of the table's character set concerns the column."""
    return column.type_code in _TEXT_CODES and column.charset != "binary"


def blob_size(column: ColumnMeta) -> str:
    """Return `tiny`, empty, `medium` or `long`: which blob or text a BLOB column is. `text(20)` is
    a tinytext where 20 characters fit into 255 bytes."""
    word = column.mysql_type.lower()
    word = _words().synonyms.get(word, word)
    for size in ("tiny", "medium", "long"):
        if word.startswith(size):
            return size
    if word == "json":
        return "long"
    length = number_of(word.partition("(")[2].rstrip(")"))
    if length is None:
        return ""
    size_bytes = length * char_bytes_max(column.charset or DEFAULT_CHARSET)
    return next((size for size, limit in _BLOB_BYTES.items() if size_bytes < limit), "long")
