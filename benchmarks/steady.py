"""Whether a destination's memory stays flat while rows come and are acked, for an hour.

    python -m benchmarks.steady --minutes 60 --rows 2000

Starts a MySQL 9.7, a Ray and a destination of its own, and a client that reads Arrow batches and
acks. A line a minute: rows so far, and the memory of the destination's process, of the controller
and of the client, without files and the shared object store (Anonymous of /proc, MB). At the end
the slope of each over the second half (least squares), as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pymysql

import ray_canal as canal
from benchmarks.e2e.processes import anonymous_mb, title
from benchmarks.idle import printed
from tests.processes import family

_ROWS_PER_TRANSACTION = 10
_LINGER_MS = 100.0
"""What is measured is memory: with a chunk for each transaction it would be mostly CPU."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rows", type=float, default=2000.0, help="per second (default: 2000)")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between lines")
    return printed(_report, parser.parse_args(arguments))


def _report(server: Any, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=300 << 20)
    stop = threading.Event()
    server.execute(
        "CREATE DATABASE steady",
        "CREATE TABLE steady.item "
        "(id INT PRIMARY KEY, owner INT, name VARCHAR(80), at DATETIME(6))",
    )
    writer = threading.Thread(target=_write, args=(server, options.rows, stop))
    try:
        canal.start(
            {
                "meta": {"path": str(folder / "meta.db")},
                "instance": [
                    {
                        "destination": "steady",
                        "linger_ms": _LINGER_MS,
                        "source": {"address": server.address, "username": "root"},
                    }
                ],
            }
        )
        with canal.connect("steady") as connector:
            connector.subscribe(r"steady\..*")
            writer.start()
            return _followed(connector, options)
    finally:
        stop.set()
        if writer.is_alive():
            writer.join()
        ray.shutdown()


def _followed(connector: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Read and ack for so many minutes; memory now and then."""
    began_s, rows, samples = time.monotonic(), 0, []
    next_s = began_s + options.every
    for message in connector.messages(1000, 1.0):
        rows += sum(batch.num_rows for batch in message.batches)
        now_s = time.monotonic()
        if now_s < next_s:
            continue
        next_s += options.every
        samples.append({"minute": (now_s - began_s) / 60, "rows": rows, **_memory()})
        shown = {name: round(value, 2) for name, value in samples[-1].items()}
        print(json.dumps(shown), flush=True)
        if now_s - began_s >= 60 * options.minutes:
            break
    last, second = samples[-1], samples[len(samples) // 2 :]
    processes = [name for name in last if name not in ("minute", "rows")]
    hours = [sample["minute"] / 60 for sample in second]
    return {
        "minutes": round(last["minute"], 1),
        "rows": rows,
        "mb": {name: round(last[name], 1) for name in processes},
        "mb_at_half": {name: round(second[0][name], 1) for name in processes},
        "slope_mb_per_hour": {
            name: round(float(np.polyfit(hours, [sample[name] for sample in second], 1)[0]), 2)
            for name in processes
            if len(second) > 1
        },
    }


def _memory() -> dict[str, float]:
    """MB by kind of process."""
    found = {"client": anonymous_mb(os.getpid())}
    for process in family():
        name = title(process.pid).removeprefix("ray::").partition(".")[0]
        if name in ("StoreActor", "Controller", "FetcherActor"):
            found[name] = found.get(name, 0.0) + anonymous_mb(process.pid)
    return found


def _write(server: Any, rows_per_s: float, stop: threading.Event) -> None:
    """The same rows again and again, so that the table stays small."""
    port, pause_s = server.port, _ROWS_PER_TRANSACTION / rows_per_s
    connection = pymysql.connect(host=server.host, port=port, user="root", autocommit=True)
    with connection, connection.cursor() as cursor:
        began_s, number = time.monotonic(), 0
        while not stop.is_set():
            first = number % 10_000 * _ROWS_PER_TRANSACTION
            ids = range(first, first + _ROWS_PER_TRANSACTION)
            values = ", ".join(f"({id}, {number}, 'item {number} of {id}', now(6))" for id in ids)
            cursor.execute(
                f"INSERT INTO steady.item VALUES {values} AS new ON DUPLICATE KEY UPDATE "
                "owner = new.owner, name = new.name, at = new.at"
            )
            number += 1
            left_s = began_s + number * pause_s - time.monotonic()
            if left_s > 0:
                time.sleep(left_s)


if __name__ == "__main__":
    sys.exit(main())
