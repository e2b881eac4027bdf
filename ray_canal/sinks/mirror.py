"""A database that follows the source: rows by primary key, tables by policy, the place in the same
transaction.

What databases differ in is a `Database` (mysql.py, postgres.py). Here is what they share: what is
written in a transaction, and who may write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.config import MirrorConfig
from ray_canal.config.sink import TablePolicy
from ray_canal.sinks.net_change import image, net_change, of_one_schema, plain
from ray_canal.sinks.port import Changes, Cursor, Guarantee, Rows, SinkError, naming
from ray_canal.sinks.schema_follower import SchemaFollower, TableName, Tables
from ray_canal.sinks.table_moves import in_order


def close_quietly(connection: Any, *errors: type[Exception]) -> None:
    """Close a connection, if there is one; it may be broken already."""
    if connection is not None:
        with contextlib.suppress(*errors):
            connection.close()


class Database(Tables, Protocol):
    """A kind of database. Rows are written in a transaction between `begin` and `commit`; tables
    are changed in it, too, if `ddl_in_transaction`, else before it."""

    ddl_in_transaction: bool

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
    def rename(self, pairs: Mapping[TableName, TableName], where: str) -> None:
        """Give tables the names of each other, or names that are free. `where` is the statement's
        place; where tables change outside of the transaction, it is kept with the change."""
        ...

    def has_renamed(self, where: str) -> bool:
        """Return whether the statement there was done before, and its place not yet committed."""
        ...

    def delete(self, name: TableName, keys: pa.Table) -> None: ...
    def upsert(self, name: TableName, key: Sequence[str], rows: pa.Table) -> None: ...
    def delete_like(self, name: TableName, rows: pa.Table) -> None:
        """Remove, for each of these, one row that has its values."""
        ...


class SqlDatabase:
    """What databases do alike. `canal_table`, next to the cursors, has for each of a sink's tables
    of which source's table the rows are."""

    _PARAMETER = "%s"

    def __init__(self, cursor_database: str) -> None:
        self._cursor_database = cursor_database
        self._sink = ""
        self._folds_case = False  # names that differ in the case of letters alone are one

    @property
    def _sources(self) -> str:
        """The full name of `canal_table`."""
        raise NotImplementedError

    def _run(self, sql: str, *values: object) -> Sequence[tuple[Any, ...]]:
        """Run one statement. Raises SinkError."""
        raise NotImplementedError

    def _compared(self, name: TableName) -> TableName:
        """Return a name as the database tells tables apart."""
        return TableName(name.database.lower(), name.table.lower()) if self._folds_case else name

    def source_of(self, name: TableName) -> str:
        one = self._PARAMETER
        rows = self._run(
            f"SELECT source FROM {self._sources}"
            f" WHERE sink = {one} AND of_database = {one} AND of_table = {one}",
            self._sink,
            *self._compared(name),
        )
        return str(rows[0][0]) if rows else ""


class TransactionalDatabase(SqlDatabase):
    """One whose tables change in the transaction: what is not committed is not done."""

    ddl_in_transaction = True

    def has_renamed(self, where: str) -> bool:
        return False

    def rename(self, pairs: Mapping[TableName, TableName], where: str) -> None:
        free = TableName(self._cursor_database, "canal_free")
        for name, to in in_order(pairs, free):
            self._rename(name, to)

    def _rename(self, name: TableName, to: TableName) -> None:
        """Give a table a name that is free."""
        raise NotImplementedError


@dataclass
class _Run:
    """Rows of one table version that are to be written."""

    source: tuple[str, str]
    name: TableName
    key: list[str]
    columns: list[str]
    schema: pa.Schema
    batches: list[pa.RecordBatch]


class DatabaseFollower(SchemaFollower):
    """Names are given away all at once."""

    def __init__(
        self, policy: TablePolicy, database: Database, begin: Callable[[], None]
    ) -> None:
        super().__init__(policy, database, begin)
        self._database = database

    def _rename(self, named: Mapping[TableName, TableName], where: str) -> None:
        if self._database.has_renamed(where):
            return
        present = {old: new for old, new in named.items() if self._tables.find(old) is not None}
        for name in set(named.values()) - set(present):
            self._drop(name)
        if present:
            self._begin()
            self._database.rename(present, where)


