"""Where a destination's rows come from: tables by rate, and the largest transactions.

Counted by chunk with arrays, never by entry: what it costs does not depend on how many rows there
are.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ray_canal.binlog.chunk import EVENT_CLOSES, ChunkInfo
from ray_canal.model.arrays import Int64s
from ray_canal.model.reports import TableTraffic, TransactionReport

TABLES_MAX = 50
"""So many are reported: those with the highest rates, then those with the most rows."""
_TABLES_KEPT_MAX = 4096
TRANSACTIONS_MAX = 10
_RECENT_S = 10.0
_REMEMBERED_S = 3600.0

Name = tuple[str, str]
Begun = tuple[str, int, int]
"""File, offset and rows so far of a transaction that is open."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One that ended: where its first event here begins, its size, and when it was committed
    (seconds since the epoch)."""

    journal_name: str
    position: int
    rows: int
    bytes: int
    time: int


class Traffic:
    """One destination's, since its process began."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._totals: dict[Name, tuple[int, int]] = {}
        self._lately: deque[tuple[float, dict[Name, tuple[int, int]]]] = deque()
        self._largest: list[tuple[float, Transaction]] = []
        self._open: Begun | None = None
        self.transactions = 0

    def note(self, info: ChunkInfo) -> None:
        """Count a chunk that was put into the log."""
        if not len(info.entries):
            return
        now = self._clock()
        found = _by_table(info)
        if found:
            self._lately.append((now, found))
            for name, (rows, size) in found.items():
                before = self._totals.get(name, (0, 0))
                self._totals[name] = before[0] + rows, before[1] + size
            if len(self._totals) > _TABLES_KEPT_MAX:
                self._forget_small()
        self._note_transactions(info, now)
        self._forget_old(now)

    def begin(self) -> None:
        """Forget what is open: the log begins again at another place."""
        self._open = None

    def tables(self) -> list[TableTraffic]:
        """Return rows and bytes by table, a second and in all; the busiest first."""
        now = self._clock()
        self._forget_old(now)
        seconds = max(min(_RECENT_S, now - self._since), 1e-3)
        lately: dict[Name, tuple[int, int]] = {}
        for _, found in self._lately:
            for name, (rows, size) in found.items():
                before = lately.get(name, (0, 0))
                lately[name] = before[0] + rows, before[1] + size
        ranked = sorted(
            self._totals,
            key=lambda name: (lately.get(name, (0, 0))[1], self._totals[name][1]),
            reverse=True,
        )
        return [
            {
                "table": ".".join(name),
                "rows_per_second": lately.get(name, (0, 0))[0] / seconds,
                "bytes_per_second": lately.get(name, (0, 0))[1] / seconds,
                "rows": self._totals[name][0],
                "bytes": self._totals[name][1],
            }
            for name in ranked[:TABLES_MAX]
        ]

    def largest(self) -> list[TransactionReport]:
        """Return the largest transactions of the last hour, the largest first."""
        self._forget_old(self._clock())
        return [
            {
                "position": f"{each.journal_name}:{each.position}",
                "rows": each.rows,
                "bytes": each.bytes,
                "time": each.time,
            }
            for _, each in self._largest
        ]

    def _note_transactions(self, info: ChunkInfo, now: float) -> None:
        entries, name = info.entries, info.head.journal_name
        ends: Int64s = np.flatnonzero(entries["flags"] & EVENT_CLOSES)
        begun = self._open or (name, int(entries["position"][0]), 0)
        if not len(ends):
            self._open = (*begun[:2], begun[2] + int(entries["rows"].sum()))
            return
        self.transactions += len(ends)
        # By offsets: events of one compressed event have its length each.
        until = entries["position"][ends] + entries["length"][ends]
        sizes = until.copy()
        sizes[1:] -= until[:-1]
        sizes[0] -= begun[1]
        least = self._largest[-1][1].bytes if len(self._largest) == TRANSACTIONS_MAX else 0
        if int(sizes.max()) > least:
            self._keep_largest(info, now, ends, sizes, begun)
        rest, self._open = int(ends[-1]) + 1, None
        if rest < len(entries):
            self._open = name, int(entries["position"][rest]), int(entries["rows"][rest:].sum())

    def _keep_largest(
        self, info: ChunkInfo, now: float, ends: Int64s, sizes: Int64s, begun: Begun
    ) -> None:
        entries, chosen = info.entries, np.arange(len(sizes))
        if len(sizes) > TRANSACTIONS_MAX:
            chosen = np.argpartition(sizes, -TRANSACTIONS_MAX)[-TRANSACTIONS_MAX:]
        for each in map(int, chosen):
            first, last = int(ends[each - 1]) + 1 if each else 0, int(ends[each])
            name, position = info.head.journal_name, int(entries["position"][first])
            rows = int(entries["rows"][first : last + 1].sum())
            if each == 0:
                name, position, rows = begun[0], begun[1], rows + begun[2]
            when = int(entries["timestamp"][last])
            self._largest.append((now, Transaction(name, position, rows, int(sizes[each]), when)))
        self._largest.sort(key=lambda one: one[1].bytes, reverse=True)
        del self._largest[TRANSACTIONS_MAX:]

    def _forget_old(self, now: float) -> None:
        while self._lately and now - self._lately[0][0] > _RECENT_S:
            self._lately.popleft()
        if any(now - one[0] > _REMEMBERED_S for one in self._largest):
            self._largest = [one for one in self._largest if now - one[0] <= _REMEMBERED_S]

    def _forget_small(self) -> None:
        """Keep the tables with the most bytes, where there are very many."""
        kept = sorted(self._totals, key=lambda name: self._totals[name][1], reverse=True)
        self._totals = {name: self._totals[name] for name in kept[: _TABLES_KEPT_MAX // 2]}


def _by_table(info: ChunkInfo) -> dict[Name, tuple[int, int]]:
    """Return rows and bytes of the row events of each table of a chunk."""
    entries = info.entries
    at = np.flatnonzero(entries["rows"])
    if not len(at):
        return {}
    tables, count = entries["table"][at], len(info.tables)
    rows = np.bincount(tables, weights=entries["rows"][at], minlength=count)
    lengths = entries["length"][at]
    if entries["inner"][at].any():  # these share the length of the event that they came in
        _, which, shared = np.unique(
            entries["position"][at], return_inverse=True, return_counts=True
        )
        lengths = lengths / shared[which]
    sizes = np.bincount(tables, weights=lengths, minlength=count)
    found: dict[Name, tuple[int, int]] = {}
    for index in np.flatnonzero(rows):
        name = info.tables[index]
        before = found.get(name, (0, 0))
        found[name] = before[0] + int(rows[index]), before[1] + int(sizes[index])
    return found
