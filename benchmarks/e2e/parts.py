"""What is measured besides throughput: latency, a standing instance, its start, Spark.

Each function returns plain figures for bench.json; goals.py says what they should be.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.e2e.child import ROOT, Child, ChildFailed, environment
from benchmarks.e2e.processes import cpu_s, private_mb, title
from benchmarks.e2e.rounds import RUN_S, START_S, clocked, cluster_of
from benchmarks.e2e.server import Source, source
from benchmarks.workloads import Made

Telling = Callable[[str], None]
Figures = dict[str, Any]

LINGER_MS = 5.0
_UNUSED_S = 10.0
"""After so long what a stream needed has been given back (ray_canal/malloc.py)."""
_WRITERS = 2
_PIPELINE = frozenset(
    {"Controller", "StoreActor", "FetcherActor", "Parser", "TransactionBufferActor", "Spiller",
     "decode_chunk"}
)  # fmt: skip
"""What Ray calls the processes of the actors and tasks of ray_canal.actors."""


def latency(per_s: float, seconds: float, telling: Telling) -> Figures:
    """From the moment at which a commit had returned to its writer to the row in the hands of a
    client: by Ray handle under a steady rate, and with one transaction now and then; by Arrow
    Flight, by Canal's TCP port and in Spark's foreachBatch under the steady rate."""
    rows, found = int(per_s * seconds), Figures({"linger_ms": LINGER_MS})
    with source() as served:
        with cluster_of("plain") as cluster:
            telling(f"latency at {per_s:,.0f} transactions/s")
            found["busy"] = _latency(cluster, served, 0, per_s, rows)
            telling("latency of an idle source")
            found["idle"] = _latency(cluster, served, 10_000_000, 2.0, max(8, int(seconds)))
            for number, way in enumerate(("flight", "tcp"), 2):
                telling(f"latency at {per_s:,.0f} transactions/s, {way}")
                found[way] = _latency(cluster, served, number * 10_000_000, per_s, rows, way)
        with cluster_of("spark") as cluster:
            telling(f"latency at {per_s:,.0f} transactions/s, foreachBatch")
            for first in (40_000_000, 50_000_000):  # once to have its JVMs warm
                made = _latency(cluster, served, first, per_s, rows, "foreachBatch")
            found["foreachBatch"] = made
    return found


def _latency(
    cluster: Child, served: Source, first: int, per_s: float, rows: int, way: str = "ray"
) -> Figures:
    writers = _WRITERS if per_s > 100 else 1
    each = rows // writers
    port = str(served.server.port)
    with tempfile.TemporaryDirectory(prefix="ray_canal_bench_") as folder:
        out = Path(folder)
        rows = each * writers
        task = {"do": "latency", "port": served.server.port, "rows": rows, "way": way}
        cluster.tell({**task, "out": str(out / "client.npz")})
        cluster.wait("ready", START_S)
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.e2e.writer", port, str(first + number),
                 str(writers), str(each), str(per_s / writers), str(out / f"{number}.npz")],
                cwd=ROOT,
            )
            for number in range(writers)
        ]  # fmt: skip
        if any(writer.wait() for writer in started):
            raise ChildFailed("a writer failed")
        end = cluster.wait("end", RUN_S)
        cluster.tell({})
        cluster.wait("stopped", START_S)
        committed = _by_id([out / f"{number}.npz" for number in range(writers)])
        received = _by_id([out / "client.npz"])
    span_s = (committed[1].max() - committed[1].min()) / 1e9
    if not np.array_equal(committed[0], received[0]):
        raise ChildFailed("the client has not the rows that were written, once each")
    waited_ms = (received[1] - committed[1]) / 1e6
    return {
        "transactions": len(waited_ms),
        "per_s": round(len(waited_ms) / span_s, 1),
        "p50_ms": round(float(np.percentile(waited_ms, 50)), 2),
        "p99_ms": round(float(np.percentile(waited_ms, 99)), 2),
        "max_ms": round(float(waited_ms.max()), 2),
        **({"parts_ms": end["parts"]} if end["parts"] else {}),
    }


def _by_id(files: list[Path]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    loaded = [np.load(file) for file in files]
    ids = np.concatenate([each["id"] for each in loaded])
    times = np.concatenate([each["ns"] for each in loaded])
    order = np.argsort(ids)
    return ids[order], times[order]


def instance(made: Made, idle_s: float, telling: Telling) -> Figures:
    """Memory of a destination that has read a whole workload, right after it and a little later,
    its CPU while nothing happens, and seconds from `ray-canal start` on a running cluster to the
    first row in a client's hands."""
    with source(made) as served, cluster_of("plain") as cluster:
        telling("memory of a destination")
        port = served.server.port
        cluster.tell({"do": "standing", "port": port, "rows": made.rows})
        cluster.wait("end", RUN_S)
        time.sleep(2.0)
        processes = {pid: title(pid) for pid in cluster.pids()}
        own = {pid: name for pid, name in processes.items() if _is_ours(name)}
        rays = [pid for pid in processes if pid not in own and pid != cluster.process.pid]
        spare = [pid for pid, name in processes.items() if "pare" in name]  # Spare, canal-spare
        memory = {f"{name} {pid}": round(private_mb(pid), 1) for pid, name in own.items()}
        time.sleep(_UNUSED_S)
        idle_mb = sum(map(private_mb, own))
        telling(f"CPU of an idle destination, {idle_s:.0f} s")
        before = cpu_s(own), cpu_s(rays)
        time.sleep(idle_s)
        used = cpu_s(own) - before[0], cpu_s(rays) - before[1]
        cluster.tell({})
        cluster.wait("stopped", START_S)
        telling("ray-canal start")
        starts = [_start_s(cluster, port, number) for number in range(4)]
    return {
        "memory_mb": round(sum(memory.values()), 1),
        "memory_of_each_mb": memory,
        "memory_idle_mb": round(idle_mb, 1),
        "memory_of_spare_mb": round(sum(map(private_mb, spare)), 1),
        "idle_cpu_percent": round(100 * used[0] / idle_s, 2),
        "idle_cpu_percent_of_ray": round(100 * used[1] / idle_s, 2),
        "start_first_s": round(starts[0], 2),
        "start_s": round(statistics.median(starts[1:]), 2),
    }


