"""Tables of a target that follow the source's: made, changed, renamed and emptied by policy.

What targets differ in is `Tables`; databases (mirror.py) and lakes (lake.py) share the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from ray_canal.client.message import TableChange
from ray_canal.config.sink import TablePolicy
from ray_canal.model.table_event import ERASE, RENAME, TRUNCATE
from ray_canal.model.table_meta import TableMeta
from ray_canal.sinks.port import Changed, Rows, SinkError
from ray_canal.views.arrow import arrow_schema

logger = logging.getLogger(__name__)


class TableName(NamedTuple):
    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


class Found(NamedTuple):
    """A table as the target has it: columns in order, and those of its primary key (None: tables
    have no keys there)."""

    columns: tuple[str, ...]
    key: tuple[str, ...] | None


class ColumnSpec(NamedTuple):
    """A column to be made; `declared` is MySQL's text of its type, empty if only Arrow's is known.
    `charset`: of text, where it is known."""

    name: str
    kind: pa.DataType
    declared: str = ""
    charset: str = ""
    is_key: bool = False


class Tables(Protocol):
    """Tables of a target."""

    def find(self, name: TableName) -> Found | None: ...
    def create(self, name: TableName, columns: Sequence[ColumnSpec]) -> None: ...
    def add(self, name: TableName, columns: Sequence[ColumnSpec]) -> None: ...
    def change(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        """Give columns these types."""
        ...

    def remove(self, name: TableName, columns: Sequence[str]) -> None: ...
    def rename(self, name: TableName, to: TableName) -> None: ...
    def empty(self, name: TableName) -> None: ...
    def drop(self, name: TableName) -> None: ...


class SchemaFollower:
    """`fit` before rows are written, `follow` at each DDL. `begin` is called before a table is
    made or changed."""

    def __init__(
        self,
        policy: TablePolicy,
        tables: Tables,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        self._policy = policy
        self._tables = tables
        self._begin = begin
        self._fits: dict[tuple[TableName, pa.Schema], list[str]] = {}

    def forget(self) -> None:
        """Look at the target's tables again."""
        self._fits.clear()

    def leaves_out(self, rows: Rows) -> bool:
        """Return whether rows are not written by policy. Raises SinkError: they cannot be known."""
        if rows.statement:
            if self._policy.schema_change == "ignore":
                return True
            raise SinkError(
                f"rows of {rows.schema}.{rows.table} were changed by a statement that the log has "
                f"as text alone, so the mirror cannot follow: {rows.statement[:200]}",
                "schema",
            )
        return not rows.key and self._policy.without_key == "ignore"

    def columns(self, rows: Rows) -> tuple[TableName, list[str]]:
        """Make the target's table take these rows. Returns its name, and the columns that are to be
        written. Raises SinkError: they do not fit, and the policy does not change that."""
        name, schema = self.name(rows.schema, rows.table), rows.batch.schema
        columns = self._fits.get((name, schema))
        if columns is None:
            columns = self._fit(name, _specs(schema, rows.meta, rows.key), rows.key)
            self._fits[name, schema] = columns
        return name, columns

    def name(self, schema: str, table: str) -> TableName:
        named = {"schema": schema, "table": table}
        policy = self._policy
        return TableName(policy.database.format(**named), policy.table.format(**named))

    def _fit(self, name: TableName, columns: list[ColumnSpec], key: list[str]) -> list[str]:
        """Make the target's table take these columns. Returns those that are written. Raises
        SinkError: they do not fit, and the policy does not change that."""
        found = self._tables.find(name)
        if not key and self._policy.without_key == "stop":
            raise SinkError(
                f"{name} has no primary key, so its rows cannot be told apart; give it one, or set "
                f"{self._policy.section}.without_key",
                "schema",
            )
        if found is None:
            self._begin()
            if not self._policy.create_tables:
                text = f"the target has no table {name}, and create_tables is off"
                raise SinkError(text, "schema")
            self._tables.create(name, columns)
            return [column.name for column in columns]
        if key and found.key is not None and set(found.key) != set(key):
            raise SinkError(
                f"{name} has the primary key ({', '.join(found.key)}), the source's is "
                f"({', '.join(key)}); give it that one",
                "schema",
            )
        missing = [column for column in columns if column.name not in found.columns]
        if missing:
            self._add(name, missing, found, columns)
        return [
            column.name
            for column in columns
            if column not in missing or self._policy.schema_change != "ignore"
        ]

    def _add(
        self, name: TableName, missing: list[ColumnSpec], found: Found, columns: list[ColumnSpec]
    ) -> None:
        policy = self._policy.schema_change
        names = ", ".join(column.name for column in missing)
        if policy == "stop":
            text = f"{name} lacks {names}: add them and start again, or set schema_change"
            raise SinkError(text, "schema")
        if policy == "ignore":
            return
        gone = sorted(set(found.columns) - {column.name for column in columns})
        if gone:
            raise SinkError(
                f"the source's {name} has {names}, and no {', '.join(gone)} any more. Whether a "
                "column was renamed cannot be told, and a rename must keep its values: rename or "
                "add columns in the target, then start again",
                "schema",
            )
        self._begin()
        self._tables.add(name, missing)

    def follow(self, step: Changed) -> None:
        """Do to the target's table what a DDL did to the source's."""
        change, policy = step.change, self._policy.schema_change
        name = self.name(change.schema, change.table)
        if policy == "ignore":
            return
        if policy == "stop":
            raise SinkError(
                f"{change.kind} of {change.schema}.{change.table} at {change.journal_name}:"
                f'{change.position}: {self._policy.section}.schema_change is "stop"',
                "schema",
            )
        self._fits.clear()
        self._begin()
        found = self._tables.find(name)
        if change.kind == TRUNCATE:
            if found is not None:
                self._tables.empty(name)
        elif change.kind == ERASE:
            if policy == "evolve" and found is not None and not change.renamed_to:
                self._tables.drop(name)
        elif change.kind == RENAME:
            self._rename(change, name, found)
        elif step.meta is not None and change.arrow_schema is not None:
            self._alter(name, found, step.meta, change.arrow_schema)

    def _rename(self, change: TableChange, name: TableName, found: Found | None) -> None:
        schema, _, table = change.renamed_from.partition(".")
        old = self.name(schema, table)
        if old == name or self._tables.find(old) is None:
            logger.info("%s is not here, so it is not renamed to %s", old, name)
        elif found is not None:
            text = f"{old} was renamed to {name}, which is in the target already"
            raise SinkError(text, "schema")
        else:
            self._tables.rename(old, name)

    def _alter(
        self, name: TableName, found: Found | None, meta: TableMeta, schema: pa.Schema
    ) -> None:
        key = [column.name for column in meta.columns if column.is_key]
        columns = _specs(schema, meta, key)
        if not key and self._policy.without_key != "rows":
            return  # what to do is decided when rows come
        self._fit(name, columns, key)
        if found is None or self._policy.schema_change != "evolve":
            return
        gone = [each for each in found.columns if each not in {c.name for c in columns}]
        if gone:
            self._tables.remove(name, gone)
        self._tables.change(name, [c for c in columns if c.name in found.columns])


def _specs(schema: pa.Schema, meta: TableMeta | None, key: Iterable[str]) -> list[ColumnSpec]:
    """The columns of a table version. A type that a transform changed is Arrow's."""
    declared: dict[str, Any] = {}
    if meta is not None:
        kinds = {field.name: field.type for field in arrow_schema(meta).field("after").type}
        declared = {
            column.name: column
            for column in meta.columns
            if schema.field("after").type.get_field_index(column.name) >= 0
            and schema.field("after").type.field(column.name).type == kinds[column.name]
        }
    keys, found = set(key), []
    for field in schema.field("after").type:
        column = declared.get(field.name)
        text, charset = ("", "") if column is None else (column.mysql_type, column.charset)
        found.append(ColumnSpec(field.name, field.type, text, charset, field.name in keys))
    return found
