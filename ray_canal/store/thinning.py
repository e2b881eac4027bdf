"""Which entries are shown at all (Canal: EntryEventSink): no silent ones, and of transactions that
say little only some.

A transaction that is shown although it says little moves cursors on. An entry that is not shown
still counts in the log: its place, and what a cursor counts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ray_canal.binlog.chunk import EVENT_SILENT
from ray_canal.store.flush import BEGIN, END

THIN_COUNT, THIN_SECONDS = 8192, 5
"""Of empty transactions one passes after so many, or so many seconds of log time. Canal counts
BEGIN and END apart where both are dropped: then one passes after half as many."""

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


class _Passes:
    """One of many passes: behind the last one that did, after `count` others or THIN_SECONDS."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._thinned = 0
        self._thinned_at = 0

    def of(self, seconds: Ints) -> list[int]:
        """Which of these pass, in the log's order; `seconds` are their times."""
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
    """`empty`: of transactions without any shown entry between BEGIN and END only some pass
    (Canal's default). `entries`: of all BEGIN and END entries only some pass, in pairs (Canal:
    filter.transaction.entry)."""

    def __init__(self, empty: bool, entries: bool) -> None:
        self._empty = _Passes(THIN_COUNT) if empty and not entries else None
        self._pairs = _Passes(THIN_COUNT // 2) if entries else None
        self._end_passes = True

    def visible(self, entries: npt.NDArray[np.void], thins: bool = True) -> Bools | None:
        """Which of a chunk's entries (ENTRY) are shown; None: all of them. `thins`: as of
        ChunkInfo."""
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
                dropped = np.delete(begins, self._empty.of(_seconds(entries, chosen[begins])))
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


def _seconds(entries: npt.NDArray[np.void], chosen: Ints) -> Ints:
    times: Ints = entries["timestamp"][chosen].astype(np.int64)
    return times
