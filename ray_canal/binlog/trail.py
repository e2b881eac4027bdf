"""Identify the last transactions before a place by their content: how a cursor finds its place in
another server's log where neither GTIDs nor commit times name a transaction.

A trail is the text of their digests, oldest first. kernels/framing/digest.py says what a digest is;
nothing here needs a kernel, as a destination's store keeps trails, too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ray_canal.model.arrays import Int64s, UInt64s

TRAIL_MAX = 16
"""So many transactions: 256 characters in a cursor."""
DIGEST_CHARACTERS = 16

# As in kernels/framing/digest.py.
PRIMES = (2147483647, 2147483629)
BASES = (1103515245, 1664525013)
END, FIRST, SECOND, BYTES, BEGINS = range(5)


@dataclass(frozen=True, slots=True)
class Closed:
    """Transactions that end in a chunk: the offset after each, and their digests."""

    behind: Int64s
    digests: UInt64s

    def trail_at(self, before: str, position: int) -> str:
        """The trail of a place in the chunk, with the one at its beginning."""
        count = int(np.searchsorted(self.behind, position, side="right"))
        return extended(before, self.digests[:count])


NONE_CLOSED = Closed(np.empty(0, np.int64), np.empty(0, np.uint64))


class Folding:
    """Pieces of transactions, put together chunk by chunk in the log's order."""

    def __init__(self) -> None:
        self._open = (0, 0, 0)  # the two numbers, and how many bytes

    def add(self, pieces: Int64s) -> Closed:
        """The transactions that end in this chunk. One that holds nothing is left out."""
        if not len(pieces):
            return NONE_CLOSED
        pieces = pieces.copy()
        if not pieces[0, BEGINS]:
            first, second, size = self._open
            pieces[0, FIRST] = _joined(first, pieces[0], FIRST)
            pieces[0, SECOND] = _joined(second, pieces[0], SECOND)
            pieces[0, BYTES] += size
        last = pieces[-1]
        self._open = (0, 0, 0)
        if not last[END]:
            self._open = (int(last[FIRST]), int(last[SECOND]), int(last[BYTES]))
        ended = pieces[(pieces[:, END] > 0) & (pieces[:, BYTES] > 0)]
        digests = ended[:, FIRST].astype(np.uint64) << np.uint64(32)
        return Closed(ended[:, END], digests | ended[:, SECOND].astype(np.uint64))


def _joined(before: int, piece: Int64s, lane: int) -> int:
    base, prime = BASES[lane - FIRST], PRIMES[lane - FIRST]
    return (before * pow(base, int(piece[BYTES]), prime) + int(piece[lane])) % prime


def extended(trail: str, digests: UInt64s) -> str:
    """Return the trail after these transactions."""
    more = "".join(f"{digest:016x}" for digest in digests[-TRAIL_MAX:].tolist())
    return (trail + more)[-TRAIL_MAX * DIGEST_CHARACTERS :] if more else trail


def digests_of(trail: str) -> list[int]:
    """Return a trail's digests, oldest first."""
    size = DIGEST_CHARACTERS
    return [int(trail[at : at + size], 16) for at in range(0, len(trail), size)]


def place_behind(trail: list[int], seen: list[int]) -> tuple[int, int] | None:
    """Return where reading continues among transactions that were seen in another log: the index,
    and how many of the trail come twice. None: none of the trail is there.

    It is behind the last one of the trail, or the latest one of which there is a trace. Of several
    that look alike it is the one before which most are as in the trail, then the first. If there
    are others among them, nobody knows whether they were delivered: it is the first of these.
    """
    for left in range(len(trail)):
        wanted = trail[: len(trail) - left]
        ends = [index for index, digest in enumerate(seen) if digest == wanted[-1]]
        if not ends:
            continue
        end = max(ends, key=lambda index: (_alike(wanted, seen, index), -index))
        known = set(trail)
        since = next(index for index, digest in enumerate(seen) if digest in known)
        others = (index for index in range(since, end + 1) if seen[index] not in known)
        at = next(others, end + 1)
        again = (Counter(trail) - Counter(seen[:at])) & Counter(seen[at:])
        return at, left + again.total()
    return None


def _alike(trail: list[int], seen: list[int], end: int) -> int:
    """Count the transactions up to seen[end] that are the trail's, from the end."""
    count = 0
    while count < min(len(trail), end + 1) and trail[-1 - count] == seen[end - count]:
        count += 1
    return count
