"""Rates over the last seconds, for status. Counting only."""

from __future__ import annotations

import time
from collections import deque

from ray_canal.model.reports import RateReport

_WINDOW_S = 10.0


class Rates:
    """Bytes, rows and entries per second over a sliding window of ten seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int, int]] = deque()
        self._totals = [0, 0, 0]
        self._since = time.monotonic()

    def add(self, size_bytes: int, rows: int, entries: int) -> None:
        self._samples.append((time.monotonic(), size_bytes, rows, entries))
        for index, value in enumerate((size_bytes, rows, entries)):
            self._totals[index] += value
        self._forget()

    def per_second(self) -> RateReport:
        """Rates and totals by name."""
        self._forget()
        seconds = max(min(_WINDOW_S, time.monotonic() - self._since), 1e-3)
        sums = [sum(sample[i] for sample in self._samples) for i in (1, 2, 3)]
        return {
            "bytes_per_second": sums[0] / seconds,
            "rows_per_second": sums[1] / seconds,
            "entries_per_second": sums[2] / seconds,
            "bytes": float(self._totals[0]),
            "rows": float(self._totals[1]),
            "entries": float(self._totals[2]),
        }

    def _forget(self) -> None:
        horizon = time.monotonic() - _WINDOW_S
        while self._samples and self._samples[0][0] < horizon:
            self._samples.popleft()
