"""Note what statements do to rows without a row event: TRUNCATE, DROP, RENAME, statement-format
DML.

Read as words, with the eyes of the server that ran the statement. Reading never fails; what it
cannot tell apart counts as a statement that may have changed rows of any table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from ray_canal.binlog.parsed import QueryEvent, QueryRecord
from ray_canal.model.table_event import ERASE, RENAME, STATEMENT, TRUNCATE, TableEffect
from ray_canal.model.table_meta import TableMeta, is_sequence
from ray_canal.schema.ddl.vocabulary import (
    CALLING_VERBS,
    NOT_A_TABLE,
    loaded_table,
    skip_alter_options,
    skip_modifiers,
)
from ray_canal.schema.ddl.words import Words, statement
from ray_canal.schema.names import Name, Names
from ray_canal.schema.table_state import StatementSession

_DML = ("INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD")
_MOVES_ROWS = ("DROP", "TRUNCATE", "EXCHANGE", "DISCARD", "IMPORT", "CONVERT")
"""Before PARTITION or TABLESPACE, in ALTER TABLE."""


class TablesBefore(Protocol):
    """Tables just before a statement."""

    def tables_of(self, schema: str) -> Sequence[Name]:
        """Return the tables of a database."""
        ...

    def exists(self, name: Name) -> bool | None:
        """Return whether there is a table of a name; None: not known."""
        ...

    def meta(self, name: Name) -> TableMeta | None:
        """Return a table's columns; None: they are not known."""
        ...


def row_effects(
    event: QueryEvent, session: StatementSession, before: TablesBefore, names: Names
) -> list[TableEffect]:
    """Return what a statement does to rows; changes of temporary tables are left out."""
    if event.is_annotation:
        return []
    words = statement(event.sql, session.dialect)
    verb = words.peek()
    found: list[TableEffect] = []
    if verb == "TRUNCATE":
        words.skip()
        words.take("TABLE")
        found = [TableEffect(TRUNCATE, *words.name(event.schema))]
    elif verb == "DROP":
        found = _drop(words, event, before)
    elif verb == "RENAME":
        found = of_rename(words, event.schema, names, before.exists)
    elif verb == "ALTER" and not session.error_code:
        found = of_alter(words, event.schema, names)
    elif verb == "CREATE":
        found = _create(words, event, session)
    elif verb in _DML:
        found = [_changed(words, verb, event.schema)]
    elif verb in CALLING_VERBS:
        found = [TableEffect(STATEMENT, "", "")]
    if session.temporary:
        found = [each for each in found if names.pair(_changes(each)) not in session.temporary]
    return [effect._replace(ordinal=n) for n, effect in enumerate(found)]


def _changes(effect: TableEffect) -> Name:
    """Return the table that the statement named before its effect."""
    if effect.kind == RENAME and effect.other:
        return effect.other
    return effect.schema, effect.table


def _drop(words: Words, event: QueryEvent, before: TablesBefore) -> list[TableEffect]:
    words.skip()
    if words.take_any("DATABASE", "SCHEMA"):
        words.take("IF", "EXISTS")
        return [TableEffect(ERASE, *name) for name in before.tables_of(words.identifier())]
    kind = words.take_any("TABLE", "TABLES", "SEQUENCE")
    if not kind:
        return []  # a temporary table, a view …
    maybe = words.take("IF", "EXISTS")
    dropped = [words.name(event.schema)]
    while words.take(","):
        dropped.append(words.name(event.schema))
    if kind == "SEQUENCE":
        dropped = [name for name in dropped if _may_be_sequence(before.meta(name), not maybe)]
    return [TableEffect(ERASE, *name) for name in dropped]


def _may_be_sequence(meta: TableMeta | None, otherwise: bool) -> bool:
    """Tell if what DROP SEQUENCE names is one: with IF EXISTS, it passes by a table. `otherwise`:
    the answer where it is not known."""
    return otherwise if meta is None else is_sequence(meta.columns)


def _create(words: Words, event: QueryEvent, session: StatementSession) -> list[TableEffect]:
    words.skip()
    replaces = words.take("OR", "REPLACE")
    if not words.take_any("TABLE", "SEQUENCE"):
        return []
    words.take("IF", "NOT", "EXISTS")
    name = words.name(event.schema)
    found = [TableEffect(ERASE, *name)] if replaces else []
    if not session.error_code and _has_query(words):
        found.append(TableEffect(STATEMENT, *name))
    return found


