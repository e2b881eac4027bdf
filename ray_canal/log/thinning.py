"""Choose the entries that are shown (Canal: EntryEventSink): no silent ones, and only some of
transactions that say little.

A transaction that is shown although it says little moves cursors on. An entry that is not shown
still counts in the log: its place, and what a cursor counts.

Subscribers have filters of their own, so a transaction may be empty for one of them alone. Which of
those it gets must not depend on when it asks, so they are chosen for all subscribers when a chunk
enters the log (`pulses`): about one in 8,192 transactions, and one in 5 seconds of log time.
"""

from __future__ import annotations

import numpy as np

from ray_canal.binlog.chunk import EVENT_SILENT
from ray_canal.model.arrays import Bools, Int64s, Records
from ray_canal.model.canal_types import BEGIN, END

THIN_COUNT, THIN_SECONDS = 8192, 5
"""One empty transaction passes after so many, or so many seconds of log time. Canal counts
BEGIN and END apart where both are dropped: then one passes after half as many."""

_NONE: Int64s = np.zeros(0, np.int64)


class _Passes:
    """A rule by which one of many passes: after the last one that did, and `count` others or
    THIN_SECONDS."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._thinned = 0
        self._thinned_at = 0

    def of(self, seconds: Int64s) -> list[int]:
        """Return which of these pass, in the log's order; `seconds` are their times."""
        passes: list[int] = []
        at = 0
        while at < len(seconds):
            # Up to the next one that passes: one step for each that does, none for those that do
            # not.
            room = self._count - self._thinned
            late = np.abs(seconds[at : at + room + 1] - self._thinned_at) > THIN_SECONDS
            step = int(late.argmax()) if late.any() else room
            if at + step >= len(seconds):
                self._thinned += len(seconds) - at
                break
            at += step
            passes.append(at)
            self._thinned, self._thinned_at = 0, int(seconds[at])
            at += 1
        return passes


class Thinning:
    """Rules of thinning. `empty`: of transactions without any shown entry between BEGIN and END
    only some pass (Canal's default). `entries`: of all BEGIN and END entries only some pass, in
    pairs (Canal: filter.transaction.entry)."""

    def __init__(self, empty: bool, entries: bool) -> None:
        self._empty = _Passes(THIN_COUNT) if empty and not entries else None
        self._pairs = _Passes(THIN_COUNT // 2) if entries else None
        self._end_passes = True
        self._passed: Int64s = _NONE
        self._seconds = self._count = 0

    def visible(self, entries: Records, thins: bool = True) -> Bools | None:
        """Return which of a chunk's entries (ENTRY) are shown; None: all of them. `thins`: as of
        ChunkInfo."""
        self._passed = _NONE
        if not thins and self._pairs is None:
            return None
        shown: Bools = entries["flags"] & EVENT_SILENT == 0
        chosen = np.flatnonzero(shown)
        kinds = entries["kind"]
        if len(chosen) < len(entries):
            kinds = kinds[chosen]
        if self._empty is not None:
            begins = np.flatnonzero((kinds[:-1] == BEGIN) & (kinds[1:] == END))
            if len(begins):
                passes_of_empty = self._empty.of(_seconds(entries, chosen[begins]))
                self._passed = chosen[begins[passes_of_empty]]
                dropped = np.delete(begins, passes_of_empty)
                shown[chosen[dropped]] = shown[chosen[dropped + 1]] = False
        if self._pairs is not None:
            begins, ends = np.flatnonzero(kinds == BEGIN), np.flatnonzero(kinds == END)
            passes = np.zeros(len(begins) + 1, np.bool_)
            passes[-1] = self._end_passes  # index -1: begun in a chunk before
            passes[self._pairs.of(_seconds(entries, chosen[begins]))] = True
            shown[chosen[begins]] = passes[:-1]
            shown[chosen[ends]] = passes[np.searchsorted(begins, ends) - 1]
            if len(begins):
                self._end_passes = bool(passes[-2])
        return None if shown.all() else shown

    def pulses(self, entries: Records, shown: Bools | None) -> Int64s | None:
        """The transactions that a subscriber gets although they are empty for it: indexes of their
        BEGINs in the chunk that `visible` has seen last, which has `shown` these. None: it gets all
        of them."""
        if self._empty is None:
            return None
        is_begin = entries["kind"] == BEGIN
        begins = np.flatnonzero(is_begin if shown is None else is_begin & shown)
        if not len(begins):
            return _NONE
        seconds = _seconds(entries, begins)
        if int(seconds.max()) + THIN_SECONDS < self._seconds:
            self._seconds = 0  # the clock was set back, or this is another server's
        periods = np.maximum.accumulate(np.append(self._seconds, seconds)) // THIN_SECONDS
        first = np.flatnonzero(periods[1:] != periods[:-1])  # of its five seconds
        periods = periods[1:]
        if len(self._passed):  # enough for the five seconds that they lie in
            taken = periods[np.searchsorted(begins, self._passed)]
            first = first[~np.isin(periods[first], taken)]
        counted = np.arange(THIN_COUNT - self._count - 1, len(begins), THIN_COUNT)
        self._seconds = max(self._seconds, int(seconds.max()))
        self._count = (self._count + len(begins)) % THIN_COUNT
        if not (len(first) or len(counted) or len(self._passed)):
            return _NONE  # of a small chunk nearly always
        chosen: Int64s = np.union1d(begins[np.union1d(first, counted)], self._passed)
        return chosen


def without_empty(entries: Records, admitted: Int64s, pulses: Int64s) -> Int64s:
    """Return those of a chunk's admitted entries (indexes) that a subscriber gets: not the BEGIN
    and END of transactions without anything in between, but for the pulses."""
    kinds = entries["kind"][admitted]
    begins = np.flatnonzero((kinds[:-1] == BEGIN) & (kinds[1:] == END))
    if len(begins):
        begins = begins[~np.isin(admitted[begins], pulses)]
    if not len(begins):
        return admitted
    kept: Int64s = np.delete(admitted, np.concatenate([begins, begins + 1]))
    return kept


def _seconds(entries: Records, chosen: Int64s) -> Int64s:
    times: Int64s = entries["timestamp"][chosen].astype(np.int64)
    return times
