"""Rows of XA transactions that are prepared, in a table next to the cursors of a mirror: written in
the transaction that commits the place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ray_canal.sinks.databases.sender import Sender, TableWrite
from ray_canal.sinks.port import Cursor
from ray_canal.sinks.prepared_table import COLUMNS, TABLE, PreparedTable
from ray_canal.sinks.schema_follower import TableName


class MirrorPrepared(PreparedTable):
    """The table of a database, which has those of all its sinks; `sender` writes it."""

    def __init__(self, sink: str, sender: Sender, database: str) -> None:
        super().__init__(sink)
        self._sender = sender
        self._name = TableName(database, TABLE)
        self._is_made = False
        self.keeps_all = False
        """Rows are kept, too, where their XA COMMIT comes in the same message: of several senders
        one may have committed that message, and get it again with another one's rows, cut
        otherwise."""

    def has(self, xa_id: str) -> bool:
        return self.keeps_all or super().has(xa_id)

    def open(self) -> None:
        """Look what there is, once the sender is open. Raises SinkError."""
        self._is_made = self._sender.database.find(self._name) is not None
        super().open()

    @property
    def place(self) -> Cursor | None:
        return self._sender.place

    def write(self) -> list[TableWrite]:
        """Return what the sender's next commit is to write."""
        change = self._change()
        if change is None:
            return []
        return [TableWrite(source=("", ""), name=self._name, key=["id"], **change._asdict())]

    def _read(
        self, columns: Sequence[str], which: Mapping[str, str]
    ) -> Sequence[tuple[Any, ...]]:
        return self._sender.database.own_rows(TABLE, columns, which) if self._is_made else ()

    def _have_table(self) -> None:
        if not self._is_made:
            self._sender.begin_ddl()
            self._sender.database.create(self._name, COLUMNS)
            self._is_made = True
