"""How the rate grows with nodes, one destination on each, and with decoders of one destination.

    python -m benchmarks.growth [--rounds 3] [--seconds 12] [--out benchmarks/bench.json]

A Ray cluster of raylets on this machine, and a MySQL 9.7 with W1. Control groups give parts of a
core, so that many nodes fit onto few cores; what starts is not limited, what is measured is.

nodes     a node has NODE_CORES for all of its processes: raylet, destination, and the client that
          reads it there. Total rows/s of 1, 2 and 4 nodes, in turns.
decoders  the fetcher has FETCH_CORES, each decode task's process DECODE_CORES. Rows/s with 1 to 8
          decoders, and what status says is the limit.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import workloads as work
from benchmarks.command import machine
from benchmarks.cpu_shares import Share, share, unavailable
from benchmarks.e2e.child import environment
from benchmarks.e2e.processes import MARK, cpu_s, marked, title, with_environment
from benchmarks.e2e.server import Source, source

NODE_CORES = 0.2
FETCH_CORES, DECODE_CORES = 0.1, 0.04
COUNTS = (1, 2, 4)
DECODERS = (1, 2, 3, 4, 6, 8)
_NODE = "RAY_CANAL_BENCH_NODE"
_UNITS = 16 << 10
_START_S = 120.0
_CHUNK_BYTES = 4 << 20

Samples = list[tuple[float, int]]
"""When (CLOCK_MONOTONIC) how many rows were there."""


class Reader:
    """Reads destinations, on a node of theirs."""

    def __init__(self) -> None:
        from ray_canal.warm import warm

        warm()

    def read(self, name: str, rows: int, seconds: float) -> Samples:
        """Read so many rows, or for so long after the first."""
        import ray_canal as canal

        found: Samples = []
        count = 0
        with canal.connect(name) as connector:
            connector.subscribe()
            for message in connector.messages(_UNITS):
                count += sum(batch.num_rows for batch in message.batches)
                found.append((time.monotonic(), count))
                if count >= rows or found[-1][0] > found[0][0] + seconds:
                    break
        return found


def total_rate(readers: Sequence[Samples]) -> float:
    """Return the rows/s of all readers together, from when the last of them has a quarter of its
    rows until the first is done. Raises ValueError: they did not read at the same time."""
    begin_s = max(next(s for s, rows in each if rows >= each[-1][1] / 4) for each in readers)
    end_s = min(each[-1][0] for each in readers)
    if end_s <= begin_s:
        raise ValueError("too few rows: the readers did not read at the same time")
    rows = 0.0
    for each in readers:
        times, counts = zip(*each, strict=True)
        rows += float(np.diff(np.interp([begin_s, end_s], times, counts))[0])
    return rows / (end_s - begin_s)


class Nodes:
    """A cluster whose head has no CPU; each of its nodes is in a group."""

    def __init__(self, groups: contextlib.ExitStack) -> None:
        import ray
        from ray.cluster_utils import Cluster

        self._groups = groups
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 1 << 30}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        ray.init(address=self._cluster.address, log_to_driver=False)
        self.shares: list[Share] = []

    def add(self, *, whole: bool = True) -> str:
        """Start one more node; return Ray's id of it. `whole`: all of its processes share its part
        of a core, else only workers do (`take_workers`)."""
        number = str(len(self.shares))
        node = self._cluster.add_node(
            num_cpus=1, resources={f"bench{number}": 1}, object_store_memory=512 << 20,
            env_vars={_NODE: number},
        )  # fmt: skip
        self.shares.append(self._groups.enter_context(share(number)))
        if whole:
            self.shares[-1].take(with_environment(_NODE, number))
        return str(node.node_id)

    def load_workers(self) -> None:
        """Have a worker of each node load the kernels."""
        import ray

        from ray_canal.warm import warm

        loading = ray.remote(warm).options(num_cpus=1, scheduling_strategy="SPREAD")
        ray.get([loading.remote() for _ in self.shares])

    def take_workers(self) -> None:
        """Put the nodes' workers that decode into their groups."""
        decoding = set(_titled("decode_chunk"))
        for number, each in enumerate(self.shares):
            each.take(decoding.intersection(with_environment(_NODE, str(number))))

    def end(self) -> None:
        import ray

        ray.shutdown()
        self._cluster.shutdown()


