"""Apply DDL to known tables and databases.

One statement in, the tables that it leaves changed out; nothing is changed half. What cannot be
applied makes its tables `unknown`, with the reason, so that nobody decodes rows with a guess.
Statements that concern no table (views, procedures, users, temporary tables) change nothing. Names
are compared as their server compares them (names.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from ray_canal.model.table_meta import is_sequence
from ray_canal.schema.ddl.alter_table import Alteration, read_alter
from ray_canal.schema.ddl.altered import altered
from ray_canal.schema.ddl.column_definition import read_charset
from ray_canal.schema.ddl.create_table import read_create
from ray_canal.schema.ddl.keys import read_parts, taken_over, with_hashes
from ray_canal.schema.ddl.vocabulary import skip_alter_options
from ray_canal.schema.ddl.words import Words, statement
from ray_canal.schema.names import Name, Names
from ray_canal.schema.table_state import DdlNotApplied, StatementSession, TableState, unknown

_VERBS = ("CREATE", "ALTER", "DROP", "RENAME")


_WHOSE_LETTERS = (
    "a statement named it `{}`: whether that is the same table depends on the server's "
    "lower_case_table_names; say which it has (source.lower_case_table_names, decode "
    "--lower-case-table-names)"
)


_MAYBE_OLD = (
    "its CREATE TABLE says IF NOT EXISTS, and the table may have been there before, with other "
    "columns"
)


class StateBefore(Protocol):
    """State just before a statement, as far as the statement may need it."""

    @property
    def names(self) -> Names: ...

    def table(self, name: Name) -> TableState | None: ...

    def tables_of(self, schema: str) -> list[Name]:
        """Return the tables of a database, as they were before the statement."""
        ...

    def would_know(self, name: Name) -> bool:
        """Return whether a table of this name would be known if there was one."""
        ...

    def charset_of(self, schema: str) -> str:
        """Return the default character set of a database; empty: not known."""
        ...

    def alike(self, name: Name) -> list[Name]:
        """Tables whose names differ from this one in the case of letters alone."""
        ...

    def schemas_alike(self, schema: str) -> list[str]:
        """Databases whose names differ from this one in the case of letters alone."""
        ...


class Effects:
    """Changes by a statement: tables (None: gone) and databases' default character sets."""

    def __init__(self, known: StateBefore) -> None:
        self._known = known
        self._names = known.names
        self._missing: set[Name] = set()
        self._missing_schemas: set[str] = set()
        self.tables: dict[Name, TableState | None] = {}
        self.charsets: dict[str, str] = {}
        self.whole: set[str] = set()
        """Databases of which every table is known from here on."""
        self.made_new = False
        """A statement with IF NOT EXISTS is known to have made its table."""

    def table(self, name: Name) -> TableState | None:
        name = self._names.pair(name)
        return self.tables[name] if name in self.tables else self._known.table(name)

    def is_temporary(self, name: Name, session: StatementSession) -> bool:
        """Tell if a name means a temporary table of the session."""
        return bool(session.temporary) and self._names.pair(name) in session.temporary

    def existing(self, name: Name) -> TableState | None:
        """A table that the statement takes for existing."""
        state = self.table(name)
        if state is None and self._names.setting is None:
            self._missing.add(name)
        return state

    def put(self, name: Name, state: TableState | None) -> None:
        name = self._names.pair(name)
        self.tables[name] = None if state is None else state.renamed(*name)

    def move(self, old: Name, new: Name) -> None:
        state = self.existing(old)
        self.put(old, None)
        self.put(new, state or unknown(*new, f"{old[0]}.{old[1]} was not known when renamed"))

    def drop_schema(self, schema: str) -> None:
        """Drop a database with its tables."""
        schema = self._names.one(schema)
        tables = self._known.tables_of(schema)
        for name in tables:
            self.put(name, None)
        if not tables:
            self._missing_schemas.add(schema)
        self.charsets[schema] = ""
        self.whole.add(schema)

    def charset_of(self, schema: str) -> str:
        """Return the default character set of a database after what was applied so far; empty: not
        known."""
        schema = self._names.one(schema)
        return self.charsets.get(schema) or self._known.charset_of(schema)

    def set_charset(self, schema: str, charset: str, *, is_new: bool) -> None:
        """Set the default character set of a database. `is_new`: the statement makes it."""
        schema = self._names.one(schema)
        if not is_new and not self._known.charset_of(schema):
            self._missing_schemas.add(schema)
        self.charsets[schema] = charset

    def made_schema(self, schema: str) -> None:
        """Note a database that the statement made, empty."""
        self.whole.add(self._names.one(schema))

    def would_know(self, name: Name) -> bool:
        return self._known.would_know(self._names.pair(name))

    def doubt(self) -> None:
        """Mark tables as unknown that the statement may also mean, if it is unknown how the server
        compares names."""
        if self._names.setting is not None:
            return
        for schema in self._missing_schemas:
            for alike in self._known.schemas_alike(schema):
                self.charsets.setdefault(alike, "")
                if self.charsets.get(schema) == "":  # it was dropped
                    tables = self._known.tables_of(alike)
                    self._missing.update((schema, table) for _, table in tables)
        for name in self._missing:
            for other in self._known.alike(name):
                problem = _WHOSE_LETTERS.format(".".join(name))
                self.tables.setdefault(other, unknown(*other, problem))


