"""Note what statements do to rows without a row event: TRUNCATE, DROP, RENAME, statement-format
DML.

Read as words, with the eyes of the server that ran the statement. Reading never fails; what it
cannot tell apart counts as a statement that may have changed rows of any table.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

from ray_canal.binlog.parsed import QueryEvent, QueryRecord
from ray_canal.model.table_event import ERASE, RENAME, STATEMENT, TRUNCATE, TableEffect
from ray_canal.schema.ddl.vocabulary import (
    CALLING_VERBS,
    NOT_A_TABLE,
    loaded_table,
    skip_alter_options,
    skip_modifiers,
)
from ray_canal.schema.ddl.words import Words, statement
from ray_canal.schema.names import Name
from ray_canal.schema.table_state import StatementSession

_TEMPORARY_MAX = 10_000
_DML = ("INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD")
_MOVES_ROWS = ("DROP", "TRUNCATE", "EXCHANGE", "DISCARD", "IMPORT", "CONVERT")
"""Before PARTITION or TABLESPACE, in ALTER TABLE."""


class RowEffects:
    """Effects of one source's statements, in any order. Temporary tables are remembered, as their
    changes are left out."""

    def __init__(self) -> None:
        self._temporary: OrderedDict[tuple[int, Name | None], None] = OrderedDict()

    def of(
        self,
        event: QueryEvent,
        session: StatementSession,
        tables_of: Callable[[str], Sequence[Name]],
    ) -> list[TableEffect]:
        """Return what a statement does to rows. `tables_of`: the tables of a database just before
        it."""
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
            found = self._drop(words, event, tables_of)
        elif verb == "RENAME":
            found = _rename(words, event.schema)
        elif verb == "ALTER" and not session.error_code:
            found = _alter(words, event.schema)
        elif verb == "CREATE":
            found = self._create(words, event, session)
        elif verb in _DML:
            found = [_changed(words, verb, event.schema)]
        elif verb in CALLING_VERBS:
            found = [TableEffect(STATEMENT, "", "")]
        kept = [effect for effect in found if not self._is_temporary(event.thread_id, effect)]
        return [effect._replace(ordinal=n) for n, effect in enumerate(kept)]

    def _is_temporary(self, thread_id: int, effect: TableEffect) -> bool:
        names = (effect[1:3], effect.other)
        return any((thread_id, name) in self._temporary for name in names)

    def _drop(
        self, words: Words, event: QueryEvent, tables_of: Callable[[str], Sequence[Name]]
    ) -> list[TableEffect]:
        words.skip()
        if words.take_any("DATABASE", "SCHEMA"):
            words.take("IF", "EXISTS")
            return [TableEffect(ERASE, *name) for name in tables_of(words.identifier())]
        temporary = words.take("TEMPORARY")
        if not words.take_any("TABLE", "TABLES", "SEQUENCE"):
            return []
        words.take("IF", "EXISTS")
        names = [words.name(event.schema)]
        while words.take(","):
            names.append(words.name(event.schema))
        found = []
        for name in names:
            was_temporary = self._forget(event.thread_id, name)
            if not temporary and not was_temporary:
                found.append(TableEffect(ERASE, *name))
        return found

    def _create(
        self, words: Words, event: QueryEvent, session: StatementSession
    ) -> list[TableEffect]:
        words.skip()
        replaces = words.take("OR", "REPLACE")
        temporary = words.take("TEMPORARY")
        if not words.take_any("TABLE", "SEQUENCE"):
            return []
        words.take("IF", "NOT", "EXISTS")
        name = words.name(event.schema)
        if temporary:
            self._remember(event.thread_id, name)
            return []
        found = [TableEffect(ERASE, *name)] if replaces else []
        if not session.error_code and _has_query(words):
            found.append(TableEffect(STATEMENT, *name))
        return found

    def _remember(self, thread_id: int, name: Name) -> None:
        self._temporary[thread_id, name] = None
        while len(self._temporary) > _TEMPORARY_MAX:
            self._temporary.popitem(last=False)

    def _forget(self, thread_id: int, name: Name) -> bool:
        known = (thread_id, name) in self._temporary
        self._temporary.pop((thread_id, name), None)
        return known


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


def _moved(old: Name, new: Name) -> list[TableEffect]:
    return [TableEffect(RENAME, *new, old), TableEffect(ERASE, *old, new)]


def _rename(words: Words, schema: str) -> list[TableEffect]:
    words.skip()
    if not words.take_any("TABLE", "TABLES"):
        return []
    words.take("IF", "EXISTS")
    found: list[TableEffect] = []
    while not words.done:
        old = words.name(schema)
        while not words.done and not words.take("TO"):
            words.skip()  # MariaDB: WAIT n | NOWAIT
        found += _moved(old, words.name(schema))
        if not words.take(","):
            break
    return found


def _alter(words: Words, schema: str) -> list[TableEffect]:
    """Return effects of ALTER TABLE: a new name, and partitions or tablespaces that come or go with
    their rows."""
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
            found += _moved(name, words.name(schema))
        elif words.peek() in _MOVES_ROWS and words.peek(1) in ("PARTITION", "TABLESPACE", "TABLE"):
            found += _partition(words, name, schema)
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
