"""How fast a snapshot may read, and how fast it does."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from ray_canal.config import InstanceConfig, SnapshotConfig
from ray_canal.destination.backend_thread import BackendThread
from ray_canal.errors import SourceError
from ray_canal.snapshot.governor import Governor
from ray_canal.snapshot.key_ranges import FIRST_ROWS
from ray_canal.snapshot.row_reader import RangeRead
from ray_canal.snapshot.source_load import SourceLoad

_GOVERN_S = 1.0
_WINDOW_S = 10.0
_CHUNK_S = 1.0
"""A chunk's read view and its locks last no longer, if that can be."""
_FIRST, _LAST = 8, 3
"""So many chunks of a table say how long a row takes at first, and now."""
_ROWS_MIN = 100  # fewer say nothing of the next ones
_ESTIMATES = (0.5, 4.0)
"""Between these, the server's estimates are corrected by what came."""
_PART_MIN = 16
"""A chunk is not cut for its time to less than this part of what its bytes allow."""


class Pace:
    """One snapshot's. `in_flight`: how many ranges are being read now."""

    def __init__(self, config: SnapshotConfig) -> None:
        self._config = config
        self.governor = Governor(config)
        self.in_flight = 0
        self._table = 0
        self._acked: deque[tuple[float, int]] = deque()
        self._free_at_s = 0.0
        self._first: list[float] = []  # seconds by row, of this table
        self._last: deque[float] = deque(maxlen=_LAST)
        self._row_bytes = self._by_row_s = 0.0
        self._estimated = 1.0

    def begin_table(self, table: int) -> None:
        """Note which table's ranges are cut now: its rows have another length, and take another
        time."""
        self._table = table
        self._first.clear()
        self._last.clear()
        self._row_bytes = self._by_row_s = 0.0
        self._estimated = 1.0

    def rows_of(self, size_bytes: int, row_bytes: int) -> int:
        """Return how many rows the next range of so many bytes may have, as the server would
        estimate them: by what rows took so far, and before that few, by their estimated length."""
        by_bytes = size_bytes / (self._row_bytes or max(row_bytes, size_bytes / FIRST_ROWS))
        in_time = _CHUNK_S / self._by_row_s if self._by_row_s else by_bytes
        return max(int(self._estimated * max(min(by_bytes, in_time), by_bytes / _PART_MIN)), 1)

    def take_slower(self) -> float | None:
        """Return how many times as long a row takes as at first; None: not known. What it is known
        of counts once."""
        if len(self._first) < _FIRST or len(self._last) < _LAST:
            return None
        found = median(self._last) / max(median(self._first), 1e-9)
        self._last.clear()
        return found

    def read(self, read: RangeRead, estimate: int = 0, table: int = 0) -> None:
        """A range of a table was read, of which the server estimated so many rows (0: it did not).
        One of the table before says nothing of this one's rows."""
        if table == self._table and read.rows >= _ROWS_MIN:
            by_row_s = self._by_row_s = read.seconds / read.rows
            self._row_bytes = read.size_bytes / read.rows
            low, high = _ESTIMATES
            self._estimated = min(max(estimate / read.rows, low), high) if estimate else 1.0
            if len(self._first) < _FIRST:
                self._first.append(by_row_s)
            self._last.append(by_row_s)
        self.spend(read.rows)

    def spend(self, rows: int) -> None:
        """Note rows that count for the rate."""
        limit = self._config.rows_per_s
        if limit:
            self._free_at_s = max(self._free_at_s, time.monotonic()) + rows / limit

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
        """Return why no other range may be read now, next to so many that are; empty: one may."""
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
        return self.too_fast()

    async def govern(self, config: InstanceConfig, backlog_s: Callable[[], float]) -> None:
        """Look each second what the server, and the log, have to do, until it is cancelled."""
        load, thread = SourceLoad(config.rows_source), BackendThread("snapshot governor")
        try:
            while True:
                with contextlib.suppress(SourceError):  # who reads rows tells it
                    found = await thread.run(load.read)
                    found = replace(found, slower=self.take_slower(), backlog_s=backlog_s())
                    self.governor.observe(found, time.monotonic())
                await asyncio.sleep(_GOVERN_S)
        finally:
            await thread.close(load.close)

    def too_fast(self) -> str:
        """Return why no more rows may come yet, where that is the rate; empty: it is not."""
        if self._free_at_s > time.monotonic():
            return f"the rate of {self._config.rows_per_s:,} rows/s (snapshot.rows_per_s)"
        return ""
