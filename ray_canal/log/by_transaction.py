"""Find the end of a batch of whole transactions: transactions = true.

A batch ends behind a transaction's last entry: the last one that fits, or the first one whatever
its size. What the transaction is made of may lie on disk, however much it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ray_canal.log.ring import Slot
from ray_canal.log.subscriber import Subscriber, View

Slots = Iterable[tuple[Slot, int]]


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Plan of a batch. `end`: the log sequence after it, None: no transaction is complete.
    `missing`: the slot that must be read from disk before this is known. `full`: the batch ends
    before the log does."""

    end: int | None = None
    missing: Slot | None = None
    full: bool = False
    entries: int = 0


def plan(slots: Slots, subscriber: Subscriber, left: int, isolated: bool) -> BatchPlan:
    """Plan a batch from the slots that follow the subscriber's next entry. `left`: what the batch
    may cost."""
    end: int | None = None
    entries = cost = done = 0
    for slot, last in slots:
        first = max(subscriber.next - slot.first, 0)
        view = subscriber.view(slot)
        if slot.chunk is None and (view is None or first or slot.last_close >= 0):
            return BatchPlan(missing=slot) if end is None else BatchPlan(end, None, True, done)
        if view is None:
            return BatchPlan(end, entries=done)
        if slot.chunk is None:  # in the midst of a transaction
            entries, cost = entries + view.count, cost + view.cost
            continue
        low, ends = _ends(view, first, last)
        behind = np.searchsorted(view.admitted, ends + 1)  # admitted entries up to each end
        ends, behind, cut = _isolate(view, low, ends, behind, entries, isolated)
        costs = cost + view.costs[behind] - view.costs[low]
        fits = int(np.searchsorted(costs, left, side="right"))
        if not done and len(ends):  # one transaction at least, of those that it sees something of
            seen = 0 if entries else int(np.searchsorted(behind, low, side="right"))
            fits = max(fits, min(seen + 1, len(ends)))
        if fits:
            end = slot.first + int(ends[fits - 1]) + 1
            done = entries + int(behind[fits - 1]) - low
        if done and (cut or fits < len(ends) or cost >= left):
            return BatchPlan(end, None, True, done)
        entries, cost = entries + view.count - low, cost + view.cost - int(view.costs[low])
    return BatchPlan(end, None, done > 0 and cost >= left, done)


def _ends(view: View, first: int, last: int) -> tuple[int, np.ndarray]:
    """Return (admitted entries before index `first`, ends of transactions from there on)."""
    low = int(np.searchsorted(view.admitted, first))
    at, to = np.searchsorted(view.ends, (first, last))
    return low, view.ends[at:to]


def _isolate(
    view: View, low: int, ends: np.ndarray, behind: np.ndarray, before: int, isolated: bool
) -> tuple[np.ndarray, np.ndarray, bool]:
    """The ends that a batch may have under DDL isolation, and whether a DDL cuts it there."""
    ddl = view.ddl[np.searchsorted(view.ddl, low) :]
    if not isolated or not len(ddl) or not len(ends):
        return ends, behind, False
    alone = before == 0 and ddl[0] == low
    keep = int(np.searchsorted(behind, ddl[0], side="right"))
    if alone or not keep:
        keep = int(np.searchsorted(behind, ddl[0] + 1)) + 1
    return ends[:keep], behind[:keep], True


def needs_more(slots: Slots, subscriber: Subscriber, isolated: bool) -> bool:
    """Return whether a subscriber of whole transactions waits for the rest of one."""
    if not subscriber.terms.transactions or subscriber.marks:
        return False
    return not ready(slots, subscriber, 1, isolated, count_all=True)


def ready(
    slots: Slots, subscriber: Subscriber, wanted: int, isolated: bool, *, count_all: bool
) -> bool:
    """Return whether a full batch is there, or with `count_all` so many entries of whole
    transactions."""
    found = plan(slots, subscriber, 1 << 62 if count_all else wanted, isolated)
    if found.missing is not None:
        return True
    if found.end is None:
        return False
    return found.entries >= wanted if count_all else found.full
