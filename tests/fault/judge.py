"""Reads a subscriber's journal as it grows and judges it: order, repeats, every row once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray_canal as canal
from tests.fault import journal
from tests.workload import Replica

RowId = tuple[str, int, int, int]


def row_id(row: dict[str, Any]) -> RowId:
    base, _, number = row["journal_name"].rpartition(".")
    return base, int(number), row["position"], row["row"]


class Judge(Replica):
    """A replica that takes each row once, by its id, and knows which ids it took."""

    def __init__(self, database: str, tables: str, path: Path) -> None:
        super().__init__(database)
        self.filter = re.compile(tables)
        self._path = path
        self._offset = 0
        self._once: RowId = ("", 0, 0, 0)
        self._digest = hashlib.sha256()
        self.rows = 0
        self.lives = 0
        self.subscribed = False

    def read(self) -> None:
        """Judge what is new in the journal. Raises AssertionError on disorder."""
        for offset, record in journal.read(self._path, self._offset):
            self._offset = offset
            self._take(*record)

    def _take(self, kind: str, value: Any) -> None:
        if kind == "start":
            self.lives += 1
            self.rewind()
        elif kind == "message":
            self.apply([[journal.from_ipc(batch) for batch in part] for part in value])
        elif kind == "ack":
            self.ack()
        else:
            self.subscribed = True

    def _change(self, table: str, row: dict[str, Any]) -> None:
        this = row_id(row)
        if this <= self._once:
            return
        assert self.filter.fullmatch(f"{self.database}.{table}"), f"{table} is not subscribed"
        self._once = this
        self._digest.update(repr(this).encode())
        self.rows += 1
        super()._change(table, row)

    @property
    def marker(self) -> int:
        """The newest row of the table `marker`."""
        return max(self.tables.get("marker", {0: ()}))

    def missing(self, binlogs: Sequence[Path]) -> str:
        """What differs from the rows in the server's binlog, each once and in order; or ""."""
        found: list[RowId] = []
        for batch in canal.decode_files(binlogs):
            names = batch.schema.metadata
            schema, table = names[b"canal.schema"].decode(), names[b"canal.table"].decode()
            if schema == self.database and self.filter.fullmatch(f"{schema}.{table}"):
                places = batch.select(["journal_name", "position", "row"]).to_pylist()
                found.extend(row_id(place) for place in places)
        digest = hashlib.sha256()
        for this in sorted(found):
            digest.update(repr(this).encode())
        same = digest.digest() == self._digest.digest()
        return "" if same else f"{self.rows} rows taken, the binlog has {len(found)}"
