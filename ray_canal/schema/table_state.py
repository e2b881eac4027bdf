"""State of a table that DDL changes: its columns, and what new columns inherit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ray_canal.binlog.chunk import FLAVOR_MARIADB, ChunkHead
from ray_canal.binlog.events import version_numbers
from ray_canal.model.schema_record import TableState
from ray_canal.model.table_meta import TableMeta
from ray_canal.schema.ddl.words import Dialect

__all__ = ["DdlNotApplied", "StatementSession", "TableState", "session_of", "unknown"]


class Ran(Protocol):
    """A QUERY event, as far as it says in which session the statement ran."""

    @property
    def schema(self) -> str:
        """Return the default database of the session that ran it."""
        ...
    @property
    def server_charset(self) -> str:
        """Return the server's character set, as that session had it."""
        ...
    @property
    def sql_mode(self) -> int:
        """Return the session's sql_mode, as bits."""
        ...
    @property
    def error_code(self) -> int:
        """Return the error that the statement ended with; 0: none."""
        ...
    @property
    def has_ddl_xid(self) -> bool:
        """Return whether the statement is known to have changed MySQL's data dictionary."""
        ...


_LOGS_WHAT_IT_DID = 101100
"""MariaDB from this version on does not log a CREATE TABLE IF NOT EXISTS that did nothing."""


class DdlNotApplied(Exception):
    """A statement changes a table in a way that is not understood; the text says what it is."""


@dataclass(frozen=True, slots=True)
class StatementSession:
    """The session that ran a statement. `schema` is its database, `server_charset` what a new
    database gets; both may be empty: not known. `error_code`: how the statement failed.
    `temporary`: names that mean temporary tables of the session in it, as names are compared.
    `is_done`: it is known that the statement did something, whatever it says of IF NOT EXISTS."""

    schema: str = ""
    server_charset: str = ""
    dialect: Dialect = field(default_factory=Dialect)
    error_code: int = 0
    temporary: tuple[tuple[str, str], ...] = ()
    is_done: bool = False


def session_of(head: ChunkHead, event: Ran) -> StatementSession:
    """Return how the server that wrote the event read its statement."""
    mariadb = head.flavor == FLAVOR_MARIADB
    numbers = version_numbers(head.server_version.removeprefix("5.5.5-"))
    version = sum(n * scale for n, scale in zip(numbers, (10000, 100, 1), strict=False))
    dialect = Dialect(mariadb, version, event.sql_mode)
    return StatementSession(
        event.schema,
        event.server_charset,
        dialect,
        event.error_code,
        is_done=event.has_ddl_xid or (mariadb and version >= _LOGS_WHAT_IT_DID),
    )


def unknown(schema: str, table: str, problem: str) -> TableState:
    """A table whose columns are not known."""
    return TableState(TableMeta(schema, table, ()), "", problem=problem)
