"""Child: a Ray cluster of its own in which destinations are started, read and stopped, as told.

    python -m benchmarks.e2e.ours [SHAPE]     plain, spark

One JSON line a task on standard input, see TASKS; lines of JSON come back, as peers print them
(benchmarks/e2e/peers). The cluster stays for all tasks, as a cluster does; each destination starts
new processes.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray

import ray_canal as canal
from benchmarks.e2e import clusters
from benchmarks.e2e.arrivals import Arrivals, by_foreach_batch, by_messages
from benchmarks.e2e.peers.saying import say
from benchmarks.e2e.processes import MARK, cpu_s, kind, marked
from ray_canal.actors.control.homes import cluster_nodes, head_of
from ray_canal.actors.placement_table import share_of
from ray_canal.actors.upstream import spare_record
from ray_canal.client.connector import Connector
from ray_canal.client.message import Message
from ray_canal.errors import InstanceNotFound
from ray_canal.warm import warm

UNITS = 48 << 10
"""Memory units of 1 KiB in a get: two chunks."""

_QUIET_S = 1.0
"""A process that took hardly any CPU for so long has loaded its kernels."""
_WARMING_PASSES = 3
_SPARE_S = 90.0
"""So long a spare process is waited for."""


def config(
    folder: str, destination: str, port: int, start: str = "earliest", **instance: Any
) -> dict[str, Any]:
    """A deployment that reads a server of the benchmark."""
    return {
        "meta": {"path": str(Path(folder) / "meta.db")},
        "instance": [
            {
                "destination": destination,
                "source": {
                    "address": f"127.0.0.1:{port}",
                    "username": "root",
                    "password": "",
                    "start": start,
                },
                **instance,
            }
        ],
    }


def rows_of(message: Message, view: str) -> int:
    """The message's rows, its view made."""
    if view == "arrow":
        return sum(batch.num_rows for batch in message.batches)
    return message.row_count if sum(map(len, message.entry_pieces)) else 0


def read(connector: Connector, view: str, rows: int, warm_rows: int) -> int:
    """Messages, each acked, until `rows` are there; the one that has the last of `warm_rows` is the
    mark."""
    found = 0
    for message in connector.messages(UNITS):
        before = found
        found += rows_of(message, view)
        if found >= rows:
            break
        if before < warm_rows <= found:
            say("mark", found)
    return found


@contextlib.contextmanager
def destination(folder: str, task: dict[str, Any], **more: Any) -> Iterator[str]:
    """A destination of its own; it connects to the server when its first subscriber comes."""
    name = f"bench-{time.monotonic_ns()}"
    instance = {"runs": "once_subscribed", **task.get("instance", {}), **more}
    canal.start(config(folder, name, task["port"], **instance), wait=False)
    try:
        yield name
    finally:
        canal.stop(name)


def await_spare() -> None:
    """Wait until a spare process is ready, where fetchers have processes; without one,
    measurements go on, too."""
    if share_of("auto", 1, int(ray.cluster_resources()["CPU"])):
        return
    deadline = time.monotonic() + _SPARE_S
    head = head_of(cluster_nodes())
    while not spare_record.free_name(head) and time.monotonic() < deadline:
        time.sleep(0.1)


def await_quiet(name: str) -> None:
    """Wait until the destination's process has loaded what it needs and does nothing more."""
    canal.status(name)  # it has started
    deadline = time.monotonic() + _SPARE_S
    before, now = -1.0, 0.0
    while now - before > 0.1 * _QUIET_S and time.monotonic() < deadline:
        time.sleep(_QUIET_S)
        ours = [pid for pid in marked(os.environ[MARK]) if kind(pid) == "ray::StoreActor"]
        before, now = now, cpu_s(ours)


