"""Read one column's definition in CREATE TABLE and ALTER TABLE: name, type, attributes, place.

Attributes that say nothing about a column's values (comments, checks, storage) are stepped over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ray_canal.errors import ConfigError
from ray_canal.model.table_meta import ColumnMeta
from ray_canal.schema.ddl.column_type import DeclaredType, column_of, read_type
from ray_canal.schema.ddl.default_value import Constant, read_constant
from ray_canal.schema.ddl.words import Dialect, Words
from ray_canal.schema.table_state import DdlNotApplied
from ray_canal.types.charsets import canonical

_SHORT_CHARSETS = {"ASCII": "latin1", "UNICODE": "ucs2", "BYTE": "binary"}
_NO_CHARSET = ("default", "uca1400")


@dataclass(slots=True)
class Definition:
    """A definition as read. `charset` is empty where the column takes its table's. `default`: a
    constant; `is_computed`: the server alone knows what rows have that are there already."""

    name: str
    type: DeclaredType
    charset: str = ""
    nullable: bool = True
    is_key: bool = False
    visible: bool = True
    unique: bool = False
    period: bool = False  # MariaDB: GENERATED ALWAYS AS ROW START | END
    row_end: bool = False
    versioned: bool = False  # MariaDB: WITH SYSTEM VERSIONING, which the table has then
    first: bool = False
    after: str = ""
    default: Constant | None = None
    is_computed: bool = False
    is_generated: bool = False

    def column(self, default_charset: str) -> ColumnMeta:
        """Return the column; `default_charset` is the table's."""
        charset = self.charset or ("utf8mb3" if self.type.national else default_charset)
        return column_of(
            self.name,
            self.type,
            charset=charset,
            nullable=self.nullable,
            is_key=self.is_key,
            visible=self.visible,
            is_generated=self.is_generated,
        )


def read_definition(words: Words, dialect: Dialect | None = None) -> Definition:
    """The definition that comes next, up to the end. Raises DdlNotApplied."""
    name = words.column()
    if not name:
        raise DdlNotApplied(f"a column's name is expected at {words.peek()!r}")
    try:
        mode, mariadb = (dialect.sql_mode, dialect.mariadb) if dialect else (0, None)
        declared = read_type(words, mode, mariadb)
    except ConfigError as error:
        raise DdlNotApplied(f"column {name!r} has a {error}") from None
    found = Definition(name, declared)
    if declared.word == "json" and dialect is not None and dialect.mariadb:
        found.type = replace(declared, word="longtext")
        found.charset = "utf8mb4"
    if declared.text == "serial":
        found.nullable = False
        found.is_computed = True
        found.unique = True
    while not words.done and words.peek() != "PARTITION":  # of the table, without a comma before it
        _attribute(words, found, dialect)
    return found


def _attribute(words: Words, found: Definition, dialect: Dialect | None) -> None:
    charset = read_charset(words)
    if charset:
        if charset != "DEFAULT":
            found.charset = charset
        return
    word = words.peek()
    if word == "(":
        skip_parenthesis(words)
        return
    words.skip()
    if word == "NOT":
        found.nullable = not words.take("NULL") and found.nullable
    elif word == "DEFAULT":
        found.default = read_constant(words, dialect)
        found.is_computed |= found.default is None and words.peek() != "NULL"
    elif word in ("AUTO_INCREMENT", "SERIAL"):
        found.nullable = False
        found.is_computed = True
        found.unique |= word == "SERIAL"
    elif word in ("PRIMARY", "KEY"):
        words.take("KEY")
        found.is_key = True
    elif word == "UNIQUE":
        words.take("KEY")
        found.unique = True
    elif word == "INVISIBLE":
        found.visible = False
    elif word in _SHORT_CHARSETS:
        found.charset = _SHORT_CHARSETS[word]
    elif word == "COMMENT":
        words.skip()
    elif word == "CONSTRAINT" and words.peek() != "CHECK":
        words.identifier()
    elif word == "REFERENCES":
        words.name("")
    elif word == "AS":
        found.is_computed = True
        if words.take("ROW"):
            found.period = True
            found.nullable = False
            found.row_end = words.peek() == "END"
            words.skip()
        else:
            found.is_generated = bool(dialect and dialect.mariadb)
    elif word == "WITH":
        found.versioned |= words.take("SYSTEM", "VERSIONING")
    elif word == "FIRST":
        found.first = True
    elif word == "AFTER":
        found.after = words.identifier()


def skip_parenthesis(words: Words) -> None:
    """Step over a parenthesis and all that is in it."""
    depth = 0
    while not words.done:
        token = words.token()
        if token.kind == "other":
            depth += (token.text == "(") - (token.text == ")")
        words.skip()
        if depth == 0:
            return


def read_charset(words: Words) -> str:
    """The character set of a CHARACTER SET or COLLATE clause, if one comes next; else empty.

    `DEFAULT` where the clause asks for the default (or a MariaDB collation of any character set).
    """
    ahead = 1 if words.peek() == "DEFAULT" else 0
    first, second = words.peek(ahead), words.peek(ahead + 1)
    is_charset = first == "CHARSET" or (first in ("CHARACTER", "CHAR") and second == "SET")
    if not is_charset and first != "COLLATE":
        return ""
    for _ in range(ahead + (1 if first in ("CHARSET", "COLLATE") else 2)):
        words.skip()
    words.take("=")
    name = words.identifier().lower()
    if not is_charset:
        name = name.partition("_")[0]
    elif words.peek() == "COLLATE":
        read_charset(words)  # it is one of this character set
    return "DEFAULT" if name in _NO_CHARSET else canonical(name)
