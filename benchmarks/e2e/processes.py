"""CPU seconds and memory of groups of processes: all those that were started with a mark in their
environment, Ray's own among them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

MARK = "RAY_CANAL_BENCH_RUN"
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_KB_MB = 1024 / 1e6


def marked(mark: str) -> list[int]:
    """Processes that inherited the mark."""
    return with_environment(MARK, mark)


def with_environment(name: str, value: str) -> list[int]:
    """Processes whose environment at their start had this."""
    wanted = f"{name}={value}\0".encode()
    return [pid for pid in _pids() if wanted in _read(f"/proc/{pid}/environ") + b"\0"]


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds of processes, and of those of their children that have ended."""
    total = 0.0
    for pid in pids:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        total += sum(int(field) for field in fields[11:15]) * _TICK_S
    return total


def cpu_s_of(pids: Iterable[int]) -> dict[int, float]:
    """CPU seconds so far of each process."""
    return {pid: cpu_s([pid]) for pid in pids}


def kind(pid: int) -> str:
    """What a process is: of Ray's workers their actor, of others their program. Titles change, so
    ask when all is over."""
    name = title(pid)
    return name.partition(".")[0] if name.startswith("ray::") else Path(name).name


def peak_mb(pids: Iterable[int]) -> float:
    """Memory, shared pages counted once. A bound: each process's own peak, as if all had been at
    one time."""
    found = 0
    for pid in pids:
        status = f"/proc/{pid}/status"
        found += _kilobytes(f"/proc/{pid}/smaps_rollup", "Pss:")
        found += _kilobytes(status, "VmHWM:") - _kilobytes(status, "VmRSS:")
    return found * _KB_MB


def title(pid: int) -> str:
    """What a process calls itself; Ray's workers name their actor."""
    return _read(f"/proc/{pid}/cmdline").split(b"\0")[0].decode(errors="replace").strip()


def private_mb(pid: int) -> float:
    """Memory but for the shared object store, shared libraries in part."""
    path = f"/proc/{pid}/smaps_rollup"
    return (_kilobytes(path, "Pss_Anon:") + _kilobytes(path, "Pss_File:")) * _KB_MB


def anonymous_mb(pid: int) -> float:
    """Memory that is not of files: nobody else's end changes it."""
    return _kilobytes(f"/proc/{pid}/smaps_rollup", "Anonymous:") * _KB_MB


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _kilobytes(path: str, field: str) -> int:
    for line in _read(path).decode("ascii", errors="replace").splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    return 0


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # it has ended, or is not ours
        return b""
