"""What a QUERY event's statement is, in Canal's terms: its EventType and the tables that it
concerns.

The statement is read as words, not as a tree: classification must never fail, on any server's
syntax. A statement that is no table DDL becomes a QUERY record; none is dropped. Applying DDL to
schemas is not done here.
"""

from __future__ import annotations

from collections.abc import Sequence

from ray_canal.binlog.parsed import QueryEvent, QueryRecord
from ray_canal.parse.words import Words

INSERT, UPDATE, DELETE = 1, 2, 3
CREATE, ALTER, ERASE, QUERY, TRUNCATE, RENAME, CINDEX, DINDEX = 4, 5, 6, 7, 8, 9, 10, 11
XACOMMIT, XAROLLBACK = 13, 14

_DML = {"INSERT": INSERT, "REPLACE": INSERT, "UPDATE": UPDATE, "DELETE": DELETE}
_XA = {"COMMIT": XACOMMIT, "ROLLBACK": XAROLLBACK}
_INDEX_KINDS = {"UNIQUE", "FULLTEXT", "SPATIAL"}
_NOT_A_TABLE = {"COLUMN", "INDEX", "KEY", "CONSTRAINT"}


def classify(event: QueryEvent) -> list[QueryRecord]:
    """One record for each table that the statement concerns; one QUERY record if it is no DDL."""
    words = Words(event.sql)
    found = _table_ddl(words, event.schema)
    if found is not None:
        event_type, tables = found
        return [
            QueryRecord(event_type, schema, table, event.sql, event.schema, True)
            for schema, table in tables
        ]
    words = Words(event.sql)
    database = _database_ddl(words)
    if database is not None:
        return [QueryRecord(QUERY, database, "", event.sql, event.schema, True)]
    return [_statement(Words(event.sql), event)]


def _statement(words: Words, event: QueryEvent) -> QueryRecord:
    """A statement that is no DDL: DML of statement format, or anything else as QUERY."""
    if words.peek() == "XA" and words.peek(1) in _XA:
        return QueryRecord(_XA[words.peek(1)], "", "", event.sql, "", False)
    event_type = _DML.get(words.peek())
    if event_type is None:
        return QueryRecord(QUERY, "", "", event.sql, event.schema, False)
    words.skip()
    for noise in ("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "QUICK", "IGNORE", "INTO", "FROM"):
        words.take(noise)
    schema, table = words.name(event.schema)
    return QueryRecord(event_type, schema, table, event.sql, event.schema, False)


def _database_ddl(words: Words) -> str | None:
    """The database of CREATE, ALTER or DROP DATABASE, else None."""
    if words.peek() not in ("CREATE", "ALTER", "DROP"):
        return None
    words.skip()
    words.take("OR", "REPLACE")
    if words.peek() not in ("DATABASE", "SCHEMA"):
        return None
    words.skip()
    _if_exists(words)
    return words.name("")[1]


def _table_ddl(words: Words, schema: str) -> tuple[int, Sequence[tuple[str, str]]] | None:
    """(EventType, tables) of a statement that changes tables, else None."""
    verb = words.peek()
    words.skip()
    if verb == "CREATE":
        return _create(words, schema)
    if verb == "ALTER":
        return _alter(words, schema)
    if verb == "DROP":
        return _drop(words, schema)
    if verb == "RENAME" and words.peek() in ("TABLE", "TABLES"):
        words.skip()
        _if_exists(words)
        return RENAME, _renamed(words, schema)
    if verb == "TRUNCATE":
        words.take("TABLE")
        return TRUNCATE, [words.name(schema)]
    return None


def _if_exists(words: Words) -> None:
    words.take("IF", "NOT", "EXISTS") or words.take("IF", "EXISTS")


def _create(words: Words, schema: str) -> tuple[int, Sequence[tuple[str, str]]] | None:
    words.take("OR", "REPLACE")
    words.take("TEMPORARY")
    if words.peek() in ("TABLE", "SEQUENCE"):
        words.skip()
        _if_exists(words)
        return CREATE, [words.name(schema)]
    if words.peek() in _INDEX_KINDS:
        words.skip()
    if not words.take("INDEX"):
        return None
    _if_exists(words)
    return CINDEX, [_name_after_on(words, schema)]


def _name_after_on(words: Words, schema: str) -> tuple[str, str]:
    while not words.done and words.peek() != "ON":
        words.skip()
    words.skip()
    return words.name(schema)


def _alter(words: Words, schema: str) -> tuple[int, Sequence[tuple[str, str]]] | None:
    words.take("ONLINE")
    words.take("IGNORE")
    if words.peek() not in ("TABLE", "SEQUENCE"):
        return None
    words.skip()
    _if_exists(words)
    name = words.name(schema)
    depth = 0
    while not words.done:
        depth += (words.peek() == "(") - (words.peek() == ")")
        if depth == 0 and words.peek() == "RENAME" and words.peek(1) not in _NOT_A_TABLE:
            words.skip()
            words.take("TO") or words.take("AS") or words.take("=")
            return RENAME, [words.name(schema)]
        words.skip()
    return ALTER, [name]


def _drop(words: Words, schema: str) -> tuple[int, Sequence[tuple[str, str]]] | None:
    words.take("TEMPORARY")
    if words.take("INDEX"):
        return DINDEX, [_name_after_on(words, schema)]
    if words.peek() not in ("TABLE", "TABLES", "SEQUENCE"):
        return None
    words.skip()
    _if_exists(words)
    names = [words.name(schema)]
    while words.take(","):
        names.append(words.name(schema))
    return ERASE, names


def _renamed(words: Words, schema: str) -> list[tuple[str, str]]:
    """The new names of RENAME TABLE a TO b, c TO d."""
    names = []
    while not words.done:
        words.name(schema)
        while not words.done and not words.take("TO"):
            words.skip()  # MariaDB: WAIT n | NOWAIT
        names.append(words.name(schema))
        if not words.take(","):
            break
    return names
