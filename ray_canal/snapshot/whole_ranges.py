"""How far a snapshot's tables are in the log: ranges of a table are begun in the order of its key,
and one may be there as a whole later than those behind it."""

from __future__ import annotations

from collections import deque

from ray_canal.model.snapshot_ledger import Border
from ray_canal.snapshot.plan import PlannedRange


class WholeRanges:
    """The ranges of one attempt. A subscriber that has acked everything up to a border's chunk is
    beyond this border."""

    def __init__(self) -> None:
        self._begun: dict[int, deque[PlannedRange]] = {}
        self._whole: set[int] = set()
        self._reached: dict[int, Border] = {}

    def begin(self, planned: PlannedRange) -> None:
        """Note that a range is about to be read."""
        self._begun.setdefault(planned.table, deque()).append(planned)

    def add(self, planned: PlannedRange) -> None:
        """Note that all rows of a range are in the log, or about to be."""
        self._whole.add(planned.order.number)
        begun = self._begun[planned.table]
        while begun and begun[0].order.number in self._whole:
            first = begun.popleft()
            self._whole.remove(first.order.number)
            self._reached[first.table] = first.upto

    def take(self, table: int) -> Border | None:
        """Take the border up to which the log has a table; None: it has not moved since."""
        return self._reached.pop(table, None)

    def take_all(self) -> dict[int, Border]:
        """Take the borders, by table, that have moved and were not taken."""
        reached, self._reached = self._reached, {}
        return reached
