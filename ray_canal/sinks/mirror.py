"""A database that follows the source: rows by primary key, tables by policy, the place in the same
transaction.

What databases differ in is a `Database` (mysql.py). Here is what they share: which table is meant,
when it is made or changed, what is written in a transaction, and who may write.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from ray_canal.client.message import TableChange
from ray_canal.config import MirrorConfig
from ray_canal.model.table_event import ERASE, RENAME, TRUNCATE
from ray_canal.model.table_meta import TableMeta
from ray_canal.sinks.net_change import image, net_change, of_one_schema, plain
from ray_canal.sinks.port import Changed, Changes, Cursor, Guarantee, Rows, SinkError
from ray_canal.views.arrow import arrow_schema

logger = logging.getLogger(__name__)


class TableName(NamedTuple):
    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


class Found(NamedTuple):
    """A table as the target has it: columns in order, and those of its primary key."""

    columns: tuple[str, ...]
    key: tuple[str, ...]


class ColumnSpec(NamedTuple):
    """A column to be made; `declared` is MySQL's text of its type, empty if only Arrow's is known.
    `charset`: of text, where it is known."""

    name: str
    kind: pa.DataType
    declared: str = ""
    charset: str = ""
    is_key: bool = False


class Database(Protocol):
    """A kind of database. Statements run in a transaction between `begin` and `commit`; those that
    change tables run outside of one."""

    def connect(self) -> None: ...
    def close(self) -> None: ...
    def take_over(self, sink: str) -> tuple[int, str]:
        """Raise the sink's epoch in the table of cursors. Returns it, and the place ("": none)."""
        ...
    def begin(self, sink: str) -> int:
        """Begin a transaction that holds the sink's cursor. Returns its epoch; -1: it is gone."""
        ...
    def commit(self, sink: str, place: str) -> None: ...
    def rollback(self) -> None: ...
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
    def delete(self, name: TableName, keys: pa.Table) -> None: ...
    def upsert(self, name: TableName, key: Sequence[str], rows: pa.Table) -> None: ...
    def delete_like(self, name: TableName, row: pa.Table) -> None:
        """Remove one row that has these values."""
        ...


@dataclass
class _Run:
    """Rows of one table version that are to be written."""

    name: TableName
    key: list[str]
    columns: list[str]
    schema: pa.Schema
    batches: list[pa.RecordBatch]


