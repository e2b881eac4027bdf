"""Follow which transaction is open after each chunk, from infos alone, in the log's order."""

from __future__ import annotations

import numpy as np

from ray_canal.binlog.chunk import EVENT_CLOSES, ChunkInfo
from ray_canal.model.arrays import Int64s
from ray_canal.model.log_context import OpenTransaction
from ray_canal.model.savepoints import Savepoints


def closing_entries(info: ChunkInfo) -> Int64s:
    """Indexes of the entries that end a transaction."""
    return np.flatnonzero(info.entries["flags"] & EVENT_CLOSES)


def begins(info: ChunkInfo, entries: Int64s) -> Int64s:
    """Return where the transactions of these entries begin: at their GTID events, else at the
    entries themselves, which are then their first."""
    first = info.entries[entries]
    positions = first["position"].astype(np.int64)
    if len(info.gtids):
        numbers = first["transaction"]
        positions = np.where(numbers >= 0, info.gtids["position"][numbers], positions)
    return positions


class OpenTransactions:
    """Open transactions of a log, chunk by chunk. `now`: the one that is open at the log's present
    end."""

    def __init__(self) -> None:
        self.now: OpenTransaction | None = None
        self._journal_name = ""

    def add(self, info: ChunkInfo, closing: Int64s | None = None) -> OpenTransaction | None:
        """Take the next chunk; the transaction that was open before it. `closing`: the chunk's
        closing_entries, if they are known."""
        if info.head.journal_name != self._journal_name:  # no transaction spans two files
            self._journal_name, self.now = info.head.journal_name, None
        before, entries = self.now, info.entries
        ends = closing_entries(info) if closing is None else closing
        first = int(ends[-1]) + 1 if len(ends) else 0
        if first == len(entries):
            self.now = None if len(entries) else before
            return before
        goes_on = before if first == 0 else None
        self.now = _open_from(info, first, goes_on)
        return before


def _open_from(info: ChunkInfo, first: int, before: OpenTransaction | None) -> OpenTransaction:
    """Return the transaction of entry `first` and later ones, which began `before` the chunk."""
    entries = info.entries[first:]
    if before is None:
        before = OpenTransaction(int(begins(info, np.array([first]))[0]), 0, ())
    rows = {(schema, table): count for schema, table, count in before.tables}
    changed = entries[entries["rows"] > 0]
    counts = np.bincount(changed["table"], changed["rows"], len(info.tables)).astype(np.int64)
    for number in np.flatnonzero(counts).tolist():
        name = info.tables[number]
        rows[name] = rows.get(name, 0) + int(counts[number])
    tables = tuple((schema, table, count) for (schema, table), count in rows.items())
    found = Savepoints(before.begin, before.savepoints, before.undone)
    for statement in info.savepoints:
        if statement.entry >= first:
            found.add(statement)
    total = before.rows + int(counts.sum())
    return OpenTransaction(before.begin, total, tables, found.known, found.undone)