def _is_ours(name: str) -> bool:
    """A process of the pipeline; idle workers and agents belong to Ray."""
    return name.removeprefix("ray::").partition(".")[0] in _PIPELINE


def _start_s(cluster: Child, port: int, number: int) -> float:
    """Seconds from the command's start to the first row in the hands of a client that waits."""
    name = f"started-{number}"
    with tempfile.TemporaryDirectory(prefix="ray_canal_bench_") as folder:
        deployment = Path(folder) / "canal.toml"
        deployment.write_text(
            f'[meta]\npath = "meta.db"\n[[instance]]\ndestination = "{name}"\n[instance.source]\n'
            f'address = "127.0.0.1:{port}"\nusername = "root"\nstart = "earliest"\n',
            encoding="utf-8",
        )
        cluster.tell({"do": "first_row", "name": name})
        cluster.wait("ready", START_S)
        began_ns = time.monotonic_ns()
        command = [sys.executable, "-m", "ray_canal", "start", str(deployment), "--detach"]
        done = subprocess.run(
            command, cwd=ROOT, env=environment(RAY_ADDRESS=cluster.address),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise ChildFailed(f"ray-canal start: {done.stderr.strip()[-300:]}")
        end = cluster.wait("end", START_S)
        cluster.tell({})
        cluster.wait("stopped", START_S)
    return float(end["ns"] - began_ns) / 1e9


def spark(made: Made, telling: Telling) -> Figures:
    """Rows/s of micro-batches that Spark counts, by one executor with one core."""
    with source(made) as served:
        telling("Spark: session")
        with cluster_of("spark") as cluster:
            telling("Spark: micro-batches")
            cluster.tell({"do": "spark", "port": served.server.port, "rows": made.rows})
            run = clocked(cluster, made, served)
            cluster.tell({})
            cluster.wait("stopped", START_S)
    return {
        "workload": made.name,
        "rows": run.rows,
        "rows_per_s": round(run.rows / run.seconds),
        "cpu_s_per_m_rows": round(run.cpu_s / run.rows * 1e6, 2),
        "peak_mb": round(run.peak_mb, 1),
    }
