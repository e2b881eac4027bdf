"""Seconds, CPU and peak memory of the process that this runs in. Standard library alone: peers' own
virtual environments run it too."""

from __future__ import annotations

import json
import resource
import sys
import time


class Clock:
    """Measures a `with` block, from its `mark` on: what comes before is for warming up."""

    def __init__(self) -> None:
        self.out_bytes = 0
        self.marked = False
        self._warm_rows: int | None = 0
        self._warm_bytes = 0
        self._seconds = 0.0
        self._cpu_s = 0.0

    def __enter__(self) -> Clock:
        self._begin()
        return self

    def _begin(self) -> None:
        self._cpu_s = -_cpu_s()
        self._seconds = -time.perf_counter()

    def mark(self, rows: int | None, in_bytes: int) -> None:
        """So much has been decoded; None: as many rows as these bytes have. The clock begins."""
        self._warm_rows, self._warm_bytes, self.marked = rows, in_bytes, True
        self._begin()

    def __exit__(self, *_: object) -> None:
        self._seconds += time.perf_counter()
        self._cpu_s += _cpu_s()

    def report(self, rows: int | None, in_bytes: int | None = None) -> None:
        """Print the JSON line that the parent reads; None: all of the workload."""
        line = {
            "rows": rows,
            "warm_rows": self._warm_rows,
            "in_bytes": in_bytes,
            "warm_bytes": self._warm_bytes,
            "out_bytes": self.out_bytes,
            "seconds": self._seconds,
            "cpu_s": self._cpu_s,
            "peak_rss_mb": peak_rss_mb("self"),
        }
        sys.stdout.write(json.dumps(line) + "\n")


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_rss_mb(process: int | str) -> float:
    """Peak resident memory of a process. From /proc: getrusage's of a child begins at its
    parent's."""
    with open(f"/proc/{process}/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0
