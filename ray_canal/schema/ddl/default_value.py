"""Read a column's DEFAULT: what the rows have that are there when the column is added.

A constant is known from the statement. What an expression gave (CURRENT_TIMESTAMP, UUID()), a
generated column or AUTO_INCREMENT, only the server knows.
"""

from __future__ import annotations

import re

from ray_canal.model.table_meta import ColumnMeta
from ray_canal.schema.ddl.words import MODE_NO_BACKSLASH_ESCAPES, Dialect, Words, unquoted
from ray_canal.types import mysql

_TEXT = ("single", "double")
_QUOTES = {"single": "'", "double": '"'}
_INTRODUCER = re.compile(r"_[a-z0-9]+|n", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]+|[0-9]*e[0-9]*", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_HEX, _BITS = re.compile(r"0x[0-9a-f]+", re.IGNORECASE), re.compile(r"0b[01]+", re.IGNORECASE)
_ZERO = frozenset({
    mysql.TINY, mysql.SHORT, mysql.INT24, mysql.LONG, mysql.LONGLONG, mysql.FLOAT, mysql.DOUBLE,
    mysql.NEWDECIMAL, mysql.BIT, mysql.YEAR,
})  # fmt: skip
_EMPTY = frozenset({mysql.VARCHAR, mysql.STRING, mysql.BLOB, mysql.SET})

Constant = str | bytes
"""A value as text, or as the bytes that a hexadecimal or bit literal has."""


def read_constant(words: Words, dialect: Dialect | None) -> Constant | None:
    """Take the constant that comes next, after DEFAULT. None: it is an expression, of which nothing
    is taken."""
    mode = dialect.sql_mode if dialect else 0
    second = words.token(1).kind
    if words.token().kind == "word" and second in _TEXT:
        introducer = words.peek()
        if introducer in ("X", "B"):
            words.skip()
            return _bytes(("0x" if introducer == "X" else "0b") + words.identifier())
        if _INTRODUCER.fullmatch(introducer):
            words.skip()
    is_expression = words.peek() == "(" and words.token(1).kind in _TEXT and words.peek(2) == ")"
    if is_expression:  # so MySQL has constants of a TEXT
        words.skip()
        text = read_constant(words, dialect)
        words.skip()
        return text
    if words.token().kind in _TEXT:
        text = ""
        while words.token().kind in _TEXT:  # those that follow each other are one
            token = words.token()
            no_backslash = bool(mode & MODE_NO_BACKSLASH_ESCAPES)
            text += unquoted(token.text, no_backslash, _QUOTES[token.kind])
            words.skip()
        return text
    word = words.take_any("TRUE", "FALSE")
    if word:
        return "1" if word == "TRUE" else "0"
    if _HEX.fullmatch(words.token().text) or _BITS.fullmatch(words.token().text):
        return _bytes(words.identifier())
    return _number(words)


def _bytes(text: str) -> bytes | None:
    """The bytes of 0x… or 0b…, as many as its digits need; None: it has others."""
    digits = text[2:]
    if digits and not (_HEX.fullmatch(text) or _BITS.fullmatch(text)):
        return None
    base, per_byte = (16, 2) if text[1] in "xX" else (2, 8)
    length = -(-len(digits) // per_byte)
    return int(digits, base).to_bytes(length, "big") if digits else b""


def _number(words: Words) -> str | None:
    at, text = 0, ""
    if words.peek() in ("+", "-"):
        text, at = words.peek(), 1
    while True:
        token = words.token(at)
        is_sign = token.text in ("+", "-") and text[-1:] in ("e", "E") and len(text) > 1
        if token.kind == "word" and _DIGITS.fullmatch(token.text):
            pass
        elif not (token.kind == "other" and (is_sign or (token.text == "." and "." not in text))):
            break
        text, at = text + token.text, at + 1
    if not _NUMBER.fullmatch(text):
        return None
    for _ in range(at):
        words.skip()
    return text


_OF_MARIADB = {
    "uuid": "00000000-0000-0000-0000-000000000000", "inet6": "::", "inet4": "0.0.0.0",
}  # fmt: skip


def implicit_value(column: ColumnMeta) -> Constant | None:
    """Return what a NOT NULL column without a DEFAULT gets (MySQL manual, section "Data Type
    Default Values"). None: no value that could be delivered, as a date of zeros."""
    if column.labels and column.type_code == mysql.ENUM:
        return column.labels[0]
    if column.mysql_type in _OF_MARIADB:
        return _OF_MARIADB[column.mysql_type]
    if column.type_code in (mysql.TIME, mysql.TIME2):
        return "00:00:00"
    if column.type_code == mysql.JSON:
        return "null"
    if column.type_code in _ZERO:
        return "0"
    return "" if column.type_code in _EMPTY else None