def with_effects(
    records: Sequence[QueryRecord], effects: Sequence[TableEffect]
) -> list[QueryRecord]:
    """The records of a statement, each with the effects on its table, of RENAME with those of its
    pair of names; the first with the rest."""
    mine: list[list[TableEffect]] = [[] for _ in records]
    tables = [(record.schema, record.table) for record in records]
    pairs = [{table, record.renamed_from} for table, record in zip(tables, records, strict=True)]
    for effect in effects:
        names = ((effect.schema, effect.table), effect.other)
        found = [k for k, pair in enumerate(pairs) if effect.other and pair == {*names}]
        found += [k for k, table in enumerate(tables) if table in names]
        mine[found[0] if found else 0].append(effect)
    return [replace(r, effects=tuple(of_it)) for r, of_it in zip(records, mine, strict=True)]


def _moved(old: Name, new: Name, names: Names) -> list[TableEffect]:
    if names.pair(old) == names.pair(new):  # ALTER TABLE may do so: the table stays what it is
        return []
    return [TableEffect(RENAME, *new, old), TableEffect(ERASE, *old, new)]


def of_rename(
    words: Words,
    schema: str,
    names: Names,
    exists: Callable[[Name], bool | None] = lambda _: None,
) -> list[TableEffect]:
    """Return effects of RENAME TABLE: a new name each. `exists`: of a table just before it; with IF
    EXISTS, a name without one is passed by."""
    words.skip()
    if not words.take_any("TABLE", "TABLES"):
        return []
    maybe = words.take("IF", "EXISTS")
    found: list[TableEffect] = []
    now: dict[Name, bool | None] = {}
    while not words.done:
        old = words.name(schema)
        while not words.done and not words.take("TO"):
            words.skip()  # MariaDB: WAIT n | NOWAIT
        new = words.name(schema)
        pair = names.pair(old), names.pair(new)
        is_there, is_taken = (now[n] if n in now else maybe and exists(n) for n in pair)
        if not maybe or is_there or (is_there is None and not is_taken):
            found += _moved(old, new, names)
            now |= dict(zip(pair, (False, True), strict=True))
        if not words.take(","):
            break
    return found


def of_alter(words: Words, schema: str, names: Names) -> list[TableEffect]:
    """Return effects of ALTER TABLE: a new name, and partitions, tablespaces or histories that come
    or go with their rows."""
    words.skip()
    skip_alter_options(words)
    if not words.take_any("TABLE", "SEQUENCE"):
        return []
    words.take("IF", "EXISTS")
    name, found, depth = words.name(schema), [], 0
    while not words.done:
        depth += (words.peek() == "(") - (words.peek() == ")")
        if depth:
            words.skip()
        elif words.peek() == "RENAME" and words.peek(1) not in NOT_A_TABLE:
            words.skip()
            words.take("TO") or words.take("AS") or words.take("=")
            found += _moved(name, words.name(schema), names)
        elif words.peek() in _MOVES_ROWS and words.peek(1) in ("PARTITION", "TABLESPACE", "TABLE"):
            found += _partition(words, name, schema)
        elif words.take("DROP", "SYSTEM", "VERSIONING"):  # MariaDB: old versions of rows go
            found.append(TableEffect(STATEMENT, *name))
        else:
            words.skip()
    return found


def _partition(words: Words, name: Name, schema: str) -> list[TableEffect]:
    found = [TableEffect(STATEMENT, *name)]
    words.skip()
    while not words.done and words.peek() != ",":
        if words.take("WITH", "TABLE") or words.take("TO", "TABLE") or words.take("TABLE"):
            found.append(TableEffect(STATEMENT, *words.name(schema)))
        else:
            words.skip()
    return found


def _has_query(words: Words) -> bool:
    """Tell if a CREATE TABLE is filled by the statement itself."""
    depth = 0
    while not words.done:
        word = words.peek()
        depth += (word == "(") - (word == ")")
        if word == "SELECT" or (depth == 0 and word == "TABLE"):
            return True
        if word == "VALUES" and words.peek(1) == "ROW":
            return True
        words.skip()
    return False


def _changed(words: Words, verb: str, schema: str) -> TableEffect:
    """The table whose rows a statement changes; without a name, if they are several."""
    if verb == "LOAD":
        return TableEffect(STATEMENT, *(loaded_table(words, schema) or ("", "")))
    words.skip()
    skip_modifiers(words)
    if verb in ("INSERT", "REPLACE"):
        words.take("INTO")
        return TableEffect(STATEMENT, *words.name(schema))
    from_one = words.take("FROM")
    if verb == "DELETE" and not from_one:
        return TableEffect(STATEMENT, "", "")  # DELETE a, b FROM …
    name = words.name(schema)
    if verb == "DELETE" and (words.done or words.peek() == ";"):
        return TableEffect(TRUNCATE, *name)
    ends = "SET" if verb == "UPDATE" else "WHERE"
    while not words.done and words.peek() != ends:
        if words.peek() in (",", ".", "JOIN", "STRAIGHT_JOIN", "USING", "("):
            return TableEffect(STATEMENT, "", "")
        words.skip()
    return TableEffect(STATEMENT, *name) if name[1] else TableEffect(STATEMENT, "", "")
