"""Time that the machine took away does not count; time that the code under test waits for does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest

from tests.pace import Pace, calls_of

LIMIT_S = 0.3
BLOCKED_S = 0.6
SHARES_ITS_CPU = """
import os, subprocess, sys, time
from tests.pace import Pace

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
began_s, cpu_s = time.monotonic(), time.process_time()
with Pace() as pace:
    while time.process_time() - cpu_s < 0.3:
        pass
print(time.monotonic() - began_s, pace.seconds)
for each in others:
    each.kill()
    each.wait()
"""


async def blocked_loop() -> float:
    """Turn a loop that one callback blocks, as a driver's call that waits for a socket does; the
    longest turn."""
    asyncio.get_running_loop().call_later(0.05, time.sleep, BLOCKED_S)
    until_s, worst_s = time.monotonic() + 0.1, 0.0
    while time.monotonic() < until_s:
        with Pace() as pace:
            await asyncio.sleep(0.01)
        worst_s = max(worst_s, pace.seconds)
    return worst_s


def test_a_blocked_loop_counts() -> None:
    with Pace() as pace:
        worst_s = asyncio.run(blocked_loop())
    assert pace.seconds > LIMIT_S
    assert worst_s > LIMIT_S


@pytest.mark.timed
def test_a_starved_process_does_not_count() -> None:
    """Five programs share one CPU; this one computes for 0.3 s."""
    command = [sys.executable, "-c", SHARES_ITS_CPU]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    elapsed_s, seconds = map(float, done.stdout.split())
    assert elapsed_s > 0.8
    assert 0.2 < seconds < elapsed_s / 2


def test_calls_are_counted() -> None:
    def half(number: int) -> int:
        return number // 2

    def work() -> None:
        for number in range(10):
            half(number)

    assert calls_of(work) == 11
