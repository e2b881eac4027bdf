"""What a DDL turns into what: a table's columns and what new columns of it inherit."""

from __future__ import annotations

from dataclasses import dataclass, field

from ray_canal.parse.words import Dialect
from ray_canal.protocol.schema_record import TableState
from ray_canal.protocol.table_meta import TableMeta

__all__ = ["DdlNotApplied", "Session", "TableState", "unknown"]


class DdlNotApplied(Exception):
    """A statement changes a table in a way that is not understood; the text says what it is."""


@dataclass(frozen=True, slots=True)
class Session:
    """The session that ran a statement. `schema` is its database, `server_charset` what a new
    database gets; both may be empty: not known. `error_code`: how the statement failed."""

    schema: str = ""
    server_charset: str = ""
    dialect: Dialect = field(default_factory=Dialect)
    error_code: int = 0


def unknown(schema: str, table: str, problem: str) -> TableState:
    """A table whose columns are not known."""
    return TableState(TableMeta(schema, table, ()), "", problem=problem)
