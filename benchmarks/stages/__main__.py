"""One row's way from its commit to a client, stage by stage: milliseconds at the median and p99.

    python -m benchmarks.stages --rate 1000 --seconds 10

A MySQL 9.7 with two paced writers (one below 100 transactions a second), a Ray of its own, one
destination, and one client by Ray handle in this process. What is behind a long stage is shown with
it: how much of the cores each process had, and how long its threads waited for one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.e2e.child import ROOT
from benchmarks.e2e.ours import config
from benchmarks.e2e.server import Source, source
from benchmarks.stages.cores import a_second, taken
from benchmarks.stages.shares import Rows, moments, shares
from benchmarks.stages.stamps import FOLDER, install, stamps_in

_HOOK = f"{install.__module__}.{install.__name__}"
_WARM_S = 3.0
"""Rows of the first seconds are left out: caches, chunk sizes and the CPU's clock settle."""
_SETTLED_S = 3.0
_FLUSHED_S = 1.5


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=1000.0, help="transactions a second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true", help="print JSON, not tables")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="rcb_") as folder, source() as served:
        found = measured(served, Path(folder), options.rate, options.seconds)
    sys.stdout.write(json.dumps(found, indent=1) + "\n" if options.json else tables(found))
    return 0


def measured(served: Source, folder: Path, per_s: float, seconds: float) -> dict[str, Any]:
    """Return the shares of the stages, and what processes took of the cores."""
    writers = 2 if per_s > 100 else 1
    each = max(int(per_s * (seconds + _WARM_S) / writers), 1)
    with _cluster(folder), _destination(served, folder) as connector:
        began = [
            _writer(served, folder, number, writers, each, per_s / writers)
            for number in range(writers)
        ]
        stamping = [int(path.stem) for path in folder.glob("*.txt")]
        pids = {
            "client": [os.getpid()], "mysqld": [served.pid], "the store's process": stamping,
            "writers": [writer.pid for writer in began],
        }  # fmt: skip
        before, before_s = taken(pids), time.monotonic()
        rows = _received(connector, each * writers)
        after, lasted_s = taken(pids), time.monotonic() - before_s
        if any(writer.wait() for writer in began):
            raise RuntimeError("a writer failed")
        time.sleep(_FLUSHED_S)
    committed = _committed(folder, rows)
    late = committed >= committed.min() + int(_WARM_S * 1e9)
    span_s = (committed.max() - committed[late].min()) / 1e9
    rows, committed = rows.where(late), committed[late]
    passed = moments(rows, committed, stamps_in(folder))
    return {
        "rows": len(committed),
        "rows_a_second": round(len(committed) / span_s, 1),
        "messages_a_second": round(len(np.unique(rows.messages)) / span_s, 1),
        "stages": shares(committed, passed),
        "a_second": a_second(before, after, lasted_s),
        "load_average": round(os.getloadavg()[0], 2),
    }


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[None]:
    import ray

    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # workers find the hook
    os.environ[FOLDER] = str(folder)
    ray.init(
        "local", num_cpus=3, include_dashboard=False, log_to_driver=False,
        object_store_memory=1 << 30, runtime_env={"worker_process_setup_hook": _HOOK},
    )  # fmt: skip
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _destination(served: Source, folder: Path) -> Iterator[Any]:
    """A client of a destination that has handed out its first row, and is at rest."""
    import ray_canal as canal
    from ray_canal.warm import warm

    warm()
    canal.start(config(str(folder), "stages", served.server.port, start="latest"))
    try:
        with canal.connect("stages") as connector:
            connector.subscribe()
            served.server.execute("INSERT INTO bench.item (id, owner, name) VALUES (1, 7, 'first')")
            while not (message := connector.get(1000, timeout=1.0)).row_count:
                pass
            list(message.batches)
            time.sleep(_SETTLED_S)
            yield connector
    finally:
        canal.stop("stages")


def _writer(
    served: Source, folder: Path, number: int, step: int, rows: int, per_s: float
) -> subprocess.Popen[bytes]:
    given = [served.server.port, 10 + number, step, rows, per_s, folder / f"{number}.npz"]
    command = [sys.executable, "-m", "benchmarks.e2e.writer", *map(str, given)]
    return subprocess.Popen(command, cwd=ROOT)


def _received(connector: Any, rows: int) -> Rows:
    """Read until so many rows are there."""
    found: list[list[np.ndarray[Any, Any]]] = []
    count = 0
    for message in connector.messages(1000):
        came_ns = time.monotonic_ns()
        for batch in message.batches:
            ids = batch.column("after").field("id").to_numpy(zero_copy_only=False)
            in_hand_ns = time.monotonic_ns()
            same = (np.full(len(ids), each) for each in (message.id, came_ns, in_hand_ns))
            found.append([ids.astype(np.int64), batch.column("position").to_numpy(), *same])
            count += len(ids)
        if count >= rows:
            break
    return Rows(*map(np.concatenate, zip(*found, strict=True)))


def _committed(folder: Path, rows: Rows) -> np.ndarray[Any, Any]:
    """Return when the commit of each row had returned to its writer (ns)."""
    files = [np.load(path) for path in folder.glob("*.npz")]
    ids = np.concatenate([file["id"] for file in files])
    order = np.argsort(ids)
    ids, ns = ids[order], np.concatenate([file["ns"] for file in files])[order]
    at = np.searchsorted(ids, rows.ids)
    if not np.array_equal(ids[np.minimum(at, len(ids) - 1)], rows.ids):
        raise RuntimeError("the client has rows that nobody wrote")
    return ns[at]


def tables(found: dict[str, Any]) -> str:
    """Return what was measured as text."""
    lines = [
        f"{found['rows_a_second']:,.0f} rows/s in {found['messages_a_second']:,.0f} messages/s, "
        f"load {found['load_average']}",
        f"{'ms':>68} {'p50':>8} {'p99':>8} {'mean':>8} {'%':>6}",
    ]
    lines += [
        f"{what:>68} {n['p50_ms']:8.2f} {n['p99_ms']:8.2f} {n['mean_ms']:8.2f} {n['percent']:6.1f}"
        for what, n in found["stages"].items()
    ]
    lines.append(f"\n{'a second':>22} {'CPU ms':>8} {'waits ms':>9} {'wakes':>7} {'us a wake':>10}")
    lines += [
        f"{what:>22} {n['cpu_ms']:8.0f} {n['waits_ms']:9.0f} {n['wakes']:7d} {n['us_a_wake']:10.0f}"
        for what, n in found["a_second"].items()
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
