"""Table schemas from CREATE TABLE text (`SHOW CREATE TABLE`, mysqldump --no-data), read by sqlglot.

Display widths and attributes stay in `mysql_type` as the text has them. USE and CREATE DATABASE say
which schema the tables behind them are in. A CREATE TABLE that cannot be read is a ConfigError that
names it; other statements are passed over.
"""

from __future__ import annotations

import re
from typing import Any

import sqlglot
from sqlglot.errors import SqlglotError

from ray_canal.binlog import types
from ray_canal.errors import ConfigError
from ray_canal.protocol.table_meta import ColumnMeta, TableMeta

_DEFAULT_CHARSET = "utf8mb4"

# Word in the type -> MySQL field type of the binlog.
_TYPE_CODES = {
    "tinyint": types.TINY, "bool": types.TINY, "boolean": types.TINY, "smallint": types.SHORT,
    "mediumint": types.INT24, "int": types.LONG, "integer": types.LONG, "bigint": types.LONGLONG,
    "float": types.FLOAT, "double": types.DOUBLE, "real": types.DOUBLE,
    "decimal": types.NEWDECIMAL, "numeric": types.NEWDECIMAL, "dec": types.NEWDECIMAL,
    "fixed": types.NEWDECIMAL, "bit": types.BIT, "year": types.YEAR, "date": types.DATE,
    "time": types.TIME2, "datetime": types.DATETIME2, "timestamp": types.TIMESTAMP2,
    "char": types.STRING, "varchar": types.VARCHAR, "binary": types.STRING,
    "varbinary": types.VARCHAR, "tinytext": types.BLOB, "text": types.BLOB,
    "mediumtext": types.BLOB, "longtext": types.BLOB, "tinyblob": types.BLOB, "blob": types.BLOB,
    "mediumblob": types.BLOB, "longblob": types.BLOB, "json": types.JSON, "enum": types.ENUM,
    "set": types.SET, "geometry": types.GEOMETRY, "point": types.GEOMETRY,
    "linestring": types.GEOMETRY, "polygon": types.GEOMETRY, "multipoint": types.GEOMETRY,
    "multilinestring": types.GEOMETRY, "multipolygon": types.GEOMETRY,
    "geometrycollection": types.GEOMETRY, "geomcollection": types.GEOMETRY,
    "vector": types.VECTOR, "uuid": types.STRING, "inet4": types.STRING, "inet6": types.STRING,
}  # fmt: skip
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"}
_SIZED = {"char", "varchar", "binary", "varbinary", "bit"}
_BYTES = {"uuid", "inet4", "inet6"}
_TYPE = re.compile(r"(?P<word>[a-z]+[46]?)(?:\((?P<arguments>.*)\))?(?P<rest>.*)\Z", re.DOTALL)
_TYPE_TEXT = re.compile(
    r"""\s*(double\s+precision|character\s+varying|national\s+\w+|[A-Za-z]+[0-9]?)
    (?:\s*(\((?:'(?:[^'\\]|''|\\.)*'|[^()'])*\)))?((?:\s+(?:unsigned|signed|zerofill)\b)*)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_SYNONYMS = {
    "double precision": "double", "character": "char", "character varying": "varchar",
    "nchar": "char", "nvarchar": "varchar", "national char": "char", "national varchar": "varchar",
    "bool": "tinyint(1)", "boolean": "tinyint(1)", "integer": "int", "numeric": "decimal",
    "dec": "decimal", "fixed": "decimal", "real": "double", "int1": "tinyint", "int2": "smallint",
    "int3": "mediumint", "int4": "int", "int8": "bigint",
}  # fmt: skip
"""Words of a hand-written CREATE TABLE that SHOW CREATE TABLE prints otherwise."""
_LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_CONDITIONAL = re.compile(r"/\*M?!\d*(.*?)\*/", re.DOTALL)
_DATABASE = re.compile(
    r"(?:USE|CREATE\s+(?:OR\s+REPLACE\s+)?(?:DATABASE|SCHEMA))\s+"
    r"(?:/\*M?!\d*\s*)?(?:IF\s+NOT\s+EXISTS\s*)?(?:\*/\s*)?(?:`((?:[^`]|``)+)`|([\w$]+))",
    re.IGNORECASE,
)
_QUOTED = {sqlglot.TokenType.IDENTIFIER, sqlglot.TokenType.STRING}
_KEY_WORDS = {
    "PRIMARY", "UNIQUE", "KEY", "INDEX", "CONSTRAINT", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK",
    "PERIOD",
}  # fmt: skip
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}


def column_meta(
    name: str,
    mysql_type: str,
    *,
    charset: str = "",
    nullable: bool = True,
    is_key: bool = False,
    visible: bool = True,
) -> ColumnMeta:
    """A column from its type text as information_schema.COLUMN_TYPE prints it.

    `charset` is the column's character set; for types without one it is ignored. Raises
    ConfigError: unknown type.
    """
    found = _TYPE.match(mysql_type.strip().lower())
    word = found["word"] if found else ""
    if found is None or word not in _TYPE_CODES:
        raise ConfigError(f"column {name!r} has a type that is not known: {mysql_type!r}")
    arguments = found["arguments"] or ""
    numbers = [int(n) for n in arguments.split(",")] if re.fullmatch(r"[\d, ]+", arguments) else []
    code = _TYPE_CODES[word]
    decimal = code == types.NEWDECIMAL
    fractional = code in (types.TIME2, types.DATETIME2, types.TIMESTAMP2)
    labels: tuple[str, ...] = ()
    if word in ("enum", "set"):
        labels = tuple(unquoted(label) for label in _LABEL.findall(mysql_type))
    return ColumnMeta(
        name=name,
        type_code=code,
        mysql_type=mysql_type.strip(),
        unsigned="unsigned" in found["rest"] or "zerofill" in found["rest"],
        nullable=nullable and not is_key,
        is_key=is_key,
        charset=_charset(word, charset),
        length=(numbers[0] if numbers else 1) if word in _SIZED else 0,
        precision=(numbers[0] if numbers else 10) if decimal else 0,
        scale=numbers[1] if decimal and len(numbers) > 1 else 0,
        fraction=numbers[0] if fractional and numbers else 0,
        labels=labels,
        visible=visible,
    )


def _charset(word: str, charset: str) -> str:
    if word in _TEXTS:
        return charset or _DEFAULT_CHARSET
    return "binary" if word.endswith(("binary", "blob")) or word in _BYTES else ""


def unquoted(text: str) -> str:
    """The inside of a MySQL string literal without its escapes."""
    text = text.replace("''", "'")
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text, flags=re.DOTALL)


def parse_tables(sql: str) -> list[TableMeta]:
    """Every CREATE TABLE of a text; `schema` is empty where neither the name nor a USE gives it.

    Raises ConfigError: a CREATE TABLE that cannot be read.
    """
    tables, schema = [], ""
    for statement in _statements(sql):
        head = statement.lstrip()[:40].upper()
        database = _DATABASE.match(statement)
        if database is not None:
            schema = database[1].replace("``", "`") if database[1] is not None else database[2]
        elif re.match(r"CREATE\s+(OR\s+REPLACE\s+)?(TEMPORARY\s+)?TABLE\b", head):
            tables.append(_table(statement, schema))
    return tables


def _statements(sql: str) -> list[str]:
    try:
        tokens = list(sqlglot.tokenize(sql, read="mysql"))
    except SqlglotError as error:
        raise ConfigError(f"the schema text cannot be read: {error}") from None
    found, start = [], 0
    for token in tokens:
        if token.text == ";" and token.token_type == sqlglot.TokenType.SEMICOLON:
            found.append(sql[start : token.start])
            start = token.end + 1
    found.append(sql[start:])
    return [s for s in (_without_comments(part) for part in found) if s]


def _without_comments(text: str) -> str:
    text = re.sub(r"\A(\s*(--[^\n]*\n|#[^\n]*\n|/\*(?!!|M!).*?\*/))*", "", text, flags=re.DOTALL)
    return text.strip()


def _table(statement: str, schema: str) -> TableMeta:
    text = _CONDITIONAL.sub(r" \1 ", statement)
    tokens = list(sqlglot.tokenize("x " + text, read="mysql"))[1:]
    if not tokens or not any(token.text == "(" for token in tokens):
        raise ConfigError(f"not a CREATE TABLE with columns: {statement[:200]!r}")
    first = next(i for i, token in enumerate(tokens) if token.text == "(")
    name = [t.text for t in tokens[:first] if t.text != "."][-1]
    qualified = first >= 3 and tokens[first - 2].text == "."
    items, last = _items(tokens, first)
    if last is None:
        raise ConfigError(f"CREATE TABLE has no closing parenthesis: {statement[:200]!r}")
    source = "x " + text
    default = _charset_in(source[tokens[last].end + 1 :]) or _DEFAULT_CHARSET
    keys = {key for item in items if not _is_column(item) for key in _primary_key(item)}
    columns = tuple(_column(source, item, default, keys) for item in items if _is_column(item))
    return TableMeta(tokens[first - 3].text if qualified else schema, name, columns)


def _items(tokens: list[Any], first: int) -> tuple[list[list[Any]], int | None]:
    """The token runs between the commas of the parenthesis that opens at `first`, and where it
    closes."""
    items: list[list[Any]] = [[]]
    depth = 0
    for index in range(first, len(tokens)):
        text = tokens[index].text
        quoted = tokens[index].token_type in _QUOTED
        if text == "(" and not quoted:
            depth += 1
            if depth == 1:
                continue
        elif text == ")" and not quoted:
            depth -= 1
            if depth == 0:
                return [item for item in items if item], index
        elif text == "," and depth == 1 and not quoted:
            items.append([])
            continue
        items[-1].append(tokens[index])
    return items, None


def _is_column(item: list[Any]) -> bool:
    return item[0].token_type == sqlglot.TokenType.IDENTIFIER or (
        item[0].text.upper().split()[0] not in _KEY_WORDS  # "PRIMARY KEY" is one token
    )


def _primary_key(item: list[Any]) -> list[str]:
    words = [token.text.upper() for token in item]
    if not any(word.startswith("PRIMARY") for word in words):
        return []
    opened = words.index("(")
    depth, names, expects = 0, [], True
    for token in item[opened:]:
        if token.text == "(":
            depth += 1
        elif token.text == ")":
            depth -= 1
        elif token.text == ",":
            expects = True
        elif depth == 1 and expects:
            names.append(token.text.lower())
            expects = False
    return names


def _column(source: str, item: list[Any], default_charset: str, keys: set[str]) -> ColumnMeta:
    name = item[0].text
    mysql_type, options = _type_text(source[item[0].end + 1 : item[-1].end + 1])
    words = _options(item)
    if mysql_type == "serial":
        mysql_type, words = "bigint unsigned", [*words, "NOT", "NULL"]
    return column_meta(
        name,
        mysql_type,
        # A character set follows the type at once; further on it belongs to an expression.
        charset=_charset_in(options.partition("(")[0]) or default_charset,
        nullable=" NOT NULL " not in f" {' '.join(words)} ",
        is_key=name.lower() in keys or " PRIMARY KEY " in f" {' '.join(words)} ",
        visible="INVISIBLE" not in words,
    )


def _options(item: list[Any]) -> list[str]:
    """The words of a definition behind its name, without texts and what is in parentheses."""
    words: list[str] = []
    depth = 0
    for token in item[1:]:
        if token.token_type in _QUOTED:
            continue
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            words.extend(token.text.upper().split())
    return words


def _charset_in(text: str) -> str:
    """The character set that a column's or a table's options name, or that their collation
    implies."""
    text = _LABEL.sub("''", text)
    found = re.search(r"\b(?:CHARSET|CHARACTER\s+SET)\s*=?\s*(\w+)", text, re.IGNORECASE)
    if found:
        return found[1].lower()
    found = re.search(r"\bCOLLATE\s*=?\s*(\w+)", text, re.IGNORECASE)
    return found[1].lower().split("_")[0] if found else ""


def _type_text(definition: str) -> tuple[str, str]:
    """(`int(10) unsigned`, `varchar(50)`, `enum('a','b')` …, what follows) at a definition's
    start."""
    found = _TYPE_TEXT.match(definition)
    if found is None:
        raise ConfigError(f"no column type in {definition[:80]!r}")
    word = _SYNONYMS.get(re.sub(r"\s+", " ", found[1].lower()), found[1].lower())
    text = word + (found[2] or "") + re.sub(r"\s+", " ", found[3].lower())
    return text, definition[found.end() :]
