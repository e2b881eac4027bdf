"""Classify a QUERY event's statement in Canal's terms: its EventType and its tables.

The statement (of SET STATEMENT … FOR: what follows) is read as words, not as a tree: classification
must never fail, on any server's syntax. Every statement becomes a record. Statements of which Canal
makes no entry, because they change neither a table nor its rows, become silent ones
(docs/reference/canal-compat.md lists them); what is not known at all becomes a QUERY entry.
Applying DDL to schemas is not done here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ray_canal.binlog.parsed import QueryEvent, QueryRecord
from ray_canal.model.canal_types import (
    ALTER,
    BEGIN,
    CINDEX,
    CREATE,
    DELETE,
    DINDEX,
    END,
    ERASE,
    INSERT,
    QUERY,
    RENAME,
    ROWDATA,
    TRUNCATE,
    UPDATE,
    XACOMMIT,
    XAROLLBACK,
)
from ray_canal.schema.ddl.vocabulary import (
    CALLING_VERBS,
    NOT_A_TABLE,
    loaded_table,
    skip_alter_options,
    skip_lock_wait,
    skip_modifiers,
)
from ray_canal.schema.ddl.words import Words, statement
from ray_canal.schema.names import Name, Names

_Named = tuple[str, str, Name | None]  # schema, table, name before a RENAME
_Ddl = tuple[int, Sequence[_Named]]
_DATABASE = ("DATABASE", "SCHEMA")

_DML = {"INSERT": INSERT, "REPLACE": INSERT, "UPDATE": UPDATE, "DELETE": DELETE}
_XA = {
    # EntryType, EventType
    "START": (BEGIN, 0),
    "BEGIN": (BEGIN, 0),
    "END": (END, 0),
    "COMMIT": (ROWDATA, XACOMMIT),
    "ROLLBACK": (ROWDATA, XAROLLBACK),
}
_INDEX_KINDS = {"UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR"}
_KEY_WORDS = {"INDEX", "KEY", "PRIMARY", *_INDEX_KINDS}

_SILENT_VERBS = {
    "GRANT", "REVOKE", "FLUSH", "ANALYZE", "OPTIMIZE", "REPAIR", "CHECK", "CHECKSUM", "SAVEPOINT",
    "RELEASE", "ROLLBACK", "INSTALL", "UNINSTALL", "SET", "RESET",
}  # fmt: skip
_SILENT_OBJECTS = {
    "VIEW", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "USER", "ROLE", "SERVER", "TABLESPACE",
    "LOGFILE", "UNDO", "INSTANCE", "RESOURCE", "LIBRARY", "PACKAGE", "CATALOG",
}  # fmt: skip
_OBJECT_WITHIN_WORDS = 24
"""So far behind CREATE lies what is created: OR REPLACE, ALGORITHM, DEFINER, SQL SECURITY."""


def classify(event: QueryEvent, names: Names | None = None) -> list[QueryRecord]:
    """One record for each table that the statement concerns; one record if it concerns none. Names
    are the server's: in lower case where it compares them so (`names`), as in its rows."""
    found = _classified(event)
    if names is None or not names.setting:
        return found
    return [_named(record, names) for record in found]


def is_xa(sql: str) -> bool:
    """Return whether it is a statement of XA as servers write them."""
    return sql.startswith("XA ")


def _named(record: QueryRecord, names: Names) -> QueryRecord:
    schema, table, former = record.schema, record.table, record.renamed_from
    return replace(
        record,
        schema=schema and names.one(schema),
        table=table and names.one(table),
        renamed_from=former and names.pair(former),
    )


def _classified(event: QueryEvent) -> list[QueryRecord]:
    if event.is_annotation:
        table = _annotated_table(event.sql)
        return [QueryRecord(QUERY, "", table, event.sql, "", False)]
    if is_xa(event.sql):  # there may be three a transaction
        return [_statement(statement(event.sql), event)]
    found = _table_ddl(statement(event.sql), event.schema)
    if found is not None:
        event_type, tables = found
        return [
            QueryRecord(
                event_type, schema, table, event.sql, event.schema, True, renamed_from=former
            )
            for schema, table, former in tables
        ]
    database = _database_ddl(statement(event.sql))
    if database is not None:
        return [QueryRecord(QUERY, database, None, event.sql, event.schema, True)]
    return [_statement(statement(event.sql), event)]


def _annotated_table(sql: str) -> str | None:
    """The table that Canal names in a ROWS_QUERY entry; None for REPLACE, WITH and the like."""
    words = Words(sql)
    verb = words.peek()
    if verb in ("INSERT", "UPDATE", "DELETE"):
        table = _changed_table(words, "")[1]
        several = verb == "DELETE" and words.peek() == ","
        return table if table and not several else None
    found = _table_ddl(Words(sql), "")
    return (found[1][0][1] or None) if found is not None else None


