"""Port of a mirror to a kind of database, and what databases do alike."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.sinks.port import SinkError, source_named
from ray_canal.sinks.schema_follower import TableName, TargetTables
from ray_canal.sinks.table_moves import in_order
from ray_canal.source.setting_checks import CheckResult

OTHERS = "#"
"""Stands behind a sink's name in the rows of its other senders; names of sinks have none."""
RENAMES = "~"
"""Stands behind a sink's name in the row that has what was renamed (renames.py)."""


def close_quietly(connection: Any, *errors: type[Exception]) -> None:
    """Close a connection, if there is one; it may be broken already."""
    if connection is not None:
        with contextlib.suppress(*errors):
            connection.close()


def in_key_order(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return rows by their key: those that a target has in one page come one after the other, so it
    is read and written once. A key of a type that has no order leaves them as they are."""
    if not key:
        return rows
    try:
        return rows.take(pc.sort_indices(rows, [(name, "ascending") for name in key]))
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return rows


class Database(TargetTables, Protocol):
    """A kind of database. Rows are written in a transaction between `begin` and `commit`; tables
    are changed in it, too, if `ddl_in_transaction`, else before it."""

    ddl_in_transaction: bool
    destination: str
    """Whose changes it gets; "": not known."""

    def connect(self) -> None:
        """Connect to the target. Raises SinkError: "retry" if it is away, "fatal" if a person has
        to act."""
        ...
    def close(self) -> None: ...
    def place_of(self, sink: str) -> str:
        """Return the place in a sink's row, shutting out nobody; "": there is none."""
        ...

    def own_rows(
        self, table: str, columns: Sequence[str], which: Mapping[str, str]
    ) -> Sequence[tuple[Any, ...]]:
        """Return columns of the rows of a table next to the cursors that have these values."""
        ...

    def keep(self, row: str, text: str) -> None:
        """Have a text for a place in a row of the table of cursors, which is made for it."""
        ...

    def take_over(self, sink: str) -> tuple[int, str]:
        """Raise the sink's epoch in the table of cursors. Returns it, and the place ("": none)."""
        ...
    def begin(self, sink: str) -> int:
        """Begin a transaction that holds the sink's cursor. Returns its epoch; -1: it is gone."""
        ...
    def commit(self, sink: str, place: str) -> None: ...
    def rollback(self) -> None: ...
    def other_places(self, sink: str) -> dict[str, str]:
        """Return the places of a sink's other senders by the names of their rows, which are held
        until the transaction ends."""
        ...

    def replace_others(self, sink: str, rows: Sequence[str], place: str) -> None:
        """Have these rows, all at one place, instead of those of a sink's other senders."""
        ...

    def tells_keys(self, name: TableName) -> bool:
        """Return whether rows of a table meet by the bytes of its primary key alone."""
        ...

    def triggers(self, name: TableName) -> list[str]:
        """Return the triggers of a table that act on what is written there."""
        ...

    def unmade(self) -> CheckResult | None:
        """Return whether a target that is not there yet, and that connecting would make, can be
        made; None: it is there."""
        ...

    def missing_rights(self, names: Sequence[TableName], changes: bool) -> list[str]:
        """Return what the user lacks to write these tables, each as a statement that gives it.
        `changes`: DDL changes them, too."""
        ...

    def rename(self, pairs: Mapping[TableName, TableName], where: str) -> None:
        """Give tables the names of each other, or names that are free. `where` is the statement's
        place; where tables change outside of the transaction, it is kept with the change."""
        ...

    def has_renamed(self, where: str) -> bool:
        """Return whether the statement there was done before, and its place not yet committed."""
        ...

    def delete(self, name: TableName, keys: pa.Table) -> None: ...
    def upsert(self, name: TableName, key: Sequence[str], rows: pa.Table) -> None:
        """Put rows into a table; those of a known key are replaced. Without a key they are
        appended."""
        ...
    def delete_like(self, name: TableName, rows: pa.Table) -> None:
        """Remove, for each of these, one row that has its values."""
        ...


class SqlDatabase:
    """Base of all databases. `canal_table`, next to the cursors, has for each of a sink's tables
    of which source's table the rows are."""

    _PARAMETER = "%s"
    _TRIGGERS = (
        "SELECT trigger_name FROM information_schema.triggers"
        " WHERE event_object_schema = %s AND event_object_table = %s"
    )

    def __init__(self, cursor_database: str) -> None:
        self._cursor_database = cursor_database
        self._sink = ""
        self.destination = ""
        self._folds_case = False  # names that differ in the case of letters alone are one

    def _own(self, table: str) -> str:
        """The full name of a table next to the cursors."""
        raise NotImplementedError

    @property
    def _cursors(self) -> str:
        return self._own("canal_cursor")

    @property
    def _sources(self) -> str:
        return self._own("canal_table")

    def own_rows(
        self, table: str, columns: Sequence[str], which: Mapping[str, str]
    ) -> Sequence[tuple[Any, ...]]:
        where = " AND ".join(f"{column} = {self._PARAMETER}" for column in which)
        select = f"SELECT {', '.join(columns)} FROM {self._own(table)} WHERE {where}"
        return self._run(select, *which.values())

    def place_of(self, sink: str) -> str:
        try:
            rows = self._run(
                f"SELECT place FROM {self._cursors} WHERE sink = {self._PARAMETER}", sink
            )
        except SinkError as error:
            if error.kind == "schema":  # it was never written to by a sink
                return ""
            raise
        return str(rows[0][0]) if rows else ""

    def keep(self, row: str, text: str) -> None:
        one = self._PARAMETER
        if self.place_of(row):
            self._run(f"UPDATE {self._cursors} SET place = {one} WHERE sink = {one}", text, row)
        else:
            self._insert(row, text)

    def _insert(self, row: str, place: str) -> None:
        values = f"({self._PARAMETER}, 0, {self._PARAMETER})"
        self._run(f"INSERT INTO {self._cursors} (sink, epoch, place) VALUES {values}", row, place)

    _LOCKED = " FOR UPDATE"

    def other_places(self, sink: str) -> dict[str, str]:
        prefix = sink + OTHERS
        rows = self._run(
            f"SELECT sink, place FROM {self._cursors}"
            f" WHERE substr(sink, 1, {len(prefix)}) = {self._PARAMETER}{self._LOCKED}",
            prefix,
        )
        return {str(row): str(place) for row, place in rows}

    def replace_others(self, sink: str, rows: Sequence[str], place: str) -> None:
        one = self._PARAMETER
        for row in self.other_places(sink):
            self._run(f"DELETE FROM {self._cursors} WHERE sink = {one}", row)
        for row in rows:
            self._insert(row, place)

    def tells_keys(self, name: TableName) -> bool:
        return False

    def triggers(self, name: TableName) -> list[str]:
        return sorted({str(row[0]) for row in self._run(self._TRIGGERS, *name)})

    def unmade(self) -> CheckResult | None:
        return None

    def missing_rights(self, names: Sequence[TableName], changes: bool) -> list[str]:
        return []

    def _run(self, sql: str, *values: object) -> Sequence[tuple[Any, ...]]:
        """Run one statement. Raises SinkError."""
        raise NotImplementedError

    def _compared(self, name: TableName) -> TableName:
        """Return a name as the database tells tables apart."""
        return TableName(name.database.lower(), name.table.lower()) if self._folds_case else name

    def source_of(self, name: TableName) -> str:
        one, (database, table) = self._PARAMETER, self._compared(name)
        where = f"of_database = {one} AND of_table = {one}"
        select = f"SELECT source, sink FROM {self._sources} WHERE {where}"
        rows = self._run(f"{select} AND sink = {one}", database, table, self._sink)
        if rows:
            return str(rows[0][0])
        others = self._run(select, database, table)  # another sink's: it is not free either
        named = [
            source_named(str(source), self._destination_of(str(sink)), self.destination)
            for source, sink in others
        ]
        return min(named, key=len, default="")

    def _destination_of(self, sink: str) -> str:
        """Return the destination of a sink that has come to a place; ""."""
        place = self.place_of(sink)
        return str(json.loads(place).get("destination", "")) if place else ""


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
