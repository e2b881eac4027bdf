"""Parts of a core for groups of processes, by control groups (version 1), which root may make."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup/cpu")
_PERIOD_US = 100_000


class Share:
    """Processes that have a part of a core together, while it is limited."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, pids: Iterable[int]) -> None:
        """Put processes into it; what they start later is in it, too."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                (self._folder / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def limit(self, cores: float | None) -> None:
        """Give them so much of a core; None: all that is free."""
        quota_us = -1 if cores is None else int(_PERIOD_US * cores)
        (self._folder / "cpu.cfs_quota_us").write_text(str(quota_us), encoding="ascii")


def unavailable() -> str:
    """Return why no control group can be made; "" if one can."""
    probe = _GROUPS / f"ray_canal_bench_{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return f"no CPU control groups (cgroup v1) here: {error}"
    return ""


@contextlib.contextmanager
def share(name: str) -> Iterator[Share]:
    """A group without a limit. Its processes have to end within the block."""
    folder = _GROUPS / f"ray_canal_bench_{os.getpid()}_{name}"
    folder.mkdir()
    (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US), encoding="ascii")
    found = Share(folder)
    try:
        yield found
    finally:
        found.limit(None)
        _remove(folder)


def _remove(folder: Path, timeout_s: float = 15.0) -> None:
    """A control group can go when its last process has."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.1)
