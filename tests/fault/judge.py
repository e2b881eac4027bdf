"""Reads a subscriber's journal as it grows and judges it: order, repeats, every row once."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import ray_canal as canal
from tests.fault import journal
from tests.workload import Replica

COLUMNS = ("timeline", "journal_name", "position", "row", "transaction", "transaction_row")
NAMES_KEPT = 1 << 18
"""So many rows' names are known when a timeline begins: what was not acked is fewer."""

RowId = tuple[int, int, int, int]


class Judge(Replica):
    """A replica that takes rows as docs/reference/guarantees.md says: it keeps the highest id, and
    skips what is not above it. What was not acked may come again in a new timeline; it is known by
    its name then, and counts once."""

    def __init__(self, database: str, tables: str, path: Path) -> None:
        super().__init__(database)
        self.filter = re.compile(tables)
        self.path = path
        self._offset = 0
        self._highest_id: RowId = (0, 0, 0, 0)
        self._digest = hashlib.sha256()  # of ids without their timeline
        self._named = hashlib.sha256()
        self._names: deque[Any] = deque(maxlen=NAMES_KEPT)
        self._before: dict[Any, int] = {}  # names, and which of the rows they are
        self._acked_rows = self._acked_before = 0
        self.is_acked = False
        self.timelines = 0
        self.again_though_acked = 0
        self.rows = 0
        self.lives = 0
        self.subscribed = False

    def read(self) -> None:
        """Judge what is new in the journal. Raises AssertionError on disorder."""
        for offset, record in journal.read(self.path, self._offset):
            self._offset = offset
            self._take(*record)

    def _take(self, kind: str, value: Any) -> None:
        self.is_acked = kind == "ack"
        if kind == "start":
            self.lives += 1
            self.rewind()
        elif kind == "message":
            self.apply([[journal.from_ipc(batch) for batch in part] for part in value])
        elif kind == "ack":
            self.ack()
            self._acked_rows = self.rows
        else:
            self.subscribed = True

    def _name(self, table: str, row: dict[str, Any]) -> Any:
        """What the row is called on every server: its GTID and its number in the transaction. None:
        over Canal's protocol nobody knows."""
        return (row["transaction"], row["transaction_row"]) if row.get("transaction") else None

    def _taken(self, name: Any) -> None:
        """A row that had not come before."""

    def _change(self, table: str, row: dict[str, Any]) -> None:
        this, name = canal.row_id(row), self._name(table, row)
        if this <= self._highest_id:
            return
        assert self.filter.fullmatch(f"{self.database}.{table}"), f"{table} is not subscribed"
        if this[0] > self._highest_id[0] or not self.timelines:
            self.timelines += 1
            first = self.rows - len(self._names)
            self._before = {name: first + n for n, name in enumerate(self._names)}
            self._acked_before = self._acked_rows
        self._highest_id = this
        super()._change(table, row)
        if name in self._before:
            self.again_though_acked += self._before[name] < self._acked_before
            return
        self._digest.update(repr(this[1:]).encode())
        self._named.update(repr(name).encode())
        if name is not None:
            self._names.append(name)
        self._taken(name)
        self.rows += 1

    @property
    def marker(self) -> int:
        """The newest row of the table `marker`."""
        return max(self.tables.get("marker", {0: ()}))

    @property
    def named(self) -> bytes:
        """The digest of the rows' names, each once and in order."""
        return self._named.digest()

    def missing(self, *logs: Sequence[Path]) -> str:
        """What differs from the rows in the servers' binlogs, each once and in order; or "". Where
        there were several timelines, all of these logs together, by the names of rows."""
        ids, names = hashlib.sha256(), hashlib.sha256()
        known: set[Any] = set()
        count = 0
        for log in logs:
            found = [row for batch in canal.decode_files(log) for row in self._of_mine(batch)]
            for row in sorted(found, key=canal.row_id):
                name = self._name("", row)
                if name in known:
                    continue
                known |= set() if name is None else {name}
                ids.update(repr(canal.row_id(row)[1:]).encode())
                names.update(repr(name).encode())
                count += 1
        same = ids.digest() == self._digest.digest()
        if self.timelines > 1:
            same = names.digest() == self._named.digest()
        return "" if same else f"{self.rows} rows taken, the binlog has {count}"

    def _of_mine(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        names = batch.schema.metadata
        schema, table = names[b"canal.schema"].decode(), names[b"canal.table"].decode()
        if schema != self.database or not self.filter.fullmatch(f"{schema}.{table}"):
            return []
        wanted = set(COLUMNS) & set(batch.schema.names)
        found: list[dict[str, Any]] = batch.select(sorted(wanted)).to_pylist()
        return found
