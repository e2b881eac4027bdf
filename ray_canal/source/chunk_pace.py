"""When a live source hands out a chunk that is not full: pure but for the pipe that wakes it.

Every chunk costs all stages the same, whatever is in it. So transactions are gathered, but only as
long as that costs nobody time:

- Whole transactions are due one linger after the last chunk was handed out: at once after a pause.
- They are due at once if a subscriber waits for them (`hurry`), who has then nothing else to do.
  What is committed while it works on them is its next chunk.
- A part of a transaction is due one linger after its first event.
- A stream that hardly pauses fills its chunks.
"""

from __future__ import annotations

import math
import os
import threading
from typing import Protocol

_BULK_PART, _BULK_LINGERS = 8, 10
"""A chunk of this part of a first one when the linger is over belongs to a stream that hardly
pauses: it is handed out when it is full or the stream pauses for a linger, at the latest after this
many lingers."""
_HURRY_BYTES_MAX = 64 << 10
"""A chunk of more bytes is part of a stream, which `hurry` does not make any faster."""


class Pending(Protocol):
    """State of the events that a ChunkCutter holds."""

    @property
    def pending_bytes(self) -> int:
        """Return the bytes that were received and are in no chunk yet."""
        ...
    @property
    def is_between(self) -> bool:
        """Return whether what was received ends between two transactions."""
        ...


class ChunkPace:
    """`wake_in`, `wake_out`: the pipe for which the reader waits as well as for its socket. One
    thread reads; `hurry` is called from others."""

    def __init__(self, first_chunk_bytes: int, wake_in: int, wake_out: int) -> None:
        self._bulk_bytes = first_chunk_bytes // _BULK_PART
        self._wake_in, self._wake_out = wake_in, wake_out
        self._lock = threading.Lock()
        self._first_s: float | None = None  # when the first pending event was there
        self._handed_out_s = -math.inf
        self._is_wanted = self._lingers = False
        self._woken = 0
        self.streams = False
        """The last chunk was full or large, so more is under way."""

    def due_s(self, pending: Pending, linger_s: float, now_s: float) -> float:
        """Return when what is pending is due (inf: nothing is), or a stream's pause is over; the
        caller waits until then, and calls `waited`."""
        due_s = self._due_s(pending, linger_s, now_s)
        if self.streams:
            due_s = min(due_s, now_s + linger_s)
        with self._lock:
            if self._is_wanted and self._may_hurry(pending):
                due_s = now_s
            self._lingers = pending.pending_bytes > 0 and due_s > now_s
        return due_s

    def _due_s(self, pending: Pending, linger_s: float, now_s: float) -> float:
        if not pending.pending_bytes:
            self._first_s = None
            return math.inf
        if self._first_s is None:
            self._first_s = now_s
        if pending.pending_bytes >= self._bulk_bytes:
            self.streams = True
            return min(now_s + linger_s, self._first_s + _BULK_LINGERS * linger_s)
        if pending.is_between and not self.streams:
            return max(now_s, self._handed_out_s + linger_s)
        return self._first_s + linger_s

    def _may_hurry(self, pending: Pending) -> bool:
        small = 0 < pending.pending_bytes <= _HURRY_BYTES_MAX
        return small and pending.is_between and not self.streams

    @property
    def gathers(self) -> bool:
        """True while the reader need not look at each transaction that comes."""
        return self.streams or self._lingers

    def waited(self) -> bool:
        """Return whether `hurry` has ended the reader's waiting."""
        with self._lock:
            self._lingers = False
            woken, self._woken = self._woken, 0
        if woken:
            os.read(self._wake_out, woken)
        return woken > 0

    def handed_out(self, now_s: float) -> None:
        """A chunk goes to the caller."""
        self._first_s, self._handed_out_s = None, now_s
        self._is_wanted = False

    def hurry(self) -> None:
        """Let the next chunk be due at once: a subscriber waits for it."""
        with self._lock:
            if self._lingers and not self._is_wanted:
                self._woken += os.write(self._wake_in, b"h")
            self._is_wanted = True
