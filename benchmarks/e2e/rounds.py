"""Throughput: rounds over all readers, one server for each workload.

The clock of a run goes from the reader's line that a quarter of its rows is in its hands to the one
that the last is: all readers are measured in the midst of a stream, when virtual machines have
compiled what is hot and memory has been touched. A second clock goes from the moment at which the
server began the dump, by the server's own clock, over all rows. Processes' starts are outside both.
CPU seconds are of all the reader's processes, Ray's own among them, between the two lines.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.clock import peak_rss_mb
from benchmarks.e2e.child import Child, ChildFailed
from benchmarks.e2e.processes import cpu_s_of, kind, peak_mb
from benchmarks.e2e.server import Source, source
from benchmarks.e2e.systems import OURS, OURS_COMMAND, READERS, WARM, Reader, mysqlbinlog
from benchmarks.systems import NotAvailable
from benchmarks.workloads import Made

START_S, RUN_S = 600.0, 600.0  # a start may compile the kernels: 169 s on an older machine


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one reader over one workload. `from_dump_rows_per_s`: over all of its rows."""

    rows: int
    in_bytes: float
    seconds: float
    from_dump_rows_per_s: float
    cpu_s: float
    peak_mb: float
    server_cpu_s: float
    cpu_s_of: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """A run, or why there is none."""

    workload: str
    reader: str
    run: Run | None
    missing: str = ""


def measure(
    workloads: Sequence[Made], names: Sequence[str], rounds: int, telling: Callable[[str], None]
) -> Iterator[Result]:
    """Every run, in turns, so that a busy minute of the machine hits all readers."""
    gone: dict[str, str] = {}
    with ExitStack() as stack:
        cluster: Child | None = None
        if any(name in OURS for name in names):
            telling("starting Ray")
            cluster = stack.enter_context(cluster_of("plain"))
        for made in workloads:
            with source(made) as served:
                for number in range(1, rounds + 1):
                    for name in names:
                        if name in gone or made.server not in READERS[name].servers:
                            continue
                        telling(f"{made.name} round {number} {name}")
                        try:
                            run = _one(READERS[name], made, served, cluster)
                        except (NotAvailable, ChildFailed) as error:
                            # Ours share a cluster, whose state is unknown now.
                            gone |= dict.fromkeys(OURS if name in OURS else [name], str(error))
                            yield Result(made.name, name, None, str(error))
                        else:
                            yield Result(made.name, name, run)


@contextlib.contextmanager
def cluster_of(shape: str) -> Iterator[Child]:
    """The child that has a Ray cluster (benchmarks/e2e/ours.py), running. Its files are its own, so
    that no other process of the machine takes it for the one to join."""
    with (
        tempfile.TemporaryDirectory(prefix="rcb_", ignore_cleanup_errors=True) as folder,
        Child([*OURS_COMMAND, shape], RAY_TMPDIR=folder, RAY_ADDRESS="") as child,
    ):
        child.address = child.wait("address", START_S)["address"]
        child.wait("up", START_S)
        yield child


def _one(reader: Reader, made: Made, served: Source, cluster: Child | None) -> Run:
    served.end_dumps()
    served.load_binlogs()
    if not reader.says:
        return _whole_process(made, served)
    if reader.command is None:
        assert cluster is not None
        return ours(cluster, served, made, reader.view)
    rows = reader.rows(made)
    command = reader.command(served.server.port, rows, int(rows * WARM))
    with Child(command, reader.folder) as child:
        child.wait("ready", START_S)
        return clocked(child, made, served)


def ours(cluster: Child, served: Source, made: Made, view: str, **instance: object) -> Run:
    """One run of this tree, by a destination of its own. `instance`: more of its configuration."""
    task = {"do": "throughput", "view": view, "port": served.server.port, "rows": made.rows}
    cluster.tell({**task, "warm_rows": int(made.rows * WARM), "instance": instance})
    cluster.wait("ready", START_S)
    run = clocked(cluster, made, served)
    cluster.tell({})
    cluster.wait("stopped", START_S)
    return run


def clocked(child: Child, made: Made, served: Source) -> Run:
    """A run of a child that reads, or is about to. Raises ChildFailed."""
    mark = child.wait("mark", RUN_S)
    before = cpu_s_of([served.pid, *child.pids()])
    end = child.wait("end", RUN_S)
    pids = child.pids()
    used_s = {
        pid: now_s - before.get(pid, 0.0) for pid, now_s in cpu_s_of([served.pid, *pids]).items()
    }
    server_cpu_s = used_s.pop(served.pid)
    dump_ns = served.dump_began_ns()
    if dump_ns is None:
        raise ChildFailed("the server has no dump of it; too few rows to measure")
    rows = end["rows"] - mark["rows"]
    return Run(
        rows,
        made.size_bytes * rows / made.rows,
        (end["ns"] - mark["ns"]) / 1e9,
        end["rows"] / (end["ns"] - dump_ns) * 1e9,
        sum(used_s.values()),
        peak_mb(pids),
        server_cpu_s,
        _by_kind(used_s, child.process.pid),
    )


def _by_kind(used_s: Mapping[int, float], reader: int) -> Mapping[str, float]:
    """CPU seconds by what processes are; the reader's own is "client"."""
    found: dict[str, float] = {}
    for pid, each_s in used_s.items():
        name = "client" if pid == reader else kind(pid)
        found[name] = found.get(name, 0.0) + each_s
    return found


def _whole_process(made: Made, served: Source) -> Run:
    """mysqlbinlog has nothing to load; it writes to memory, so that no disk is measured."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        names = [f"mysql-bin.{number:06}" for number in range(1, len(made.files) + 1)]
        command = mysqlbinlog(served.server.port, names, folder)
        server_before, peak = served.cpu_s(), 0.0
        children = os.times()
        began = time.perf_counter()
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            while process.poll() is None:
                peak = max(peak, peak_rss_mb(process.pid))
                time.sleep(0.005)
            seconds = time.perf_counter() - began
            assert process.stderr is not None
            words = process.stderr.read().decode(errors="replace").strip()
        after = os.times()
        if process.returncode:
            raise ChildFailed(f"mysqlbinlog: {words[-300:]}")
        copied = sum(os.path.getsize(Path(folder) / name) for name in names)
    if copied != made.size_bytes:
        raise ChildFailed(f"mysqlbinlog copied {copied} bytes of {made.size_bytes}")
    used = after.children_user - children.children_user
    used += after.children_system - children.children_system
    server_cpu_s = served.cpu_s() - server_before
    rate = made.rows / seconds
    return Run(made.rows, made.size_bytes, seconds, rate, used, peak, server_cpu_s)
