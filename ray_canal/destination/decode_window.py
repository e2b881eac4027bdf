"""How many chunks may be decoded side by side: as many as the stages need, within limits.

The log takes chunks in order, so it waits for the oldest. If it does while the fetcher is kept back
because the window is full, decoding is what limits: the window grows. Each chunk in it asks the
cluster for a CPU, which is what makes an autoscaler add a node. A window that was not used for a
while shrinks to what was.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_MUCH = 0.1
"""Decoding limits if log and fetcher wait for it so much of the time."""
_SHRINK_S = 10.0


class DecodeWindow:
    """The size in decoders, from `least` to `most`; 0 of both: chunks come decoded. `clock`:
    monotonic seconds."""

    def __init__(self, least: int, most: int, clock: Callable[[], float] | None = None) -> None:
        self._least, self._most = min(least, most), most
        self._clock = clock or time.perf_counter
        self.size = self._least
        self._chunks = 0
        self._kept_back_s = self._waited_s = 0.0
        self._since_s = self._used_since_s = self._clock()
        self._used = 0

    def note(self, in_flight: int, kept_back_s: float, waited_s: float) -> None:
        """Take into account a chunk that has come to the log: how many decoders were in use, for
        how long the fetcher was kept back and the log waited since the last one."""
        now = self._clock()
        self._chunks += 1
        self._kept_back_s += kept_back_s
        self._waited_s += waited_s
        self._used = max(self._used, in_flight)
        # As many chunks as are in flight: what the last change has brought is seen by then.
        if self._chunks > 2 * self.size:
            much_s = _MUCH * (now - self._since_s)
            if min(self._kept_back_s, self._waited_s) > much_s:
                self.size = min(self._most, self.size + max(1, self.size // 2))
            self._chunks = 0
            self._kept_back_s = self._waited_s = 0.0
            self._since_s = now
        if now - self._used_since_s > _SHRINK_S:
            self.size = max(self._least, min(self.size, self._used))
            self._used, self._used_since_s = 0, now
