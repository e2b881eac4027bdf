"""What a busy machine takes away from a test that measures time: a thread beside it sleeps again
and again, and sees how late it wakes.

    with Pace() as beside:
        began_s = time.monotonic()
        ...
        elapsed_s = time.monotonic() - began_s
    assert elapsed_s < LIMIT_S + beside.late_s

Code under test that waits, or blocks its event loop, lets the thread wake in time: that counts.
What holds the interpreter's lock does not count, since the thread cannot wake then either: measure
that in CPU time instead.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

STEP_S = 0.01


class Pace:
    """Measures for how long this process was ready to run, and did not."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._ticks = threading.Thread(target=self._tick, name="pace", daemon=True)
        self._worst_s = 0.0
        # One object: who reads it meanwhile sees a sum and a moment that belong together.
        self._summed_s_and_due_s = (0.0, 0.0)

    def __enter__(self) -> Pace:
        self._summed_s_and_due_s = (0.0, time.monotonic() + STEP_S)
        self._ticks.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._ticks.join()

    @property
    def late_s(self) -> float:
        """The sum of all delays so far, with one that lasts."""
        return self._summed_s_and_due_s[0] + self._lasting_s()

    @property
    def worst_s(self) -> float:
        """The longest delay so far."""
        return max(self._worst_s, self._lasting_s())

    def _lasting_s(self) -> float:
        if self._ended.is_set():
            return 0.0
        return max(0.0, time.monotonic() - self._summed_s_and_due_s[1])

    def _tick(self) -> None:
        while not self._ended.is_set():
            summed_s, due_s = self._summed_s_and_due_s
            time.sleep(max(0.0, due_s - time.monotonic()))
            now_s = time.monotonic()
            self._worst_s = max(self._worst_s, now_s - due_s)
            self._summed_s_and_due_s = (summed_s + now_s - due_s, now_s + STEP_S)


class Laps:
    """Measures the longest of many laps, less what the machine took away during each."""

    def __init__(self, beside: Pace) -> None:
        self._beside = beside
        self._began_s, self._late_s = time.monotonic(), beside.late_s
        self.worst_s = 0.0

    def lap(self) -> None:
        """End a lap, and begin the next."""
        now_s, late_s = time.monotonic(), self._beside.late_s
        self.worst_s = max(self.worst_s, now_s - self._began_s - (late_s - self._late_s))
        self._began_s, self._late_s = now_s, late_s