def apply_ddl(sql: str, session: StatementSession, known: StateBefore) -> Effects:
    """Return a statement's changes of tables. Never raises for a statement that it cannot read."""
    effects = Effects(known)
    words = statement(sql, session.dialect)
    verb = words.peek()
    if verb in _VERBS:
        _APPLY[verb](words, session, effects)
        effects.doubt()
    return effects


def is_ddl(sql: str) -> bool:
    """Tell if a statement may change a table or a database, by its first word."""
    return statement(sql).peek() in _VERBS


def created_table(sql: str, session: StatementSession) -> tuple[Name, bool] | None:
    """Return the table that a CREATE TABLE makes, and if it says IF NOT EXISTS; None: the statement
    is none, or the table is temporary."""
    words = statement(sql, session.dialect)
    return _create_name(words, session) if words.peek() == "CREATE" else None


def altered_table(sql: str, session: StatementSession) -> Alteration | None:
    """Return what an ALTER TABLE says; None: the statement is none, or cannot be read."""
    words = statement(sql, session.dialect)
    if not words.take("ALTER"):
        return None
    skip_alter_options(words)
    if not words.take("TABLE"):
        return None
    try:
        return read_alter(words, session)
    except DdlNotApplied:
        return None


def _create(words: Words, session: StatementSession, effects: Effects) -> None:
    ahead = 3 if words.peek(1) == "OR" else 1
    if words.peek(ahead) in ("DATABASE", "SCHEMA"):
        _database(words, session, effects, created=True)
        return
    rest = words.rest()
    made = _create_name(Words(rest), session)
    if made is None:
        _create_index(Words(rest), session, effects)
        return
    name, _ = made
    try:
        create = read_create(Words(rest), session)
    except DdlNotApplied as error:
        effects.put(name, unknown(*name, f"its CREATE TABLE could not be applied: {error}"))
        return
    if create is None or create.temporary:
        return
    if session.error_code:
        if create.or_replace:  # MariaDB: the old table is gone, the new one was not made
            effects.put(name, None)
        return
    if create.if_not_exists and effects.existing(name) is not None:
        return
    if create.if_not_exists:
        if not (session.is_done or effects.would_know(name)):
            effects.put(name, unknown(*name, _MAYBE_OLD))
            return
        effects.made_new = True
    if create.or_replace:
        effects.existing(name)
    if create.like is None:
        effects.put(name, create.state(effects.charset_of(create.schema)))
        return
    other = ".".join(create.like)
    if effects.is_temporary(create.like, session):
        effects.put(name, unknown(*name, f"made LIKE {other}, which was a temporary table"))
        return
    like = effects.table(create.like)
    if like is not None:
        like = with_hashes(replace(like, keys=taken_over(like)))
    effects.put(name, like or unknown(*name, f"made LIKE {other}, which was not known"))


def _create_name(words: Words, session: StatementSession) -> tuple[Name, bool] | None:
    """The table of a CREATE TABLE that is not temporary, and if it says IF NOT EXISTS."""
    words.skip()
    words.take("OR", "REPLACE")
    if not words.take_any("TABLE", "SEQUENCE"):
        return None
    maybe = words.take("IF", "NOT", "EXISTS")
    return words.name(session.schema), maybe


def _create_index(words: Words, session: StatementSession, effects: Effects) -> None:
    """Note a new key, for the column that a unique key of MariaDB may hide."""
    words.skip()
    replaces = words.take("OR", "REPLACE")
    kind = words.take_any("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR")
    if session.dialect.mariadb is False or session.error_code or not words.take("INDEX"):
        return
    maybe = words.take("IF", "NOT", "EXISTS")
    index, using = words.identifier(), []
    while not words.done and not words.take("ON"):
        using.append(words.token())
        words.skip()
    name = words.name(session.schema)
    if effects.is_temporary(name, session):
        return
    state = effects.existing(name)
    if state is None or state.problem:
        if state and kind == "UNIQUE":
            effects.put(name, state)
        return
    old = [key for key in taken_over(state) if not replaces or key.name.lower() != index.lower()]
    if maybe and any(key.name.lower() == index.lower() for key in old):
        return
    key = read_parts(Words([*using, *words.rest()]), index, kind == "UNIQUE")
    effects.put(name, with_hashes(replace(state, keys=(*old, key))))


