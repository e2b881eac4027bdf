"""How fast a snapshot may read, and how fast it does."""

from __future__ import annotations

import time
from collections import deque
from statistics import median

from ray_canal.config import SnapshotConfig
from ray_canal.snapshot.governor import Governor
from ray_canal.snapshot.row_reader import RangeRead

_WINDOW_S = 10.0
_CHUNK_S = 1.0
"""A chunk's read view and its locks last no longer, if that can be."""
_FIRST, _LAST = 8, 3
"""So many chunks of a table say how long a row takes at first, and now."""
_PART_MIN = 16
"""A chunk is not cut for its time to less than this part of what its bytes allow."""


class Pace:
    """One snapshot's. `in_flight`: how many ranges are being read now."""

    def __init__(self, config: SnapshotConfig) -> None:
        self._config = config
        self.governor = Governor(config)
        self.in_flight = 0
        self._acked: deque[tuple[float, int]] = deque()
        self._free_at_s = 0.0
        self._first: list[float] = []  # seconds by row, of this table
        self._last: deque[float] = deque(maxlen=_LAST)

    def begin_table(self) -> None:
        """Another table's rows come: they take another time."""
        self._first.clear()
        self._last.clear()

    def rows_of(self, by_bytes: int) -> int:
        """Return how many rows the next range may have, if its bytes allow so many."""
        if not self._last:
            return by_bytes
        in_time = int(_CHUNK_S / max(self._last[-1], 1e-9))
        return max(min(by_bytes, in_time), by_bytes // _PART_MIN, 1)

    def take_slower(self) -> float | None:
        """Return how many times as long a row takes as at first; None: not known. What it is known
        of counts once."""
        if len(self._first) < _FIRST or len(self._last) < _LAST:
            return None
        found = median(self._last) / max(median(self._first), 1e-9)
        self._last.clear()
        return found

    def read(self, read: RangeRead) -> None:
        """A range was read."""
        if read.rows:
            by_row_s = read.seconds / read.rows
            if len(self._first) < _FIRST:
                self._first.append(by_row_s)
            self._last.append(by_row_s)
        limit = self._config.rows_per_s
        if limit:
            now_s = time.monotonic()
            self._free_at_s = max(self._free_at_s, now_s) + read.rows / limit

    def acked(self, rows: int) -> None:
        """Note how many rows are acked by now, in all."""
        now_s = time.monotonic()
        self._acked.append((now_s, rows))
        while len(self._acked) > 2 and self._acked[0][0] < now_s - _WINDOW_S:
            self._acked.popleft()

    @property
    def rows_per_s(self) -> float:
        """Rows that were acked in the last seconds, by second."""
        if len(self._acked) < 2:
            return 0.0
        (began_s, first), (_, last) = self._acked[0], self._acked[-1]
        seconds = max(time.monotonic() - began_s, 0.001)
        return (last - first) / seconds if seconds < 2 * _WINDOW_S else 0.0

    def refuses(self, reading: int) -> str:
        """Return why no other range may be read now, beside so many that are; empty: one may."""
        minutes = self._config.minutes
        if minutes is not None:
            now = time.gmtime()
            at = 60 * now.tm_hour + now.tm_min
            begin, end = minutes
            inside = begin <= at < end if begin < end else at >= begin or at < end
            if not inside:
                return f"the hours {self._config.hours} UTC (snapshot.hours)"
        if reading >= self.governor.allowed and self.governor.why:
            return self.governor.why
        if self._free_at_s > time.monotonic():
            return f"the rate of {self._config.rows_per_s:,} rows/s (snapshot.rows_per_s)"
        return ""
