"""Read CREATE TABLE: statements in the log, `SHOW CREATE TABLE`, mysqldump --no-data.

The grammar is read here, not by sqlglot: of the golden files' table DDL its MySQL parser (version
30) turns one statement in five into an opaque command or refuses it (CONVERT TO, RENAME TABLE,
partitions, SRID, COMPRESSED, SYSTEM VERSIONING), it drops conditional comments, and it rewrites
types, whose declared text entries must show. A reader of all of it was needed; so there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ray_canal.errors import ConfigError
from ray_canal.model.schema_record import KeyState
from ray_canal.model.table_meta import SEQUENCE_COLUMNS, ColumnMeta, TableMeta
from ray_canal.schema.ddl.column_definition import Definition, read_charset, read_definition
from ray_canal.schema.ddl.column_type import DEFAULT_CHARSET, column_meta
from ray_canal.schema.ddl.keys import named, read_key, with_hashes
from ray_canal.schema.ddl.words import Dialect, Token, Words, parts, tokens
from ray_canal.schema.table_state import DdlNotApplied, StatementSession, TableState

__all__ = ["Create", "column_meta", "parse_tables", "read_create"]

_KEYS = {
    "PRIMARY", "UNIQUE", "KEY", "INDEX", "CONSTRAINT", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK",
}  # fmt: skip
_HIDDEN_PERIOD = ("row_start", "row_end")
_SEQUENCE_TYPES = (
    *("bigint(21)",) * 5, "bigint(21) unsigned", "tinyint(1) unsigned", "bigint(21)"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Create:
    """A CREATE TABLE as read: either `like` another table, or with its own columns."""

    schema: str
    table: str
    or_replace: bool = False
    if_not_exists: bool = False
    temporary: bool = False
    like: tuple[str, str] | None = None
    definitions: tuple[Definition, ...] = ()
    keys: frozenset[str] = frozenset()  # columns of the primary key
    others: tuple[KeyState, ...] = ()
    engine: str = ""
    charset: str = ""  # empty: its database's
    versioned: bool = False
    sequence: bool = False

    def state(self, database_charset: str) -> TableState:
        """The table. `database_charset` (empty: not known) counts where the statement names no
        character set."""
        charset = self.charset if self.charset not in ("", "DEFAULT") else database_charset
        columns = [d.column(charset) for d in self.definitions]
        columns = [
            replace(c, is_key=True, nullable=False) if c.name.lower() in self.keys else c
            for c in columns
        ]
        hidden = self.versioned and not any(d.period for d in self.definitions)
        if hidden:
            columns.extend(period_columns())
        row_end = next((d.name for d in self.definitions if d.row_end), "")
        meta = TableMeta(self.schema, self.table, tuple(columns))
        state = TableState(
            meta, charset, hidden, row_end=row_end, keys=self.others, engine=self.engine
        )
        return with_hashes(with_row_end_key(state))


def period_columns() -> list[ColumnMeta]:
    """Return the columns that MariaDB's WITH SYSTEM VERSIONING adds after those of a table."""
    return [
        column_meta(name, "timestamp(6)", nullable=False, visible=False) for name in _HIDDEN_PERIOD
    ]


def with_row_end_key(state: TableState) -> TableState:
    """The table with ROW END in its primary key, if it has one: MariaDB puts it there."""
    name = (state.row_end or _HIDDEN_PERIOD[1] * state.hidden_period).lower()
    if not name:
        return state
    is_key = any(c.is_key and c.name.lower() != name for c in state.columns)
    columns = [
        replace(c, is_key=is_key) if c.name.lower() == name else c for c in state.columns
    ]
    return state.with_columns(columns)


def read_create(words: Words, session: StatementSession) -> Create | None:
    """A CREATE TABLE or CREATE SEQUENCE; None: another statement. Raises DdlNotApplied."""
    if not words.take("CREATE"):
        return None
    or_replace = words.take("OR", "REPLACE")
    temporary = words.take("TEMPORARY")
    kind = words.take_any("TABLE", "SEQUENCE")
    if not kind:
        return None
    if_not_exists = words.take("IF", "NOT", "EXISTS")
    schema, table = words.name(session.schema)
    head = Create(schema, table, or_replace, if_not_exists, temporary)
    head = replace(head, sequence=kind == "SEQUENCE")
    if head.sequence:
        return replace(head, definitions=tuple(_sequence(words)))
    if words.take("LIKE") or words.take("(", "LIKE"):
        return replace(head, like=words.name(session.schema))
    if words.peek() != "(" or words.peek(1) in ("SELECT", "WITH", "("):
        raise DdlNotApplied("it has no list of columns")
    inside, behind = split_body(words.rest())
    return _with_options(_with_columns(head, inside, session), behind)


def _sequence(words: Words) -> Iterator[Definition]:
    kind = ""
    if words.take("AS"):
        kind = words.identifier().lower() + " unsigned" * words.take("UNSIGNED")
    columns = zip(SEQUENCE_COLUMNS, _SEQUENCE_TYPES, strict=True)
    for number, (name, mysql_type) in enumerate(columns):
        text = f"`{name}` {kind if kind and number < 5 else mysql_type} NOT NULL"
        yield read_definition(Words(text))


def split_body(found: list[Token]) -> tuple[list[Token], list[Token]]:
    """Return the inside of the parenthesis at the start, and the rest after it."""
    depth = 0
    for at, token in enumerate(found):
        if token.kind == "other":
            depth += (token.text == "(") - (token.text == ")")
            if depth == 0:
                return found[1:at], found[at + 1 :]
    raise DdlNotApplied("it has no closing parenthesis")


