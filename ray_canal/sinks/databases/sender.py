"""One connection of a mirror: rows in transactions of its own, each with the place that it has come
to, in its row of the table of cursors.

A mirror has one sender, or several between which rows are shared out (mirror.py). A sender is shut
out as soon as another run has raised the epoch of its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ray_canal.sinks.databases.port import Database
from ray_canal.sinks.port import Cursor, SinkError, naming
from ray_canal.sinks.schema_follower import TableName

_GONE = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class TableWrite:
    """Change of a table: rows that go, then rows that are written. Without a `key` rows
    are added first, and `deletes` have all columns: each takes away one row that is like it."""

    source: tuple[str, str]
    name: TableName
    key: Sequence[str]
    deletes: pa.Table
    upserts: pa.Table

    def __len__(self) -> int:
        return int(self.deletes.num_rows + self.upserts.num_rows)


class Sender:
    """`row`: the name of its row. `place`: all up to it is in the target."""

    def __init__(self, row: str, database: Database) -> None:
        self.row = row
        self.database = database
        self.place: Cursor | None = None
        self.is_begun = False
        self._epoch = _GONE
        self._known: set[TableName] = set()

    def open(self) -> None:
        """Connect, shut out whoever wrote as this sender, and read the place. Raises SinkError."""
        self.forget()
        self.database.connect()
        self._epoch, place = self.database.take_over(self.row)
        self.place = Cursor.from_json(place) if place else None

    def begin(self) -> None:
        """Begin a transaction, unless one is open. Raises SinkError: another runner has taken
        over."""
        if self.is_begun:
            return
        if self.database.begin(self.row) != self._epoch:
            self.database.rollback()
            raise SinkError(
                f"sink {self.row}: another runner has taken over the target, or its row in the "
                "table of cursors was removed",
                "fenced",
            )
        self.is_begun = True

    def begin_ddl(self) -> None:
        """Prepare a change of a table: in the transaction, or, where that cannot be, right after a
        look at who may write. Raises SinkError: another runner has taken over."""
        self.begin()
        if not self.database.ddl_in_transaction:
            self.database.rollback()
            self.is_begun = False

    def commit(self, writes: Sequence[TableWrite], upto: Cursor | None) -> None:
        """Write rows and the place in one transaction. Raises SinkError."""
        self.begin()
        for write in writes:
            with naming(*write.source):
                self._write(write)
        self.database.commit(self.row, upto.to_json() if upto else "")
        self.is_begun = False
        self.place = upto

    def _write(self, write: TableWrite) -> None:
        database, name = self.database, write.name
        if name not in self._known:
            database.find(name)
            self._known.add(name)
        if not write.key and write.upserts.num_rows:
            database.upsert(name, (), write.upserts)
        if write.deletes.num_rows:
            (database.delete if write.key else database.delete_like)(name, write.deletes)
        if write.key and write.upserts.num_rows:
            database.upsert(name, write.key, write.upserts)

    def abort(self) -> None:
        self.forget()
        self.database.rollback()

    def forget(self) -> None:
        """Look at tables again."""
        self.is_begun = False
        self._known.clear()

    def close(self) -> None:
        self.forget()
        self.database.close()
