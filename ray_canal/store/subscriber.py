"""One subscriber's place in the log: what it may see, what it was given, what it has acked."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ray_canal.filter import TableFilter
from ray_canal.protocol.position import EntryPosition, journal_key
from ray_canal.store.transaction_buffer import BEGIN, END, LogChunk

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Slot:
    """A chunk in the ring. `first` is the log sequence of its first entry; `payload` is opaque."""

    chunk: LogChunk
    payload: Any
    first: int

    @property
    def count(self) -> int:
        return len(self.chunk.info.entries)

    @property
    def end(self) -> int:
        return self.first + self.count


@dataclass(frozen=True, slots=True)
class View:
    """What one subscriber sees of one slot: indexes of admitted entries, and running byte counts."""

    admitted: Ints
    total_bytes: Ints  # after each admitted entry
    everything: bool


@dataclass(slots=True)
class Mark:
    """An outstanding batch: log sequences [start, end)."""

    start: int
    end: int


@dataclass(slots=True)
class Subscriber:
    """`next` is what the next get starts at; everything before `acked` is done with."""

    client_id: int
    filter: TableFilter
    skip: EntryPosition | None
    next: int
    acked: int
    last_batch_id: int = 0
    marks: OrderedDict[int, Mark] = field(default_factory=OrderedDict)
    _views: dict[int, View] = field(default_factory=dict)

    def change_filter(self, table_filter: TableFilter) -> None:
        """From the next get on."""
        if table_filter != self.filter:
            self.filter = table_filter
            self._views.clear()

    def view(self, slot: Slot) -> View:
        """The slot through this subscriber's filter; worked out once."""
        found = self._views.get(slot.first)
        if found is None:
            found = self._views[slot.first] = self._look(slot.chunk)
        return found

    def forget(self, slot: Slot) -> None:
        self._views.pop(slot.first, None)

    def _look(self, chunk: LogChunk) -> View:
        info = chunk.info
        admits = [self.filter.admits(schema, table) for schema, table in info.tables]
        mask = np.array([*admits, True], np.bool_)[info.entries["table"]]
        if chunk.visible is not None:
            mask &= chunk.visible
        if self.skip is not None:
            mask &= ~consumed(chunk, self.skip)
        admitted = np.flatnonzero(mask)
        lengths = info.entries["length"][admitted].astype(np.int64)
        return View(admitted, np.cumsum(lengths), len(admitted) == len(mask))


def consumed(chunk: LogChunk, cursor: EntryPosition) -> npt.NDArray[np.bool_]:
    """Which entries of a chunk a subscriber with this cursor has consumed already: a prefix.

    Raises ConfigError: the cursor belongs to binlog files of another name.
    """
    head, entries = chunk.info.head, chunk.info.entries
    here, there = journal_key(head.journal_name), journal_key(cursor.journal_name)
    if here != there:
        before = EntryPosition(head.journal_name) < EntryPosition(cursor.journal_name)
        return np.full(len(entries), before)
    position, row = chunk.resume_position, chunk.resume_row
    below = (position < cursor.position) | (
        (position == cursor.position) & (row < cursor.row)
    )
    equal = (position == cursor.position) & (row == cursor.row)
    # An entry without rows inside a transaction resumes where its predecessor does: with an equal
    # cursor it cannot be told whether it was consumed, so it comes (again). BEGIN is such an entry.
    tells = (entries["rows"] > 0) | (entries["kind"] == END)
    tells |= (entries["kind"] != BEGIN) & (row == 0)
    result: npt.NDArray[np.bool_] = below | (equal & tells)
    return result
