"""Time that the machine took away does not count; time that the code under test waits for does."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

from tests.pace import Laps, Pace

LIMIT_S = 0.3
BLOCKED_S = 0.6
# A stop by a signal is what a starved process sees: it is ready to run, and does not.
STARVED = """
import os, signal, time

from tests.pace import Laps, Pace
with Pace() as beside:
    laps, began_s = Laps(beside), time.monotonic()
    os.kill(os.getpid(), signal.SIGSTOP)
    elapsed_s = time.monotonic() - began_s
    laps.lap()
print(elapsed_s, beside.late_s, beside.worst_s, laps.worst_s)
"""


async def blocked_loop(laps: Laps) -> None:
    """Turn a loop that one callback blocks, as a driver's call that waits for a socket does."""
    asyncio.get_running_loop().call_later(0.05, time.sleep, BLOCKED_S)
    until_s = time.monotonic() + 0.1
    while time.monotonic() < until_s:
        await asyncio.sleep(0.01)
        laps.lap()


def test_a_blocked_loop_counts() -> None:
    with Pace() as beside:
        laps, began_s = Laps(beside), time.monotonic()
        asyncio.run(blocked_loop(laps))
        elapsed_s = time.monotonic() - began_s
    assert elapsed_s > LIMIT_S + beside.late_s
    assert laps.worst_s > LIMIT_S


def test_a_starved_process_does_not_count() -> None:
    command = [sys.executable, "-c", STARVED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starved:
        _pid, status = os.waitpid(starved.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        time.sleep(BLOCKED_S)
        starved.send_signal(signal.SIGCONT)
        printed, _nothing = starved.communicate()
    elapsed_s, late_s, worst_s, lap_s = map(float, printed.split())
    assert elapsed_s > BLOCKED_S > LIMIT_S
    assert elapsed_s < LIMIT_S + late_s
    assert LIMIT_S < worst_s <= late_s
    assert lap_s < LIMIT_S
