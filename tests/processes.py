"""Processes of a local Ray by what they run, to kill, stop and continue them."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]

STORE, FETCHER, CONTROLLER, PARSER, BUFFER, SERVER, SPILLER, SPARE, SINK = (
    f"ray::{name}"
    for name in (
        "StoreActor",
        "FetcherActor",
        "Controller",
        "Parser",
        "TransactionBufferActor",
        "TcpServerActor",
        "Spiller",
        "Spare",
        "SinkActor",
    )
)
RAYLET, GCS = "raylet", "gcs_server"


def family(root: int | None = None) -> list[psutil.Process]:
    """The processes below `root`, by default this process: its Ray, with all workers."""
    try:
        found: list[psutil.Process] = psutil.Process(root or os.getpid()).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def with_environment(name: str, value: str) -> list[int]:
    """Process ids, but of those that have ended, whose environment has this variable: whoever
    started them, they inherit it."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def share_bytes(pid: int, field: str) -> int:
    """Memory of a process, pages that several share in parts: a field of /proc's smaps_rollup
    ("Pss", "Pss_Anon"). 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def running(role: str, root: int | None = None) -> list[int]:
    """Process ids whose title begins with `role` ("ray::FetcherActor"), or whose program it is."""
    found = []
    for process in family(root):
        try:
            first = (process.cmdline() or [""])[0]
        except psutil.Error:
            continue
        if first.startswith(role) or os.path.basename(first) == role:
            found.append(process.pid)
    return found


def the_one(role: str, root: int | None = None, timeout_s: float = 60.0) -> int:
    """Its process id, as soon as there is exactly one."""
    found: list[int] = []

    def one() -> bool:
        found[:] = running(role, root)
        return len(found) == 1

    wait_for(one, timeout_s, f"one process {role}")
    return found[0]


def send(pid: int, number: int) -> None:
    """A signal, if the process is still there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _threads_sleep(pid: int) -> bool:
    """Whether every thread is in the state T of proc_pid_stat(5)."""
    found = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # one that has ended meanwhile
            found.add((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return found == {"T"}


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """SIGSTOP inside the `with` block, SIGCONT at its end. On a busy machine a thread can still
    answer for 20 ms after the signal: wait for all of them."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        for pid in pids:
            wait_for(functools.partial(_threads_sleep, pid), 30.0, f"process {pid} stops")
        yield
    finally:
        for pid in pids:
            send(pid, signal.SIGCONT)


def wait_for(condition: Callable[[], bool], timeout_s: float, what: str) -> float:
    """Seconds until it holds. Raises AssertionError."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s, f"not in {timeout_s:.0f} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


def status(pid: int) -> str:
    """Return psutil's status of a process; "" once it is gone."""
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return ""