def _statement(words: Words, event: QueryEvent) -> QueryRecord:
    """A statement that is no DDL: XA, DML of statement format, what is silent, anything else."""
    if words.peek() == "XA" and words.peek(1) in _XA:
        kind, event_type = _XA[words.peek(1)]
        return QueryRecord(event_type, "", "", event.sql, "", False, kind)
    dml = _DML.get(words.peek())
    if dml is not None:
        schema, table = _changed_table(words, event.schema)
        return QueryRecord(dml, schema, table, event.sql, event.schema, False)
    if words.peek() == "LOAD":
        schema, table = loaded_table(words, event.schema) or (event.schema, "")
        return QueryRecord(INSERT, schema, table, event.sql, event.schema, False)
    if words.peek() in CALLING_VERBS:
        return QueryRecord(QUERY, "", "", event.sql, event.schema, False)
    if _is_silent(words):
        return QueryRecord(QUERY, None, None, event.sql, event.schema, False, is_silent=True)
    return QueryRecord(QUERY, None, None, event.sql, event.schema, True)


def _changed_table(words: Words, schema: str) -> tuple[str, str]:
    """Return (schema, table) that an INSERT, REPLACE, UPDATE or DELETE names first."""
    words.skip()
    skip_modifiers(words)
    words.take("INTO") or words.take("FROM")
    return words.name(schema)


def _is_silent(words: Words) -> bool:
    """Tell if a statement changes neither tables nor rows: views, routines, users, privileges,
    upkeep."""
    verb = words.peek()
    if verb in _SILENT_VERBS or (verb == "XA" and words.peek(1) == "PREPARE"):
        return True
    if verb == "RENAME":
        return words.peek(1) == "USER"
    if verb not in ("CREATE", "ALTER", "DROP"):
        return False
    following = [words.peek(ahead) for ahead in range(1, _OBJECT_WITHIN_WORDS)]
    if following[:3] == ["SPATIAL", "REFERENCE", "SYSTEM"] or following[0] in _DATABASE:
        return True
    return any(word in _SILENT_OBJECTS for word in following)


def _database_ddl(words: Words) -> str | None:
    """The database of CREATE or DROP DATABASE, else None."""
    if words.peek() not in ("CREATE", "DROP"):
        return None
    words.skip()
    words.take("OR", "REPLACE")
    if words.peek() not in _DATABASE:
        return None
    words.skip()
    _if_exists(words)
    return words.name("")[1]


def _table_ddl(words: Words, schema: str) -> _Ddl | None:
    """Return (EventType, tables) of a statement that changes tables, else None."""
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
        return TRUNCATE, [_plain(words, schema)]
    return None


def _plain(words: Words, schema: str) -> _Named:
    return (*words.name(schema), None)


def _if_exists(words: Words) -> None:
    words.take("IF", "NOT", "EXISTS") or words.take("IF", "EXISTS")


def _create(words: Words, schema: str) -> _Ddl | None:
    words.take("OR", "REPLACE")
    words.take("TEMPORARY")
    if words.peek() in ("TABLE", "SEQUENCE"):
        words.skip()
        _if_exists(words)
        return CREATE, [_plain(words, schema)]
    if words.peek() in _INDEX_KINDS:
        words.skip()
    if not words.take("INDEX"):
        return None
    _if_exists(words)
    return CINDEX, [_name_after_on(words, schema)]


def _name_after_on(words: Words, schema: str) -> _Named:
    while not words.done and words.peek() != "ON":
        words.skip()
    words.skip()
    return _plain(words, schema)


def _alter(words: Words, schema: str) -> _Ddl | None:
    skip_alter_options(words)
    if words.peek() not in ("TABLE", "SEQUENCE"):
        return None
    words.skip()
    _if_exists(words)
    name = words.name(schema)
    skip_lock_wait(words)
    event_type = _first_change(words)
    depth = 0
    while not words.done:
        depth += (words.peek() == "(") - (words.peek() == ")")
        if depth == 0 and words.peek() == "RENAME" and words.peek(1) not in NOT_A_TABLE:
            words.skip()
            words.take("TO") or words.take("AS") or words.take("=")
            return RENAME, [(*words.name(schema), name)]
        words.skip()
    return event_type, [(*name, None)]


def _first_change(words: Words) -> int:
    """The EventType of an ALTER TABLE, which Canal takes from its first change."""
    verb, what = words.peek(), words.peek(1)
    if verb == "DROP" and what in ("INDEX", "KEY", "CONSTRAINT"):
        return DINDEX
    if verb != "ADD":
        return ALTER
    if what == "CONSTRAINT":
        unnamed = words.peek(2) in ("UNIQUE", "PRIMARY")
        is_key = unnamed or words.peek(3) in ("UNIQUE", "PRIMARY")
        return CINDEX if is_key else ALTER
    return CINDEX if what in _KEY_WORDS else ALTER


def _drop(words: Words, schema: str) -> _Ddl | None:
    words.take("TEMPORARY")
    if words.take("INDEX"):
        return DINDEX, [_name_after_on(words, schema)]
    if words.peek() not in ("TABLE", "TABLES", "SEQUENCE"):
        return None
    words.skip()
    _if_exists(words)
    names = [_plain(words, schema)]
    while words.take(","):
        names.append(_plain(words, schema))
    return ERASE, names


def _renamed(words: Words, schema: str) -> list[_Named]:
    """The new names of RENAME TABLE a TO b, c TO d, each with its old one."""
    names: list[_Named] = []
    while not words.done:
        former = words.name(schema)
        while not words.done and not words.take("TO"):
            words.skip()  # MariaDB: WAIT n | NOWAIT
        names.append((*words.name(schema), former))
        if not words.take(","):
            break
    return names
