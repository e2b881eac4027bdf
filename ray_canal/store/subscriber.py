"""One subscriber's place in the log: what it may see, what it was given, what it has acked."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ray_canal.filter import TableFilter
from ray_canal.protocol.position import EntryPosition, journal_key
from ray_canal.store.ring import Slot
from ray_canal.store.transaction_buffer import ROWDATA, LogChunk, closes

Ints = npt.NDArray[np.int64]

_DDL_FIRST, _DDL_LAST, _QUERY = 4, 11, 7  # Canal's EventType: CREATE … DINDEX, without QUERY


@dataclass(frozen=True, slots=True)
class View:
    """What one subscriber sees of one slot.

    `admitted`: indexes of its entries. `costs`: what the first n of them cost, for n = 0 … count
    (entries, or bytes of binlog). `ddl`: which of `admitted` are DDL.
    """

    admitted: Ints
    costs: Ints
    ddl: Ints
    count: int
    cost: int


@dataclass(slots=True)
class Mark:
    """An outstanding batch: log sequences [start, end)."""

    start: int
    end: int


@dataclass(slots=True)
class Subscriber:
    """`next` is what the next get starts at; everything before `acked` is done with. Log
    sequences."""

    client_id: int
    filter: TableFilter
    cursor: EntryPosition | None
    by_memory: bool
    next: int
    acked: int
    last_batch_id: int = 0
    marks: OrderedDict[int, Mark] = field(default_factory=OrderedDict)
    _views: dict[int, View] = field(default_factory=dict)
    # From this log sequence on nothing is at or before the cursor any more; None: not reached yet.
    _beyond_cursor: int | None = None

    def change_filter(self, table_filter: TableFilter) -> None:
        """From the next get on."""
        if table_filter != self.filter:
            self.filter = table_filter
            self._views.clear()

    def view(self, slot: Slot) -> View:
        """The slot through this subscriber's filter; worked out once."""
        found = self._views.get(slot.first)
        if found is None:
            found = self._views[slot.first] = self._look(slot)
        return found

    def forget(self, slot: Slot) -> None:
        """The slot has left the log."""
        self._views.pop(slot.first, None)

    def _look(self, slot: Slot) -> View:
        chunk, info = slot.chunk, slot.chunk.info
        mask = info.admitted(self.filter.admits)
        if chunk.visible is not None:
            mask &= chunk.visible
        if self.cursor is not None and (
            self._beyond_cursor is None or slot.first < self._beyond_cursor
        ):
            before = consumed(chunk, self.cursor)
            mask &= ~before
            if self._beyond_cursor is None and not before.all():
                self._beyond_cursor = slot.end
        admitted = np.flatnonzero(mask)
        costs = np.arange(len(admitted) + 1, dtype=np.int64)
        if self.by_memory:
            costs[1:] = np.cumsum(info.entries["length"][admitted], dtype=np.int64)
        kinds = info.entries["event_type"][admitted]
        is_ddl = (info.entries["kind"][admitted] == ROWDATA) & (kinds != _QUERY)
        is_ddl &= (kinds >= _DDL_FIRST) & (kinds <= _DDL_LAST)
        return View(admitted, costs, np.flatnonzero(is_ddl), len(admitted), int(costs[-1]))


def consumed(chunk: LogChunk, cursor: EntryPosition) -> npt.NDArray[np.bool_]:
    """Which entries of a chunk a subscriber with this cursor has consumed already.

    Raises ConfigError: the cursor belongs to binlog files of another name.
    """
    head, entries = chunk.info.head, chunk.info.entries
    if journal_key(head.journal_name) != journal_key(cursor.journal_name):
        before = EntryPosition(head.journal_name) < EntryPosition(cursor.journal_name)
        return np.full(len(entries), before)
    position, row = chunk.resume_position, chunk.resume_row
    below = (position < cursor.position) | ((position == cursor.position) & (row < cursor.row))
    equal = (position == cursor.position) & (row == cursor.row)
    # An entry without rows inside a transaction resumes where its predecessor does: with an equal
    # cursor it cannot be told whether it was consumed, so it comes (again).
    tells = (entries["rows"] > 0) | closes(entries)
    result: npt.NDArray[np.bool_] = below | (equal & tells)
    return result
