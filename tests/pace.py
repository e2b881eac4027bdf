"""What a busy machine takes away from a test that measures time.

    with Pace() as pace:
        began_s = time.monotonic()
        ...
        elapsed_s = time.monotonic() - began_s
    assert elapsed_s < LIMIT_S + pace.late_s

Code under test that waits for something else, or blocks its event loop, counts.
"""

from __future__ import annotations

import time
from pathlib import Path


class Pace:
    """Measures for how long threads of this process were ready to run, and did not. One that
    merely sleeps next to them would not see it: a scheduler wakes it before those that compute."""

    def __init__(self) -> None:
        self._before_s = self._after_s = 0.0
        self._lasts = False

    def __enter__(self) -> Pace:
        self._before_s, self._lasts = _waited_s(), True
        return self

    def __exit__(self, *failure: object) -> None:
        self._after_s, self._lasts = _waited_s(), False

    @property
    def late_s(self) -> float:
        """The sum so far, or to the end of the block."""
        return (_waited_s() if self._lasts else self._after_s) - self._before_s


class Laps:
    """Measures the longest of many laps, less what the machine took away during each."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._began_s, self._late_s = time.monotonic(), pace.late_s
        self.worst_s = 0.0

    def lap(self) -> None:
        """End a lap, and begin the next."""
        now_s, late_s = time.monotonic(), self._pace.late_s
        self.worst_s = max(self.worst_s, now_s - self._began_s - (late_s - self._late_s))
        self._began_s, self._late_s = now_s, late_s


def _waited_s() -> float:
    """Return how long this process's threads have waited for a CPU: the second number of schedstat
    (Linux, Documentation/scheduler/sched-stats)."""
    waited_ns = 0
    for thread in Path("/proc/self/task").iterdir():
        try:
            waited_ns += int((thread / "schedstat").read_text(encoding="ascii").split()[1])
        except OSError:
            continue  # it has just ended
    return waited_ns / 1e9


def step_s() -> float:
    """Return the CPU seconds that a fixed piece of plain Python takes here and now, 0.07 on an idle
    machine of 2026: CPU seconds grow, too, where others use the same core."""
    began_s = time.process_time()
    text = "".join(str(number * 7 % 1000) for number in range(200_000))
    assert len(text) > 500_000
    return time.process_time() - began_s
