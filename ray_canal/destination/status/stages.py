"""Where the time goes: for each stage, seconds of work and seconds of waiting. Counting only.

Once for each chunk, never for each event. A stage that is busy all the time is what limits the
rest; where none is, it is what they wait for (docs/reference/metrics.md says how to read them).
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from ray_canal.model.reports import StageReport

_WINDOW_S = 10.0
_SAMPLE_S = 1.0

Sums = dict[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class FetchReport:
    """A fetcher's report next to a chunk (`has_chunk`), or in place of one. `finished`: no chunk
    will ever come. Seconds of work and of waiting for the source since the last time that it said
    so."""

    has_chunk: bool
    finished: bool
    busy_s: float
    waiting_s: float


class Stages:
    """Sums by stage, and how busy each was in the last ten seconds."""

    def __init__(self) -> None:
        self._sums: Sums = {}
        self._samples: deque[tuple[float, Sums]] = deque([(time.monotonic(), {})])

    def add(self, stage: str, busy_s: float = 0.0, waiting_s: float = 0.0) -> None:
        busy, waiting = self._sums.get(stage, (0.0, 0.0))
        self._sums[stage] = (busy + busy_s, waiting + waiting_s)
        self._sample(time.monotonic())

    def add_chunk(self, stage_seconds: dict[str, float]) -> None:
        """Count what the stages wrote into a chunk's info. "fetch_wait" is the fetcher's
        waiting."""
        for stage, seconds in stage_seconds.items():
            if stage != "fetch_wait":
                self.add(stage, seconds)
        self.add("fetch", waiting_s=stage_seconds.get("fetch_wait", 0.0))

    def report(self) -> dict[str, StageReport]:
        """Return by stage sums in seconds, and the busy and waiting parts of the last ten seconds,
        in percent. Tasks that run side by side add up, to over 100."""
        now = time.monotonic()
        self._sample(now)
        since, old = self._samples[0]
        lasted_s = max(now - since, 1e-3)
        found: dict[str, StageReport] = {}
        for stage, (busy, waiting) in self._sums.items():
            busy_then, waiting_then = old.get(stage, (0.0, 0.0))
            found[stage] = {
                "busy_s": busy,
                "waiting_s": waiting,
                "busy_percent": 100 * (busy - busy_then) / lasted_s,
                "waiting_percent": 100 * (waiting - waiting_then) / lasted_s,
            }
        return found

    def _sample(self, now: float) -> None:
        if now - self._samples[-1][0] >= _SAMPLE_S:
            self._samples.append((now, dict(self._sums)))
        # The oldest one that is kept is at the window's beginning, or just before it.
        while len(self._samples) > 1 and self._samples[1][0] <= now - _WINDOW_S:
            self._samples.popleft()