@contextlib.contextmanager
def cluster() -> Iterator[Nodes]:
    """Nodes that end with the block, before their groups do."""
    with contextlib.ExitStack() as groups:
        nodes = Nodes(groups)
        try:
            yield nodes
        finally:
            nodes.end()


@contextlib.contextmanager
def limited(shares: Sequence[Share], cores: float) -> Iterator[None]:
    for each in shares:
        each.limit(cores)
    try:
        yield
    finally:
        for each in shares:
            each.limit(None)


@contextlib.contextmanager
def destinations(served: Source, instances: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    """Destinations of the whole log, which begin when somebody subscribes; their processes have
    loaded what they need."""
    import ray_canal as canal

    begun = time.monotonic_ns()
    names = [f"growth-{begun}-{number}" for number in range(len(instances))]
    from_server = {
        "address": f"127.0.0.1:{served.server.port}", "username": "root", "password": "",
        "start": "earliest",
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ray_canal_bench_") as folder:
        tree = {
            "meta": {"path": f"{folder}/meta.db", "shared": True},
            "ray": {"destinations_per_process": 0 if "decoders" in instances[0] else 1},
            "instance": [
                {"destination": name, "source": from_server, "runs": "once_subscribed", **more}
                for name, more in zip(names, instances, strict=True)
            ],
        }
        canal.start(tree, wait=False)
        for name in names:
            canal.status(name)  # its process has started
        until_quiet()
        try:
            yield names
        finally:
            for name in names:
                canal.stop(name)


def until_quiet() -> None:
    """Wait until the processes of destinations take hardly any CPU."""
    deadline = time.monotonic() + _START_S
    before, now = -1.0, 0.0
    while now - before > 0.1 and time.monotonic() < deadline:
        time.sleep(1.0)
        before, now = now, cpu_s(_titled("StoreActor", "Spare", "FetcherActor", "Parser"))


def _titled(*actors: str) -> list[int]:
    """Return the processes of this cluster that run these actors or tasks."""
    wanted = tuple(f"ray::{name}" for name in actors)
    return [pid for pid in marked(os.environ[MARK]) if title(pid).startswith(wanted)]


def by_nodes(made: work.Made, rounds: int, seconds: float) -> dict[str, Any]:
    """Total rows/s of one destination a node."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as OnNode

    rates: dict[int, list[float]] = {count: [] for count in COUNTS}
    with source(made) as served, cluster() as nodes:
        ids = [nodes.add() for _ in range(max(COUNTS))]
        remote = ray.remote(Reader)
        readers = [
            remote.options(num_cpus=0, scheduling_strategy=OnNode(id, soft=False)).remote()
            for id in ids
        ]
        for number in range(rounds):
            for count in COUNTS:
                served.end_dumps()
                served.load_binlogs()
                places = [{"node": f"bench{k}"} for k in range(count)]
                with destinations(served, places) as names, limited(nodes.shares, NODE_CORES):
                    calls = zip(readers, names, strict=False)
                    reads = [r.read.remote(name, made.rows, seconds) for r, name in calls]
                    rates[count].append(total_rate(ray.get(reads)))
                say(f"round {number + 1}: {count} nodes: {rates[count][-1]:,.0f} rows/s")
    one = statistics.median(rates[1])
    return {
        "cores_of_a_node": NODE_CORES,
        "points": [
            {
                "nodes": count,
                "rows_per_s": round(statistics.median(found)),
                "of_linear": round(statistics.median(found) / one / count, 3),
                "runs": [round(rate) for rate in found],
            }
            for count, found in rates.items()
        ],
    }


class Watch(threading.Thread):
    """Looks at what status says is the limit of a destination, until told to stop."""

    def __init__(self, name: str, limit_new: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._name, self._limit_new = name, limit_new
        self.over = threading.Event()
        self.limits: list[str] = []

    def run(self) -> None:
        import ray_canal as canal
        from ray_canal.destination.status.bottleneck import bottleneck

        while not self.over.wait(0.5):
            self._limit_new()
            found = canal.status(self._name)[self._name]
            limit = bottleneck(found)
            self.limits.append(limit.stage if limit else "unknown")

    def limit(self) -> str:
        """Return what was the limit most often in the second half of the time."""
        self.over.set()
        self.join()
        ((stage, _),) = Counter(self.limits[len(self.limits) // 2 :]).most_common(1)
        return stage


def by_decoders(made: work.Made, rounds: int, seconds: float) -> dict[str, Any]:
    """Rows/s of one destination, and its limit as status has it."""
    points = []
    with source(made) as served, cluster() as nodes, share("fetch") as fetch:
        for count in DECODERS:
            while len(nodes.shares) < count:
                nodes.add(whole=False)
            nodes.load_workers()
            rates, limits = [], Counter[str]()
            for number in range(rounds):
                rate, limit = _decoded(made, served, nodes, fetch, count, seconds)
                rates.append(rate)
                limits[limit] += 1
                say(f"round {number + 1}: {count} decoders: {rate:,.0f} rows/s, limit: {limit}")
            rate = statistics.median(rates)
            points.append({"decoders": count, "rows_per_s": round(rate), "limits": dict(limits)})
    return {"cores_of_a_decoder": DECODE_CORES, "cores_of_the_fetcher": FETCH_CORES,
            "points": points}  # fmt: skip


def _decoded(
    made: work.Made, served: Source, nodes: Nodes, fetch: Share, decoders: int, seconds: float
) -> tuple[float, str]:
    """Return rows/s, without the first third of the time, and the limit."""
    served.end_dumps()
    served.load_binlogs()
    config = {"decoders": decoders, "decoders_min": decoders, "chunk_bytes": _CHUNK_BYTES}
    with (
        destinations(served, [config]) as (name,),
        limited(nodes.shares, DECODE_CORES),
        limited([fetch], FETCH_CORES),
    ):

        def limit_new() -> None:
            fetch.take(_titled("FetcherActor"))
            nodes.take_workers()

        watch = Watch(name, limit_new)
        watch.start()
        found = Reader().read(name, made.rows, seconds)
        limit = watch.limit()
    times, counts = zip(*found, strict=True)
    span = [times[0] + (times[-1] - times[0]) / 3, times[-1]]
    before, after = np.interp(span, times, counts)
    return float((after - before) / (span[1] - span[0])), limit


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12.0, help="of a run, at most")
    parser.add_argument("--scale", type=float, default=1.0, help="part of W1's 8 million rows")
    parser.add_argument("--only", choices=("nodes", "decoders"))
    parser.add_argument("--out", type=Path, help="add the figures to this JSON file")
    given = parser.parse_args()
    if reason := unavailable():
        sys.exit(reason)
    made = work.make(work.WORKLOADS["W1"], given.scale, lambda _: None)
    report: dict[str, Any] = {
        "date": dt.date.today().isoformat(),
        "command": "python -m benchmarks.growth " + " ".join(sys.argv[1:]),
        "machine": machine(),
    }
    if given.only != "decoders":
        report["nodes"] = by_nodes(made, given.rounds, given.seconds)
    if given.only != "nodes":
        report["decoders"] = by_decoders(made, given.rounds, given.seconds)
    print(json.dumps(report, indent=1))
    if given.out is not None:
        whole = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
        whole["growth"] = {**whole.get("growth", {}), **report}
        given.out.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if MARK not in os.environ:  # Ray reads the rest of it when it is imported
        more = {MARK: uuid.uuid4().hex, "RAY_ADDRESS": ""}
        command = [sys.executable, "-m", "benchmarks.growth", *sys.argv[1:]]
        os.execve(sys.executable, command, environment(**more))
    main()
