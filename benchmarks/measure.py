"""One run of one system: a child process, its wall and CPU seconds and its peak memory."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.clock import peak_rss_mb
from benchmarks.systems import System
from benchmarks.workloads import Made

ROOT = Path(__file__).parents[1]
CACHE_VARIABLE = "RAY_CANAL_CACHE_DIR"
_POLL_S = 0.5
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class RunFailed(Exception):
    """A child failed, or decoded another number of rows than there are."""


@dataclass(frozen=True, slots=True)
class Run:
    """One child's figures, of what it decoded behind the first quarter; mysqlbinlog's of all."""

    rows: int
    in_bytes: int
    seconds: float
    cpu_s: float
    peak_rss_mb: float


def run_once(system: System, made: Made, port: int = 0) -> Run:
    """Run a system over a workload once. Raises RunFailed, NotAvailable."""
    command = system.command(made, port)
    with tempfile.TemporaryFile() as errors:
        whole, output = _child(command, errors, keep=system.reports)
        if output is None:
            errors.seek(0)
            tail = errors.read().decode(errors="replace").strip().splitlines()[-4:]
            raise RunFailed(f"{system.name} on {made.name}: " + "\n".join(tail))
    if not system.reports:
        return Run(made.rows, made.size_bytes, *whole)
    said = json.loads(output.splitlines()[-1])
    rows = made.rows if said["rows"] is None else int(said["rows"])
    wanted = min(made.rows, system.row_limit)
    if rows < wanted or (rows != made.rows and system.row_limit > made.rows):
        raise RunFailed(f"{system.name} on {made.name}: {rows} rows of {made.rows}")
    in_bytes = made.size_bytes if said["in_bytes"] is None else int(said["in_bytes"])
    warm_rows, warm_bytes = said["warm_rows"], int(said["warm_bytes"])
    if warm_rows is None:
        warm_rows = round(rows * warm_bytes / in_bytes)
    clocked = rows - int(warm_rows), in_bytes - warm_bytes
    return Run(*clocked, said["seconds"], said["cpu_s"], said["peak_rss_mb"])


def _child(
    command: list[str], errors: IO[bytes], *, keep: bool
) -> tuple[tuple[float, float, float], str | None]:
    """(seconds, CPU seconds, peak MB) of a child, and what it printed (None: it failed)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    peak_mb = 0.0
    with tempfile.TemporaryFile() as kept:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **_ONE_THREAD},
            stdout=kept if keep else subprocess.DEVNULL,
            stderr=errors,
        )
        try:
            while process.poll() is None:
                with contextlib.suppress(OSError):
                    peak_mb = max(peak_mb, peak_rss_mb(process.pid))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        seconds = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        kept.seek(0)
        output = kept.read().decode() if process.returncode == 0 else None
    return (seconds, cpu_s, peak_mb), output


@contextlib.contextmanager
def kernels_compiled() -> Iterator[dict[str, float]]:
    """Seconds until the kernels are ready: compiled into an empty cache, then from that cache,
    which children inside the `with` block use."""
    with tempfile.TemporaryDirectory(prefix="ray_canal_bench_") as folder:
        kept = os.environ.get(CACHE_VARIABLE)
        os.environ[CACHE_VARIABLE] = folder
        try:
            yield {"compile_s": _warm_s(), "from_cache_s": min(_warm_s() for _ in range(3))}
        finally:
            del os.environ[CACHE_VARIABLE]
            if kept is not None:
                os.environ[CACHE_VARIABLE] = kept


def _warm_s() -> float:
    done = subprocess.run(
        [sys.executable, "-m", "ray_canal.warm"],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    found = re.search(r"after ([\d.]+) s", done.stdout)
    if done.returncode or found is None:
        raise RunFailed(f"python -m ray_canal.warm: {done.stderr.strip()[-300:]}")
    return float(found[1])
