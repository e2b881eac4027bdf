"""One connection of a mirror: rows in transactions of its own, each with the place that it has come
to, in its row of the table of cursors.

A mirror has one sender, or several between which rows are shared out (mirror.py). A sender is shut
out as soon as another run has raised the epoch of its row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from ray_canal.sinks.databases.port import Database
from ray_canal.sinks.port import Cursor, SinkError, naming
from ray_canal.sinks.schema_follower import TableName

_GONE = -1


def _parts_of(text: str) -> tuple[str, dict[str, Any]]:
    """(destination, cursor) of a row's place. Raises SinkError."""
    try:
        tree = dict(json.loads(text))
    except (ValueError, TypeError) as error:
        raise SinkError(f"the target's cursor cannot be read ({error}): {text!r}") from None
    return str(tree.pop("destination", "")), tree


def refuse_another(sink: str, destination: str, place: str) -> None:
    """Raise SinkError if the row that a sink would write has the place of another destination."""
    other = _parts_of(place)[0] if place else ""
    if other not in ("", destination):
        raise SinkError(
            f"sink {sink}: in the target, this name is that of a sink of the destination {other}, "
            f"and this one is of {destination}: give it another name, or a "
            "mirror.cursor_database of its own; if the destination was renamed, and it is the same "
            "source still, remove the row from canal_cursor there"
        )


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
    """`row`: the name of its row. `destination`: whose changes it writes. `place`: all up to it is
    in the target."""

    def __init__(self, row: str, destination: str, database: Database) -> None:
        self.row = row
        self.destination = destination
        self.database = database
        self.place: Cursor | None = None
        self.is_begun = False
        self._epoch = _GONE
        self._known: set[TableName] = set()

    def open(self) -> None:
        """Connect, shut out whoever wrote as this sender, and read the place. Raises SinkError; the
        row is another destination's: "fatal", and that one goes on."""
        self.forget()
        self.database.connect()
        refuse_another(self.row, self.destination, self.database.place_of(self.row))
        self.database.destination = self.destination
        self._epoch, place = self.database.take_over(self.row)
        self.place = Cursor.from_json(json.dumps(_parts_of(place)[1])) if place else None

    def text(self, place: Cursor | None) -> str:
        """Return what the row has of a place."""
        tree = {"destination": self.destination, **asdict(place)} if place else {}
        return json.dumps(tree, sort_keys=True) if tree else ""

    def begin(self) -> None:
        """Begin a transaction, unless one is open. Raises SinkError: another runner has taken
        over."""
        if self.is_begun:
            return
        if self.database.begin(self.row) != self._epoch:
            self.database.rollback()
            raise SinkError(
                f"sink {self.row}: another runner has taken over the target (the same sink was "
                "started elsewhere, or another deployment has a sink of this name with this "
                "mirror.cursor_database), or its row in the table of cursors was removed",
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
        self.database.commit(self.row, self.text(upto))
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
