"""What threads took of the machine's cores, and how long they waited for one, by Linux."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

Taken = Counter[tuple[str, str]]
"""Milliseconds and times by (what, "cpu" | "waits" | "wakes")."""


def taken(pids: Mapping[str, Iterable[int]]) -> Taken:
    """Return what the threads of processes have taken so far, by what the processes are."""
    found = Taken()
    for what, members in pids.items():
        for pid in members:
            for cpu_ns, waited_ns, slices in _threads(pid):
                found[what, "cpu"] += cpu_ns
                found[what, "waits"] += waited_ns
                found[what, "wakes"] += slices
    return found


def _threads(pid: int) -> Iterable[list[int]]:
    folder = Path(f"/proc/{pid}/task")
    try:
        names = os.listdir(folder)
    except OSError:
        return  # it has ended
    for name in names:
        try:
            yield list(map(int, (folder / name / "schedstat").read_text().split()))
        except (OSError, ValueError):
            continue


def a_second(before: Taken, after: Taken, seconds: float) -> dict[str, dict[str, float]]:
    """Return of each: milliseconds of CPU, of waiting for a core, and wakes, a second; and the
    microseconds that a wake waited."""
    found = {}
    for what in sorted({what for what, _ in after}):
        used = {kind: after[what, kind] - before[what, kind] for kind in ("cpu", "waits", "wakes")}
        found[what] = {
            "cpu_ms": round(used["cpu"] / 1e6 / seconds, 1),
            "waits_ms": round(used["waits"] / 1e6 / seconds, 1),
            "wakes": round(used["wakes"] / seconds),
            "us_a_wake": round(used["waits"] / 1e3 / max(used["wakes"], 1), 1),
        }
    return found
