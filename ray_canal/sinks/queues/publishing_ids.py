"""Numbers by which a broker knows messages again: the place of each in the log.

A number rises with the log's order and is the same whenever the message is made again, in whichever
batch. 64 bits have the position and, in the lower 31, the place within it: where a compressed event
or a snapshot's chunk has the entry (`inner`), and the message's number there. What does not fit,
the upper bits of both, is the message's *lane*: numbers of different lanes do not compare. Other
than in files of 8 GiB, long compressed transactions and snapshots it is (0, 0).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.model.arrays import Bools, Int32s, Int64s, UInt64s

_INNER_BITS, _POSITION_BITS = 31, 33
_MESSAGES_OF_A_ROW = 2
"""Most messages of one: the DELETE and the INSERT of a changed key."""


class PublishingIds(NamedTuple):
    """For each message its number, and its lane: upper bits of position and of place within it."""

    numbers: UInt64s
    positions: Int64s
    inners: Int64s

    def lanes(self, order: Int64s) -> Iterator[tuple[tuple[int, int], Int64s]]:
        """Yield (lane, messages) for each run of messages, in this order, that have one lane."""
        high, low = self.positions[order], self.inners[order]
        cuts = np.flatnonzero((np.diff(high) != 0) | (np.diff(low) != 0)) + 1
        for run in np.split(order, cuts):
            if len(run):
                yield (int(self.positions[run[0]]), int(self.inners[run[0]])), run


def publishing_ids(chunk: DecodedChunk, entries: Int32s) -> PublishingIds:
    """Return the numbers of messages of these entries of a chunk. The messages of one entry follow
    each other in log order; there are at most two a row."""
    events = chunk.events
    before = _before(chunk)[entries] + _numbers_within(entries)
    position, inner = (events[name][entries].astype(np.int64) for name in ("position", "inner"))
    low = (position & ((1 << _POSITION_BITS) - 1)).astype(np.uint64) << np.uint64(_INNER_BITS)
    within = (inner & ((1 << _INNER_BITS) - 1)) + before
    return PublishingIds(
        low + within.astype(np.uint64), position >> _POSITION_BITS, inner >> _INNER_BITS
    )


def _before(chunk: DecodedChunk) -> Int64s:
    """Return for each entry of a chunk the most messages that those before it at its place have;
    the tables of one DROP have one place."""
    events = chunk.events
    most = np.maximum(_MESSAGES_OF_A_ROW * events["rows"].astype(np.int64), 1)
    is_first = np.ones(len(events), np.bool_)
    is_first[1:] = np.diff(events["position"]) != 0
    is_first[1:] |= np.diff(events["inner"]) != 0
    return _since_first(np.cumsum(most) - most, is_first)


def _numbers_within(entries: Int32s) -> Int64s:
    """Return each message's number among those of its entry."""
    order = np.argsort(entries, kind="stable")
    ordered = entries[order]
    is_first = np.ones(len(entries), np.bool_)
    is_first[1:] = np.diff(ordered) != 0
    found: Int64s = np.empty(len(entries), np.int64)
    found[order] = _since_first(np.arange(len(entries), dtype=np.int64), is_first)
    return found


def _since_first(rising: Int64s, is_first: Bools) -> Int64s:
    """Return what each number has risen by since the first one of its group."""
    found: Int64s = rising - np.maximum.accumulate(np.where(is_first, rising, 0))
    return found