class Mirror:
    """A sink into a database: exactly once."""

    guarantee: Guarantee = "exactly_once"

    def __init__(self, sink: str, config: MirrorConfig, database: Database) -> None:
        self._sink = sink
        self._config = config
        self._database = database
        self._epoch = 0
        self._runs: list[_Run] = []
        self._fits: dict[tuple[TableName, pa.Schema], list[str]] = {}

    def open(self) -> Cursor | None:
        self._fits.clear()
        self._runs.clear()
        self._database.connect()
        self._epoch, place = self._database.take_over(self._sink)
        return Cursor.from_json(place) if place else None

    def close(self) -> None:
        self._runs.clear()
        self._database.close()

    def abort(self) -> None:
        self._runs.clear()
        self._database.rollback()

    def write(self, changes: Changes) -> None:
        for step in changes.steps():
            if isinstance(step, Changed):
                self._follow(step)
            else:
                self._stage(step)

    def commit(self, upto: Cursor) -> None:
        database, runs = self._database, self._runs
        if database.begin(self._sink) != self._epoch:
            database.rollback()
            raise SinkError(
                f"sink {self._sink}: another runner has taken over the target, or its row in the "
                "table of cursors was removed",
                "fenced",
            )
        for run in runs:
            if run.key:
                net = net_change(run.batches, run.key, run.columns)
                if net.deletes.num_rows:
                    database.delete(run.name, net.deletes)
                if net.upserts.num_rows:
                    database.upsert(run.name, run.key, net.upserts)
            else:
                self._row_by_row(run)
        database.commit(self._sink, upto.to_json())
        self._runs = []

    # --- rows ------------------------------------------------------------------------------------

    def _stage(self, rows: Rows) -> None:
        if rows.statement:
            if self._config.schema_change == "ignore":
                return
            raise SinkError(
                f"rows of {rows.schema}.{rows.table} were changed by a statement that the log has "
                f"as text alone, so the mirror cannot follow: {rows.statement[:200]}",
                "schema",
            )
        if not rows.key and self._config.without_key == "ignore":
            return
        name, schema = self._name(rows.schema, rows.table), rows.batch.schema
        columns = self._fits.get((name, schema))
        if columns is None:
            columns = self._fit(name, _specs(schema, rows.meta, rows.key), rows.key)
            self._fits[name, schema] = columns
        for run in reversed(self._runs):
            if run.name == name:
                if run.schema == schema:
                    run.batches.append(rows.batch)
                    return
                break
        self._runs.append(_Run(name, rows.key, columns, schema, [rows.batch]))

    def _row_by_row(self, run: _Run) -> None:
        """A table without a key: each row is found by its values."""
        table = of_one_schema(run.batches)
        before = image(table, "before", run.columns)
        after = image(table, "after", run.columns)
        for number, kind in enumerate(plain(table["event_type"]).to_pylist()):
            if kind in ("UPDATE", "DELETE"):
                self._database.delete_like(run.name, before.slice(number, 1))
            if kind in ("UPDATE", "INSERT"):
                self._database.upsert(run.name, (), after.slice(number, 1))

    # --- tables ----------------------------------------------------------------------------------

    def _name(self, schema: str, table: str) -> TableName:
        named = {"schema": schema, "table": table}
        config = self._config
        return TableName(config.database.format(**named), config.table.format(**named))

    def _fit(self, name: TableName, columns: list[ColumnSpec], key: list[str]) -> list[str]:
        """Make the target's table take these columns. Returns those that are written. Raises
        SinkError: they do not fit, and the policy does not change that."""
        found = self._database.find(name)
        if not key and self._config.without_key == "stop":
            raise SinkError(
                f"{name} has no primary key, so its rows cannot be told apart; give it one, or set "
                'mirror.without_key to "rows" (finds rows by all values) or "ignore"',
                "schema",
            )
        if found is None:
            if not self._config.create_tables:
                text = f"the target has no table {name}, and mirror.create_tables is off"
                raise SinkError(text, "schema")
            self._database.create(name, columns)
            return [column.name for column in columns]
        if key and set(found.key) != set(key):
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
            if column not in missing or self._config.schema_change != "ignore"
        ]

    def _add(
        self, name: TableName, missing: list[ColumnSpec], found: Found, columns: list[ColumnSpec]
    ) -> None:
        policy = self._config.schema_change
        names = ", ".join(column.name for column in missing)
        if policy == "stop":
            text = f"{name} lacks {names}: add them and start again, or set mirror.schema_change"
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
        self._database.add(name, missing)

    def _follow(self, step: Changed) -> None:
        """Do to the target's table what a DDL did to the source's."""
        change, policy = step.change, self._config.schema_change
        name = self._name(change.schema, change.table)
        if policy == "ignore":
            return
        if policy == "stop":
            raise SinkError(
                f"{change.kind} of {change.schema}.{change.table} at "
                f"{change.journal_name}:{change.position}: mirror.schema_change is \"stop\"",
                "schema",
            )
        self._fits.clear()
        found = self._database.find(name)
        if change.kind == TRUNCATE:
            if found is not None:
                self._database.empty(name)
        elif change.kind == ERASE:
            if policy == "evolve" and found is not None and not change.renamed_to:
                self._database.drop(name)
        elif change.kind == RENAME:
            self._rename(change, name, found)
        elif step.meta is not None and change.arrow_schema is not None:
            self._alter(name, found, step.meta, change.arrow_schema)

    def _rename(self, change: TableChange, name: TableName, found: Found | None) -> None:
        schema, _, table = change.renamed_from.partition(".")
        old = self._name(schema, table)
        if old == name or self._database.find(old) is None:
            logger.info("%s is not here, so it is not renamed to %s", old, name)
        elif found is not None:
            text = f"{old} was renamed to {name}, which is in the target already"
            raise SinkError(text, "schema")
        else:
            self._database.rename(old, name)

    def _alter(
        self, name: TableName, found: Found | None, meta: TableMeta, schema: pa.Schema
    ) -> None:
        key = [column.name for column in meta.columns if column.is_key]
        columns = _specs(schema, meta, key)
        if not key and self._config.without_key != "rows":
            return  # what to do is decided when rows come
        self._fit(name, columns, key)
        if found is None or self._config.schema_change != "evolve":
            return
        gone = [each for each in found.columns if each not in {c.name for c in columns}]
        if gone:
            self._database.remove(name, gone)
        self._database.change(name, [c for c in columns if c.name in found.columns])


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
