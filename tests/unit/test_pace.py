"""Time that the machine took away does not count; time that the code under test waits for does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

from tests.pace import Laps, Pace

LIMIT_S = 0.3
BLOCKED_S = 0.6
SHARES_ITS_CPU = """
import os, subprocess, sys, time
from tests.pace import Laps, Pace

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
with Pace() as pace:
    laps, began_s, cpu_s = Laps(pace), time.monotonic(), time.process_time()
    while time.process_time() - cpu_s < 0.3:
        pass
    elapsed_s = time.monotonic() - began_s
    laps.lap()
print(elapsed_s, pace.late_s, laps.worst_s)
for each in others:
    each.kill()
    each.wait()
"""


async def blocked_loop(laps: Laps) -> None:
    """Turn a loop that one callback blocks, as a driver's call that waits for a socket does."""
    asyncio.get_running_loop().call_later(0.05, time.sleep, BLOCKED_S)
    until_s = time.monotonic() + 0.1
    while time.monotonic() < until_s:
        await asyncio.sleep(0.01)
        laps.lap()


def test_a_blocked_loop_counts() -> None:
    with Pace() as pace:
        laps, began_s = Laps(pace), time.monotonic()
        asyncio.run(blocked_loop(laps))
        elapsed_s = time.monotonic() - began_s
    assert elapsed_s > LIMIT_S + pace.late_s
    assert laps.worst_s > LIMIT_S


def test_a_starved_process_does_not_count() -> None:
    """Five programs share one CPU; this one computes for 0.3 s."""
    command = [sys.executable, "-c", SHARES_ITS_CPU]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    elapsed_s, late_s, lap_s = map(float, done.stdout.split())
    assert elapsed_s > 0.8
    assert 0.2 < elapsed_s - late_s < 0.5
    assert 0.2 < lap_s < 0.5
