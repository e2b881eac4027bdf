"""What a DDL turns into what: a table's columns and what new columns of it inherit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ray_canal.parse.words import Dialect
from ray_canal.protocol.table_meta import ColumnMeta, TableMeta


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


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at one place of the log.

    `charset` is the default of columns to come, empty where it is not known (as that of a column).
    `hidden_period`: MariaDB's system versioning put row_start and row_end behind the columns.
    `problem` says why the columns are not known.
    """

    meta: TableMeta
    charset: str
    hidden_period: bool = False
    problem: str = ""

    @property
    def columns(self) -> tuple[ColumnMeta, ...]:
        return self.meta.columns

    def with_columns(self, columns: list[ColumnMeta]) -> TableState:
        return replace(self, meta=replace(self.meta, columns=tuple(columns)))

    def renamed(self, schema: str, table: str) -> TableState:
        return replace(self, meta=replace(self.meta, schema=schema, table=table))


def unknown(schema: str, table: str, problem: str) -> TableState:
    """A table whose columns are not known."""
    return TableState(TableMeta(schema, table, ()), "", problem=problem)