def throughput(folder: str, task: dict[str, Any]) -> None:
    """Read the whole log of a server. No start of a process falls into the time from the dump to
    the last row: the destination's has loaded all, or the spare becomes its fetcher."""
    with destination(folder, task) as name, canal.connect(name) as connector:
        await_spare()
        await_quiet(name)
        gc.collect()  # what was loaded is looked through once in a process's life: 130 ms
        say("ready", 0)
        connector.subscribe()
        say("end", read(connector, task["view"], task["rows"], task["warm_rows"]))
        sys.stdin.readline()


def latency(folder: str, task: dict[str, Any]) -> None:
    """Note when each row of a live server is in hand, by the task's `way`; see arrivals.py."""
    arrivals, way = Arrivals(task["rows"]), task["way"]
    name = f"bench-{time.monotonic_ns()}"
    tree = config(folder, name, task["port"], start="latest")
    canal.start(tree)
    parts: dict[str, float] = {}
    if way == "foreachBatch":
        parts = by_foreach_batch(arrivals, name, lambda: say("ready", 0))
    else:
        by_messages(arrivals, tree, name, way, lambda: say("ready", 0))
    arrivals.save(task["out"])
    say("end", arrivals.count, parts=parts)
    sys.stdin.readline()
    canal.stop(name)


def standing(folder: str, task: dict[str, Any]) -> None:
    """Read everything, then wait for more as a subscriber does."""
    with destination(folder, task) as name, canal.connect(name) as connector:
        connector.subscribe()
        stopped = threading.Event()
        rows = 0

        def wait() -> None:
            sys.stdin.readline()
            stopped.set()

        waiting = threading.Thread(target=wait)
        for message in connector.messages(UNITS, stopped=stopped):
            rows += rows_of(message, "arrow")
            if rows >= task["rows"] and not waiting.ident:
                await_spare()  # its start is over when memory and CPU are looked at
                say("end", rows)
                waiting.start()
        waiting.join()


def first_row(folder: str, task: dict[str, Any]) -> None:
    """Wait for a destination that another process starts, then for its first row."""
    say("ready", 0)
    while True:
        try:
            connector = canal.connect(task["name"])
            break
        except InstanceNotFound:
            time.sleep(0.02)
    with connector:
        connector.subscribe()
        for message in connector.messages(1000):
            if rows_of(message, "arrow"):
                break
    say("end", 1)
    sys.stdin.readline()
    canal.stop(task["name"])


def spark_rows(folder: str, task: dict[str, Any]) -> None:
    """Micro-batches that Spark counts; the passes before, until the JVMs have compiled what is hot,
    warm it."""
    from ray_canal import spark

    session = spark.session("ray_canal_bench")
    session.sparkContext.setLogLevel("ERROR")
    counted = 0
    for marks in (*[False] * _WARMING_PASSES, True):
        with destination(folder, task) as name, canal.connect(name) as connector:
            connector.subscribe()
            counted = _counted_by_spark(connector, session, task["rows"], marks)
    say("end", counted)
    sys.stdin.readline()
    spark.stop()


def _counted_by_spark(connector: Connector, session: Any, rows: int, marks: bool) -> int:
    from ray_canal import spark

    counted = 0

    def count(frames: dict[str, Any], _message: Any) -> None:
        nonlocal counted
        first = counted == 0
        counted += sum(frame.count() for frame in frames.values())
        if first and marks:
            say("mark", counted)

    spark.run(connector, session, count, timeout=0.05, until=lambda _: counted >= rows)
    return counted


TASKS: dict[str, Callable[[str, dict[str, Any]], None]] = {
    "throughput": throughput,
    "latency": latency,
    "standing": standing,
    "first_row": first_row,
    "spark": spark_rows,
}


def main(shape: str) -> None:
    with clusters.running(shape), tempfile.TemporaryDirectory(prefix="ray_canal_bench_") as folder:
        warm()  # what the client's views need; the destinations' processes load theirs
        say("up", 0)
        while line := sys.stdin.readline():
            task = json.loads(line)
            TASKS[task["do"]](folder, task)
            say("stopped", 0)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "plain")
