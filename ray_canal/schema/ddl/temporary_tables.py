"""Remember which tables of a session are temporary, as far as the log tells (MIXED, STATEMENT).

A temporary table hides a table of the same name from its session, and statements about it are in
the log as if they were about that one. Servers mark the event of a statement that used a temporary
table, but also each statement after it in the same procedure; so a statement is about a temporary
table if its event is marked, and its session was seen to make one of that name. MariaDB does not
mark RENAME.
"""

from __future__ import annotations

from collections import OrderedDict

from ray_canal.binlog.parsed import QueryEvent
from ray_canal.model.table_event import RENAME, TableEffect
from ray_canal.schema.ddl.row_effects import of_alter, of_rename
from ray_canal.schema.ddl.words import Dialect, Words, statement
from ray_canal.schema.names import Name, Names

_REMEMBERED_MAX = 10_000


class TemporaryTables:
    """Temporary tables of one log's sessions."""

    def __init__(self) -> None:
        self._of_thread: OrderedDict[int, dict[Name, None]] = OrderedDict()
        self._count = 0

    def seen(self, event: QueryEvent, dialect: Dialect, names: Names) -> tuple[Name, ...]:
        """Return the names that mean temporary tables in a statement, and note what it does to
        temporary tables. Statements come in the log's order."""
        words = statement(event.sql, dialect)
        verb = words.peek()
        mine = self._of_thread.get(event.thread_id, {})
        renames = verb == "RENAME" and bool(dialect.mariadb)
        found = tuple(mine) if event.uses_temporary or renames else ()
        before = len(mine)
        if verb == "CREATE":
            mine = self._created(words, event, names)
        elif verb == "DROP":
            _dropped(words, event.schema, names, mine, bool(found))
        elif verb == "ALTER" and found and not event.error_code:
            _renamed(of_alter(words, event.schema, names), names, mine)
        elif renames and found:
            _renamed(of_rename(words, event.schema, names), names, mine)
        self._count += len(mine) - before
        if not mine:
            self._of_thread.pop(event.thread_id, None)
        self._forget_oldest()
        return found

    def forget(self) -> None:
        """Forget all: the server was started, and has no session of before."""
        self._of_thread.clear()
        self._count = 0

    def _created(self, words: Words, event: QueryEvent, names: Names) -> dict[Name, None]:
        mine = self._of_thread.get(event.thread_id, {})
        words.skip()
        words.take("OR", "REPLACE")
        if not words.take("TEMPORARY", "TABLE") or event.error_code:
            return mine
        words.take("IF", "NOT", "EXISTS")
        mine[names.pair(words.name(event.schema))] = None
        self._of_thread[event.thread_id] = mine
        self._of_thread.move_to_end(event.thread_id)
        return mine

    def _forget_oldest(self) -> None:
        while self._count > _REMEMBERED_MAX:
            _, gone = self._of_thread.popitem(last=False)
            self._count -= len(gone)


def _dropped(
    words: Words, schema: str, names: Names, mine: dict[Name, None], may_be_meant: bool
) -> None:
    words.skip()
    temporary = words.take("TEMPORARY")
    if not words.take_any("TABLE", "TABLES") or not (temporary or may_be_meant):
        return
    words.take("IF", "EXISTS")
    mine.pop(names.pair(words.name(schema)), None)
    while words.take(","):
        mine.pop(names.pair(words.name(schema)), None)


def _renamed(effects: list[TableEffect], names: Names, mine: dict[Name, None]) -> None:
    for effect in effects:
        old = names.pair(effect.other) if effect.kind == RENAME and effect.other else None
        if old in mine:
            del mine[old]
            mine[names.pair((effect.schema, effect.table))] = None
