"""What a busy machine takes away from a test that measures time.

    with Pace() as pace:
        ...
    assert pace.seconds < LIMIT_S

Code under test that waits for something else, or blocks its event loop, counts. Where work is to be
measured, `calls_of` counts it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path


class Pace:
    """Measures a block: its `seconds`, without those in which threads of this process were ready to
    run, and did not. A thread that merely sleeps next to them would not see these: a scheduler
    wakes it before those that compute."""

    def __init__(self) -> None:
        self._began_s = self.seconds = 0.0
        self._before_ns: dict[str, int] = {}

    def __enter__(self) -> Pace:
        self._before_ns, self._began_s = _waited_ns(), time.monotonic()
        return self

    def __exit__(self, *failure: object) -> None:
        elapsed_s = time.monotonic() - self._began_s
        waited = _waited_ns().items()
        late_ns = sum(now - self._before_ns.get(thread, 0) for thread, now in waited)
        self.seconds = elapsed_s - late_ns / 1e9


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


def calls_of(work: Callable[[], object]) -> int:
    """Return how many calls of Python functions this work makes: unlike seconds of CPU, which grow
    where others use the same core, the same number on every machine."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls
