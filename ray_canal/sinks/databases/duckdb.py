"""A mirror in a DuckDB file: rows by Arrow, without a copy, and tables in the same transaction.

One process at a time may open a file for writing, which is what keeps a second runner out. Tables
are made without keys: DuckDB's unique indexes refuse a key that goes and comes in one transaction.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ray_canal.config import MirrorConfig
from ray_canal.sinks.column_specs import ColumnSpec
from ray_canal.sinks.databases.port import TransactionalDatabase, close_quietly
from ray_canal.sinks.net_change import plain
from ray_canal.sinks.port import Kind, SinkError, disk_error
from ray_canal.sinks.schema_follower import TableName, TargetTable
from ray_canal.sinks.target_checks import path_check
from ray_canal.source.setting_checks import CheckResult
from ray_canal.views.texts import decimal_texts

_ROWS = "canal_rows"
_ROW_ID = "rowid"
_HEADERS_BYTES = 3 * 4096
"""A file of DuckDB's begins with three headers, the first of them with its name."""
_CONVERTED = {("BLOB", "VARCHAR"): "decode({})", ("VARCHAR", "BLOB"): "encode({})"}
"""Conversions that a cast does otherwise: it gives the digits of bytes, and reads text as such."""


class DuckDatabase(TransactionalDatabase):
    """A `Database` of port.py; its databases are DuckDB's schemas."""

    _PARAMETER = "?"
    _LOCKED = ""

    def __init__(self, config: MirrorConfig, path: Path) -> None:
        super().__init__(config.cursor_database)
        self._path = path
        self._catalog = ""
        self._folds_case = True
        self._connection: duckdb.DuckDBPyConnection | None = None

    def connect(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = duckdb.connect(str(self._path))
        except OSError as error:
            raise disk_error(self._path, error) from None
        except duckdb.Error as error:  # another process has it, or the disk is full
            if "set lock" not in str(error):
                _remove_unfinished(self._path)
            raise SinkError(f"target: {error}", "retry") from None
        self._run("SET TimeZone = 'UTC'")
        # A schema may have the file's name, so every name is given whole.
        self._catalog = _quoted(str(self._run("SELECT current_database()")[0][0]))

    def unmade(self) -> CheckResult | None:
        return None if self._path.exists() else path_check(self._path)

    def triggers(self, name: TableName) -> list[str]:
        return []

    def close(self) -> None:
        connection, self._connection = self._connection, None
        close_quietly(connection, duckdb.Error)

    # --- the cursor ------------------------------------------------------------------------------

    def _own(self, table: str) -> str:
        return f"{self._catalog}.{_quoted(self._cursor_database)}.{table}"

    def _named(self, name: TableName) -> str:
        return f"{self._catalog}.{_quoted(name.database)}.{_quoted(name.table)}"

    def _make_schema(self, name: str) -> None:
        self._run(f"CREATE SCHEMA IF NOT EXISTS {self._catalog}.{_quoted(name)}")

    def take_over(self, sink: str) -> tuple[int, str]:
        self._sink = sink
        self._make_schema(self._cursor_database)
        self._run(
            f"CREATE TABLE IF NOT EXISTS {self._cursors}"
            " (sink VARCHAR, epoch BIGINT, place VARCHAR, written TIMESTAMPTZ)"
        )
        self._run(
            f"CREATE TABLE IF NOT EXISTS {self._sources}"
            " (sink VARCHAR, of_database VARCHAR, of_table VARCHAR, source VARCHAR)"
        )
        if not self._run(f"SELECT 1 FROM {self._cursors} WHERE sink = ?", sink):
            self._run(f"INSERT INTO {self._cursors} VALUES (?, 0, '', now())", sink)
        self._run(f"UPDATE {self._cursors} SET epoch = epoch + 1 WHERE sink = ?", sink)
        rows = self._run(f"SELECT epoch, place FROM {self._cursors} WHERE sink = ?", sink)
        return int(rows[0][0]), str(rows[0][1])

    def begin(self, sink: str) -> int:
        self._run("BEGIN TRANSACTION")
        rows = self._run(f"SELECT epoch FROM {self._cursors} WHERE sink = ?", sink)
        return int(rows[0][0]) if rows else -1

    def commit(self, sink: str, place: str) -> None:
        update = f"UPDATE {self._cursors} SET place = ?, written = now() WHERE sink = ?"
        self._run(update, place, sink)
        self._run("COMMIT")

    def rollback(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(duckdb.TransactionException):  # none is open
                self._connection.execute("ROLLBACK")

    # --- tables ----------------------------------------------------------------------------------

    def find(self, name: TableName) -> TargetTable | None:
        columns = self._run(
            "SELECT column_name FROM information_schema.columns"
            " WHERE lower(table_schema) = lower(?) AND lower(table_name) = lower(?)"
            " ORDER BY ordinal_position",
            *name,
        )
        return TargetTable(tuple(str(column) for (column,) in columns), None) if columns else None

    def create(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        self._make_schema(name.database)
        lines = [f"{_quoted(column)} {kind}" for column, kind in self._types(columns).items()]
        self._run(f"CREATE TABLE IF NOT EXISTS {self._named(name)} ({', '.join(lines)})")

    def add(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        kinds = self._types(columns)
        for column in columns:
            text = f"{_quoted(column.name)} {kinds[column.name]}"
            self._run(f"ALTER TABLE {self._named(name)} ADD COLUMN {text}")
            if column.fill is not None:
                values = pa.table({"fill": pa.array([column.fill], column.kind)})
                with self._registered(values):
                    fill = f"SET {_quoted(column.name)} = (SELECT fill FROM {_ROWS})"
                    self._run(f"UPDATE {self._named(name)} {fill}")

    def rename_columns(self, name: TableName, names: Mapping[str, str]) -> None:
        for old, new in names.items():
            text = f"RENAME COLUMN {_quoted(old)} TO {_quoted(new)}"
            self._run(f"ALTER TABLE {self._named(name)} {text}")

    def differing(self, name: TableName, columns: Sequence[ColumnSpec]) -> list[ColumnSpec]:
        found = self.types(name)
        wanted = self._types(columns)
        return [column for column in columns if found[column.name] != wanted[column.name]]

    def types(self, name: TableName) -> dict[str, str]:
        return {str(row[0]): str(row[1]) for row in self._run(f"DESCRIBE {self._named(name)}")}

    def change(self, name: TableName, columns: Sequence[ColumnSpec]) -> None:
        found, any_row = self.types(name), self.has_rows(name)
        for column, kind in self._types(columns).items():
            text = _quoted(column)
            value = _CONVERTED.get((found[column], kind), "{}::" + kind).format(text)
            value = value if any_row else "NULL"  # many casts are none that it knows
            try:
                self._run(f"ALTER TABLE {self._named(name)} ALTER {text} TYPE {kind} USING {value}")
            except SinkError as error:  # values that do not fit another type are no entry's fault
                raise SinkError(
                    str(error), "schema" if error.kind == "poison" else error.kind
                ) from None

    def remove(self, name: TableName, columns: Sequence[str]) -> None:
        for column in columns:
            self._run(f"ALTER TABLE {self._named(name)} DROP COLUMN {_quoted(column)}")

    def has_rows(self, name: TableName) -> bool:
        return bool(self._run(f"SELECT 1 FROM {self._named(name)} LIMIT 1"))

    def note_source(self, name: TableName, source: str) -> None:
        key = self._sink, *self._compared(name)
        same = "sink = ? AND of_database = ? AND of_table = ?"
        self._run(f"DELETE FROM {self._sources} WHERE {same}", *key)
        self._run(f"INSERT INTO {self._sources} VALUES (?, ?, ?, ?)", *key, source)

    def _rename(self, name: TableName, to: TableName) -> None:
        if to.database == name.database:
            self._run(f"ALTER TABLE {self._named(name)} RENAME TO {_quoted(to.table)}")
            return
        self._make_schema(to.database)
        self._run(f"CREATE TABLE {self._named(to)} AS SELECT * FROM {self._named(name)}")
        self._run(f"DROP TABLE {self._named(name)}")

    def empty(self, name: TableName) -> None:
        self._run(f"DELETE FROM {self._named(name)}")

    def drop(self, name: TableName) -> None:
        self._run(f"DROP TABLE IF EXISTS {self._named(name)}")

    def _types(self, columns: Sequence[ColumnSpec]) -> dict[str, str]:
        """Return the type that DuckDB gives each column, by the column's name."""
        schema = pa.schema([(column.name, column.kind) for column in columns])
        with self._registered(schema.empty_table()):
            found = self._run(f"DESCRIBE SELECT * FROM {_ROWS}")
        return {str(row[0]): str(row[1]) for row in found}

    # --- rows ------------------------------------------------------------------------------------

    def delete(self, name: TableName, keys: pa.Table) -> None:
        same = _same(keys.column_names, "=")
        with self._registered(keys):
            self._run(f"DELETE FROM {self._named(name)} t USING {_ROWS} s WHERE {same}")

    def upsert(self, name: TableName, key: Sequence[str], rows: pa.Table) -> None:
        if key:
            self.delete(name, rows.select(list(key)))
        columns = ", ".join(_quoted(column) for column in rows.column_names)
        with self._registered(rows):
            self._run(f"INSERT INTO {self._named(name)} ({columns}) SELECT {columns} FROM {_ROWS}")

    def delete_like(self, name: TableName, rows: pa.Table) -> None:
        """Rows that are equal are numbered on both sides, and those with the same number meet.
        Raises SinkError: a column has the name by which DuckDB tells its rows apart."""
        found = self.find(name)
        if found is not None and found.spelled(_ROW_ID) in found.columns:
            raise SinkError(
                f"{name} has no primary key, and a column {_ROW_ID}, the name by which DuckDB tells"
                " rows apart, so that one of several equal rows cannot be removed: leave the table "
                "out, or give the source's table a primary key",
                "schema",
            )
        columns = ", ".join(_quoted(column) for column in rows.column_names)
        number = f"row_number() OVER (PARTITION BY {columns}) AS canal_number"
        same = _same([*rows.column_names, "canal_number"], "IS NOT DISTINCT FROM")
        with self._registered(rows):
            self._run(
                f"DELETE FROM {self._named(name)} WHERE {_ROW_ID} IN (SELECT t.canal_row FROM"
                f" (SELECT {_ROW_ID} AS canal_row, {columns}, {number} FROM {self._named(name)}) t"
                f" JOIN (SELECT {columns}, {number} FROM {_ROWS}) s ON {same})"
            )

    @contextlib.contextmanager
    def _registered(self, rows: pa.Table) -> Any:
        """The rows under a name, for statements of the block."""
        columns = {name: _shown(rows[name]) for name in rows.column_names}
        connection = self._connected()
        connection.register(_ROWS, pa.table(columns))
        try:
            yield
        finally:
            connection.unregister(_ROWS)

    def _connected(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            raise SinkError("the target is not connected", "retry")
        return self._connection

    def _run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement. Raises SinkError."""
        connection = self._connected()
        try:
            return list(connection.execute(sql, values or None).fetchall())
        except duckdb.Error as error:
            raise SinkError(f"target: {error}, at {sql[:120]}", _kind(error)) from None


def _remove_unfinished(path: Path) -> None:
    """Remove a file whose headers a full disk has cut off: nothing is in it, and DuckDB would call
    it no database once there is room."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        begun = file.read(_HEADERS_BYTES)
        if not begun or (len(begun) < _HEADERS_BYTES and begun[8:12] == b"DUCK"):
            path.unlink()


def _kind(error: duckdb.Error) -> Kind:
    if isinstance(error, duckdb.ConversionException | duckdb.ConstraintException):
        return "poison"
    if isinstance(error, duckdb.IOException | duckdb.TransactionException):
        return "retry"
    if isinstance(error, duckdb.CatalogException | duckdb.BinderException):
        return "schema"
    return "fatal"


def _shown(column: pa.ChunkedArray) -> pa.Array:
    """A column as DuckDB reads it: it has no decimals of more than 38 digits."""
    values = plain(column)
    return decimal_texts(values) if pa.types.is_decimal256(values.type) else values


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _same(columns: Sequence[str], operator: str) -> str:
    return " AND ".join(f"t.{_quoted(name)} {operator} s.{_quoted(name)}" for name in columns)
