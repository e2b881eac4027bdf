"""The CPU priority of processes, and the threads that have it.

Ray starts its workers with a niceness of 15 (its setting `worker_niceness`): where a process of
usual priority wants their CPU, they get a 28th of it. A log that has to keep pace with the server
next to it then waits for whatever runs there, and comes back last when all restart. So our
processes take the priority of Ray's own, where the operating system lets them (as root, or with
CAP_SYS_NICE). Elsewhere, and for other priorities, who starts Ray sets RAY_worker_niceness, which
then counts; so do we (ray_settings.py).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

_OF_RAY = "RAY_worker_niceness"


@cache
def as_ray_itself() -> None:
    """Give this process the priority of the raylet that started it, if one did."""
    raylet = os.getppid()
    if _OF_RAY in os.environ or _name_of(raylet) != "raylet":
        return
    with contextlib.suppress(PermissionError):
        raise_to(os.getpriority(os.PRIO_PROCESS, raylet))


def raise_to(niceness: int) -> None:
    """Set the niceness of all threads that have a higher one. Raises PermissionError."""
    _change(lambda found: min(found, niceness))


def lower_to(niceness: int) -> None:
    """Set the niceness of all threads that have a lower one."""
    _change(lambda found: max(found, niceness))


def _change(wanted: Callable[[int], int]) -> None:
    """Give each thread the niceness that it is to have instead of its own: on Linux it is a
    thread's own, and a new thread's is that of its maker. Raises PermissionError."""
    for thread in threads():
        with contextlib.suppress(ProcessLookupError):  # it has ended
            found = os.getpriority(os.PRIO_PROCESS, thread)
            if wanted(found) != found:
                os.setpriority(os.PRIO_PROCESS, thread, wanted(found))


def threads() -> list[int]:
    """Return the ids of this process's threads, on Linux."""
    return [int(name) for name in os.listdir("/proc/self/task")]


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()
    except OSError:
        return ""
