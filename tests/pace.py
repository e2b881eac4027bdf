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
        self._before_ns: dict[str, int] = {}
        self._at_end_s: float | None = None

    def __enter__(self) -> Pace:
        self._before_ns = _waited_ns()
        return self

    def __exit__(self, *failure: object) -> None:
        self._at_end_s = self.late_s

    @property
    def late_s(self) -> float:
        """The sum of all threads that there are, so far or to the end of the block."""
        if self._at_end_s is not None:
            return self._at_end_s
        waited = _waited_ns().items()
        return sum(now - self._before_ns.get(thread, 0) for thread, now in waited) / 1e9


class Laps:
    """Measures the longest of many laps, less what the machine took away during each."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._began_s, self._late_s = time.monotonic(), pace.late_s
        self.worst_s = 0.0

    def lap(self) -> None:
        """End a lap, and begin the next."""
        now_s, late_s = time.monotonic(), self._pace.late_s
        taken_away_s = max(0.0, late_s - self._late_s)  # less, where a thread has ended
        self.worst_s = max(self.worst_s, now_s - self._began_s - taken_away_s)
        self._began_s, self._late_s = now_s, late_s


def _waited_ns() -> dict[str, int]:
    """Return how long each thread of this process has waited for a CPU: the second number of
    schedstat (Linux, Documentation/scheduler/sched-stats)."""
    waited = {}
    for thread in Path("/proc/self/task").iterdir():
        try:
            text = (thread / "schedstat").read_text(encoding="ascii")
        except OSError:
            continue  # it has just ended
        waited[thread.name] = int(text.split()[1])
    return waited


def step_s() -> float:
    """Return the CPU seconds that a fixed piece of plain Python takes here and now, 0.07 on an idle
    machine of 2026: CPU seconds grow, too, where others use the same core."""
    began_s = time.process_time()
    text = "".join(str(number * 7 % 1000) for number in range(200_000))
    assert len(text) > 500_000
    return time.process_time() - began_s
