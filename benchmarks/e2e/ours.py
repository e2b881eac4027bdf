"""Child: a Ray cluster of its own in which destinations are started, read and stopped, as told.

One JSON line a task on standard input, see TASKS; lines of JSON come back, as peers print them
(benchmarks/e2e/peers). The cluster stays for all tasks, as a cluster does; each destination starts
new processes. Messages are asked for in `units` memory units: a bigger message costs fewer round
trips.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray_canal as canal
from benchmarks.e2e.peers.saying import say
from ray_canal.client.connector import Connector
from ray_canal.client.message import Message

UNITS = 16 << 10
"""Memory units of 1 KiB in a get."""


def config(folder: str, destination: str, port: int, **instance: Any) -> dict[str, Any]:
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
                    "start": "earliest",
                },
                **instance,
            }
        ],
    }


def rows_of(message: Message, view: str) -> int:
    """The message's rows, its view made."""
    if view == "arrow":
        return sum(batch.num_rows for batch in message.batches)
    return message.row_count if len(message.entry_bytes) else 0


def read(connector: Connector, view: str, rows: int, units: int = UNITS) -> int:
    """Messages, each acked, until `rows` are there; the rows that there were."""
    found = 0
    for message in connector.messages(units):
        found += rows_of(message, view)
        if found >= rows:
            break
    return found


def throughput(folder: str, task: dict[str, Any]) -> None:
    """Read the whole log of a server; it connects when the subscriber comes."""
    name = f"bench-{time.monotonic_ns()}"
    instance = {"runs": "once_subscribed", **task.get("instance", {})}
    canal.start(config(folder, name, task["port"], **instance), wait=False)
    connector = canal.connect(name)
    say("ready", 0)
    connector.subscribe()
    say("end", read(connector, task["view"], task["rows"], task.get("units", UNITS)))
    sys.stdin.readline()
    connector.close()
    canal.stop(name)
    say("stopped", 0)


TASKS: dict[str, Callable[[str, dict[str, Any]], None]] = {"throughput": throughput}


def main() -> None:
    import ray

    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, object_store_memory=1 << 30)
    say("up", 0)
    with tempfile.TemporaryDirectory(prefix="ray_canal_bench_") as folder:
        while line := sys.stdin.readline():
            task = json.loads(line)
            TASKS[task["do"]](folder, task)
    ray.shutdown()


if __name__ == "__main__":
    main()