class Mirror:
    """A sink into a database: exactly once."""

    guarantee: Guarantee = "exactly_once"

    def __init__(self, sink: str, config: MirrorConfig, database: Database) -> None:
        self._sink = sink
        self._database = database
        self._follower = DatabaseFollower(config, database, self._begin_ddl)
        self._epoch = 0
        self._begun = False
        self._runs: list[_Run] = []

    def open(self) -> Cursor | None:
        self._forget()
        self._database.connect()
        self._epoch, place = self._database.take_over(self._sink)
        return Cursor.from_json(place) if place else None

    def close(self) -> None:
        self._forget()
        self._database.close()

    def forget_place(self) -> None:
        """Let what comes next be written, whatever the target has; whoever writes now is shut
        out."""
        try:
            self.open()
            self._begin()
            self._database.commit(self._sink, "")
        finally:
            self.close()

    def abort(self) -> None:
        self._forget()
        self._database.rollback()

    def _forget(self) -> None:
        self._begun = False
        self._runs.clear()
        self._follower.forget()

    def write(self, changes: Changes) -> None:
        for step in changes.statements():
            if isinstance(step, list):
                with naming(step[0].change.schema, step[0].change.table):
                    self._follower.follow(step, changes.message.timeline)
            else:
                with naming(step.schema, step.table):
                    self._stage(step)

    def commit(self, upto: Cursor) -> None:
        database = self._database
        self._begin()
        for run in self._runs:
            with naming(*run.source):
                self._write_run(run)
        database.commit(self._sink, upto.to_json())
        self._begun = False
        self._runs = []

    def _write_run(self, run: _Run) -> None:
        if not run.key:
            self._without_key(run)
            return
        net = net_change(run.batches, run.key, run.columns)
        if net.deletes.num_rows:
            self._database.delete(run.name, net.deletes)
        if net.upserts.num_rows:
            self._database.upsert(run.name, run.key, net.upserts)

    def _begin(self) -> None:
        """Begin a transaction, unless one is open. Raises SinkError: another runner has taken
        over."""
        if self._begun:
            return
        if self._database.begin(self._sink) != self._epoch:
            self._database.rollback()
            raise SinkError(
                f"sink {self._sink}: another runner has taken over the target, or its row in the "
                "table of cursors was removed",
                "fenced",
            )
        self._begun = True

    def _begin_ddl(self) -> None:
        """Before a table is changed: in the transaction, or, where that cannot be, right after a
        look at who may write. Raises SinkError: another runner has taken over."""
        self._begin()
        if not self._database.ddl_in_transaction:
            self._database.rollback()
            self._begun = False

    # --- rows ------------------------------------------------------------------------------------

    def _stage(self, rows: Rows) -> None:
        if self._follower.leaves_out(rows):
            return
        name, columns = self._follower.columns(rows)
        schema = rows.batch.schema
        for run in reversed(self._runs):
            if run.name == name:
                if run.schema == schema:
                    run.batches.append(rows.batch)
                    return
                break
        source = rows.schema, rows.table
        self._runs.append(_Run(source, name, rows.key, columns, schema, [rows.batch]))

    def _without_key(self, run: _Run) -> None:
        """A table without a key: what comes is added first, then what goes is found by its values.
        A row that did both is there for a moment, and equal rows are the same."""
        table = of_one_schema(run.batches)
        kinds = plain(table["event_type"])
        came, gone = pc.not_equal(kinds, "DELETE"), pc.not_equal(kinds, "INSERT")
        after = image(table.filter(came), "after", run.columns)
        before = image(table.filter(gone), "before", run.columns)
        if after.num_rows:
            self._database.upsert(run.name, (), after)
        if before.num_rows:
            self._database.delete_like(run.name, before)