def _with_columns(head: Create, inside: list[Token], session: StatementSession) -> Create:
    definitions, keys = [], set()
    periods: dict[str, set[str]] = {}
    others: list[KeyState] = []
    versioned = False
    for part in parts(inside):
        if is_key_part(part):
            keys |= primary_key(part)
            periods |= period(part)
            others += key_of(part, session.dialect)
            continue
        definition = read_definition(Words(part), session.dialect)
        definitions.append(definition)
        others += key_of_column(definition, session.dialect)
        versioned |= definition.period or definition.versioned
    if not definitions:
        raise DdlNotApplied("it has no columns")
    return replace(
        head,
        definitions=tuple(definitions),
        keys=with_periods(keys, periods),
        others=named((), others),
        versioned=versioned,
    )


def key_of(part: list[Token], dialect: Dialect) -> list[KeyState]:
    """The key of a part that is no primary key, if what it hides matters: none of MySQL's do. Of
    a text without a server USING HASH is not taken at its word, as MySQL passes over it."""
    key = None if dialect.mariadb is False else read_key(part)
    if key is not None and dialect.mariadb is None:
        key = replace(key, algorithm="")
    return [] if key is None else [key]


def key_of_column(definition: Definition, dialect: Dialect) -> list[KeyState]:
    """Do as `key_of` for a column's definition."""
    if not definition.unique or dialect.mariadb is False:
        return []
    return [KeyState("", (definition.name,), (0,), True)]


def _with_options(create: Create, behind: list[Token]) -> Create:
    """The table options that matter. Raises DdlNotApplied: the rest of the columns come from a
    query."""
    words = Words(behind)
    charset, engine, versioned, depth = "", "", create.versioned, 0
    while not words.done:
        depth += (words.peek() == "(") - (words.peek() == ")")
        if depth:
            words.skip()
            if depth == 1 and words.peek() in ("SELECT", "WITH"):
                raise DdlNotApplied("its columns come from a query")
            continue
        named = read_charset(words)
        if named:
            charset = charset if named == "DEFAULT" and charset else named
            continue
        word = words.peek()
        words.skip()
        if word in ("COMMENT", "CONNECTION", "PASSWORD"):
            words.take("=")
            words.skip()
        elif word == "ENGINE":
            words.take("=")
            engine = words.identifier().upper()
        versioned |= word == "WITH" and words.take("SYSTEM", "VERSIONING")
        if word in ("SELECT", "VALUES", "TABLE") or (word == "AS" and words.peek() == "("):
            raise DdlNotApplied("its columns come from a query")
    return replace(create, charset=charset, engine=engine, versioned=versioned)


def is_key_part(part: list[Token]) -> bool:
    """Tell if one part of a table's definition is a key, a constraint or a period."""
    words = Words(part)
    first = words.peek()
    if first == "PERIOD":
        return words.peek(1) == "FOR"
    if first == "VECTOR":
        return words.peek(1) in ("INDEX", "KEY", "(")
    return first in _KEYS


def primary_key(part: list[Token]) -> set[str]:
    """The columns, in lower case, of a part that is a primary key; none for other keys."""
    words = Words(part)
    if words.take("CONSTRAINT") and words.peek() != "PRIMARY":
        words.identifier()
    if not words.take("PRIMARY", "KEY"):
        return set()
    while not words.done and not words.take("("):
        words.skip()
    inside, _ = split_body([Token("other", "("), *words.rest()])
    return {Words(item).identifier().lower() for item in parts(inside)}


def period(part: list[Token]) -> dict[str, set[str]]:
    """Columns of a part that is a PERIOD FOR name (start, end), by its name; all in lower case."""
    words = Words(part)
    if not words.take("PERIOD", "FOR"):
        return {}
    name = words.identifier().lower()
    inside, _ = split_body(words.rest())
    return {name: {Words(item).identifier().lower() for item in parts(inside)}}


def with_periods(keys: set[str], periods: dict[str, set[str]]) -> frozenset[str]:
    """A primary key's columns, of a period that is part of it (WITHOUT OVERLAPS) its columns."""
    return frozenset(name for key in keys for name in periods.get(key, {key}))


# --- texts of many statements -----------------------------------------------------------------

_DATABASE_WORDS = ("DATABASE", "SCHEMA")


def parse_tables(sql: str) -> list[TableMeta]:
    """Every CREATE TABLE of a text; `schema` is empty where neither the name nor a USE gives it.

    Other statements are passed over. Raises ConfigError: a CREATE TABLE that cannot be read.
    """
    found, session = [], StatementSession()
    for statement in parts(list(tokens(sql)), ";"):
        words = Words(statement)
        if words.take("USE"):
            session = replace(session, schema=words.identifier())
        elif words.peek() == "CREATE" and _is_database(words):
            session = replace(session, schema=_database(words))
        else:
            try:
                create = read_create(words, session)
                if create is not None and create.like is None:
                    found.append(create.state(DEFAULT_CHARSET).meta)
            except DdlNotApplied as error:
                shown = " ".join(token.raw for token in statement[:60])
                raise ConfigError(f"{error}: {shown[:200]!r}") from None
    return found


def _is_database(words: Words) -> bool:
    return words.peek(3 if words.peek(1) == "OR" else 1) in _DATABASE_WORDS


def _database(words: Words) -> str:
    while not words.take_any(*_DATABASE_WORDS):
        words.skip()
    words.take("IF", "NOT", "EXISTS")
    return words.identifier()
