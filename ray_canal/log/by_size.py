"""Find the end of a batch that may end anywhere: Canal's rule, by entries or by bytes of binlog.

It holds what fits, one entry at least; under DDL isolation one DDL or none; and of chunks on disk
those of one only, for another one must be read back first.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ray_canal.log.batch import ChunkSlice, slice_of
from ray_canal.log.ring import Slot
from ray_canal.log.subscriber import Subscriber, View

Slots = Iterable[tuple[Slot, int]]


def slices(
    slots: Slots, subscriber: Subscriber, left: int, isolated: bool
) -> tuple[list[ChunkSlice], int]:
    """Return (the slices of a batch that may cost `left`, the log sequence after it)."""
    found: list[ChunkSlice] = []
    end = subscriber.next
    for slot, last in slots:
        view = subscriber.view(slot)
        if view is None or (view.count and (not view.whole or (found and slot.on_disk))):
            break
        low, high = _span(view, slot, subscriber.next, last)
        count, cut = _fits(view, low, high, left, isolated, nothing_yet=not found)
        stop = int(view.admitted[low + count - 1]) + 1 if cut and count else last
        if count:
            one = slice_of(subscriber, slot, stop)
            if one is not None:
                found.append(one)
            left -= int(view.costs[low + count] - view.costs[low])
        if count or not cut:
            end = slot.first + stop
        if cut or left <= 0 or (slot.on_disk and found):
            break
    return found, end


def ready(
    slots: Slots, subscriber: Subscriber, wanted: int, isolated: bool, *, count_all: bool
) -> bool:
    """Return whether a full batch is there, or with `count_all` so many entries; or something must
    be read back to tell."""
    available = 0
    for slot, last in slots:
        view = subscriber.view(slot)
        if view is None or (view.count and not view.whole):
            return True
        if not view.count:
            continue
        low, high = _span(view, slot, subscriber.next, last)
        if isolated and len(np.intersect1d(view.ddl, np.arange(low, high))):
            return True
        available += high - low if count_all else int(view.costs[high] - view.costs[low])
        if available >= wanted or (slot.on_disk and high > low):
            return True
    return False


def _fits(
    view: View, low: int, high: int, left: int, isolated: bool, *, nothing_yet: bool
) -> tuple[int, bool]:
    """Return (how many of the admitted entries [low, high) fit, True if the batch ends among
    them)."""
    count = high - low
    if not count:
        return 0, False
    limit = view.costs[low] + left
    fits = int(np.searchsorted(view.costs[low + 1 : high + 1], limit, side="right"))
    if nothing_yet:
        fits = max(fits, 1)
    if isolated:
        before = view.ddl[np.searchsorted(view.ddl, low) :] - low
        if len(before) and before[0] < fits:
            return (1 if nothing_yet and before[0] == 0 else int(before[0])), True
    return fits, fits < count


def _span(view: View, slot: Slot, next_sequence: int, last: int) -> tuple[int, int]:
    """Return which of a view's entries lie from the subscriber's next one on and before index
    `last`."""
    low = 0
    if next_sequence > slot.first:
        low = int(np.searchsorted(view.admitted, next_sequence - slot.first))
    high = view.count if last == slot.count else int(np.searchsorted(view.admitted, last))
    return low, high