def _alter(words: Words, session: StatementSession, effects: Effects) -> None:
    words.skip()
    if words.peek() in ("DATABASE", "SCHEMA"):
        _database(words, session, effects, created=False)
        return
    skip_alter_options(words)
    if not words.take("TABLE"):
        return
    rest = words.rest()
    head = Words(rest)
    head.take("IF", "EXISTS")
    name = head.name(session.schema)
    if effects.is_temporary(name, session):
        return
    state = effects.existing(name)
    try:
        if session.error_code:
            raise DdlNotApplied(f"it failed with error {session.error_code}")
        change = read_alter(Words(rest), session)
        if state is None or state.problem:
            _alter_unknown(name, state, change, effects)
            return
        state = altered(state, change, effects.charset_of(name[0]))
    except DdlNotApplied as error:
        effects.put(name, unknown(*name, f"an ALTER TABLE could not be applied: {error}"))
        return
    effects.put(name, state)
    _move_after(name, change, effects)


def _alter_unknown(
    name: Name, state: TableState | None, change: Alteration, effects: Effects
) -> None:
    """A table that is not known stays so, under its new name."""
    unique = [key for key in change.new_keys if key.unique]
    if replace(change, new_keys=unique, names_only=True) == Alteration(change.table):
        return  # it is about indexes, partitions, options: no column
    if state is not None or change.new_name is not None:
        effects.put(name, state or unknown(*name, "it was altered before its columns were known"))
        _move_after(name, change, effects)


def _move_after(name: Name, change: Alteration, effects: Effects) -> None:
    if change.made_from_partition is not None:
        effects.put(change.made_from_partition, effects.table(name))
    if change.became_partition is not None:
        effects.put(change.became_partition, None)
    if change.new_name is not None and change.new_name != name:
        effects.move(name, change.new_name)


def _drop(words: Words, session: StatementSession, effects: Effects) -> None:
    words.skip()
    if words.take_any("DATABASE", "SCHEMA"):
        words.take("IF", "EXISTS")
        schema = words.identifier()
        effects.drop_schema(schema)
        return
    if words.peek() == "INDEX":
        _drop_index(words, session, effects)
        return
    kind = words.take_any("TABLE", "TABLES", "SEQUENCE")
    if not kind:
        return  # a temporary table, a view, an index of another kind …
    words.take("IF", "EXISTS")
    while True:
        name = words.name(session.schema)
        if not effects.is_temporary(name, session):
            _drop_table(name, kind, effects)
        if not words.take(","):
            return


def _drop_table(name: Name, kind: str, effects: Effects) -> None:
    state = effects.existing(name)
    if kind != "SEQUENCE" or state is None or state.problem or is_sequence(state.columns):
        effects.put(name, None)


def _drop_index(words: Words, session: StatementSession, effects: Effects) -> None:
    words.skip()
    words.take("IF", "EXISTS")
    index = words.identifier().lower()
    if not words.take("ON"):
        return
    name = words.name(session.schema)
    state = None if effects.is_temporary(name, session) else effects.existing(name)
    if state is None:
        return
    if index == "primary":
        columns = [replace(column, is_key=False) for column in state.columns]
        state = state.with_columns(columns)
    elif not state.keys and not (state.problem and session.dialect.mariadb):
        return
    keys = tuple(key for key in taken_over(state) if key.name.lower() != index)
    effects.put(name, with_hashes(replace(state, keys=keys)))


def _rename(words: Words, session: StatementSession, effects: Effects) -> None:
    words.skip()
    if not words.take_any("TABLE", "TABLES"):
        return
    maybe = words.take("IF", "EXISTS")
    while not words.done:
        old = words.name(session.schema)
        while not words.done and not words.take("TO"):
            words.skip()  # MariaDB: WAIT n | NOWAIT
        new = words.name(session.schema)
        if effects.is_temporary(old, session):
            pass
        elif not maybe or effects.existing(old) is not None:
            effects.move(old, new)
        if not words.take(","):
            return


def _database(words: Words, session: StatementSession, effects: Effects, created: bool) -> None:
    while not words.take_any("DATABASE", "SCHEMA"):
        words.skip()
    exists = words.take("IF", "NOT", "EXISTS")
    named = "" if words.peek() == "DEFAULT" else read_charset(words)
    schema = session.schema if named or words.peek() == "DEFAULT" else words.identifier()
    if created and not session.error_code and (session.is_done or not exists):
        effects.made_schema(schema)
    if created and exists and effects.charset_of(schema):
        return
    while not words.done:
        found = read_charset(words)
        if found:
            named = named if found == "DEFAULT" and named else found
        else:
            words.skip()
    if named == "DEFAULT" or (created and not named):
        named = session.server_charset
    if named:
        effects.set_charset(schema, named, is_new=created and not exists)


_APPLY: dict[str, Callable[[Words, StatementSession, Effects], None]] = {
    "CREATE": _create, "ALTER": _alter, "DROP": _drop, "RENAME": _rename,
}  # fmt: skip
