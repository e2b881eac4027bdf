"""What destinations cost that have nothing to do: time to the first row, memory, CPU.

    python -m benchmarks.idle --destinations 5 --seconds 60

Starts a MySQL 9.7 and a Ray of its own (nothing of it runs in this process but the driver), and
reads /proc: PSS counts memory that processes share once. Ray's own daemons are shown beside, for
they are there without us.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

import ray_canal as canal
from tests import servers
from tests.processes import family, share_bytes


def _title(process: psutil.Process) -> str:
    try:
        first = (process.cmdline() or [""])[0]
        return first if first.startswith("ray::") else Path(first).name or process.name()
    except psutil.Error:
        return ""


def cpu_seconds(processes: list[psutil.Process]) -> dict[int, float]:
    """User and system time so far, by process id."""
    found = {}
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        found[process.pid] = times.user + times.system
    return found


def measured(seconds: float) -> dict[str, Any]:
    """By title: processes, PSS in MB, CPU in percent of a core over so many seconds."""
    processes = family()
    titles = {process.pid: _title(process) for process in processes}
    before, began = cpu_seconds(processes), time.monotonic()
    time.sleep(seconds)
    after, lasted_s = cpu_seconds(processes), time.monotonic() - began
    count: Counter[str] = Counter(titles.values())
    pss: dict[str, float] = defaultdict(float)
    cpu: dict[str, float] = defaultdict(float)
    for pid, title in titles.items():
        pss[title] += share_bytes(pid, "Pss") / 1e6
        if pid in before and pid in after:
            cpu[title] += 100 * (after[pid] - before[pid]) / lasted_s
    return {
        title: {
            "processes": count[title],
            "pss_mb": round(pss[title], 1),
            "cpu_percent": round(cpu[title], 2),
        }
        for title in sorted(count)
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--destinations", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--shared", type=int, default=None, help="destinations in a process")
    return printed(_report, parser.parse_args(arguments))


def printed(report: Callable[[Any, Path, Any], dict[str, Any]], options: Any) -> int:
    """Print what `report(server, folder, options)` finds with a MySQL 9.7 and a folder of its own.
    Returns the exit code."""
    with (
        tempfile.TemporaryDirectory() as folder,
        servers.start("mysql97", Path(folder)) as server,
    ):
        found = report(server, Path(folder), options)
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


def _report(server: Any, folder: Path, options: Any) -> dict[str, Any]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=600 << 20)
    try:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.item (id INT PRIMARY KEY)")
        config: dict[str, Any] = {
            "meta": {"path": str(folder / "meta.db")},
            "instance": [
                {
                    "destination": f"d{number}",
                    "source": {"address": server.address, "username": "root"},
                }
                for number in range(options.destinations)
            ],
        }
        if options.shared is not None:
            config["ray"] = {"destinations_per_process": options.shared}
        began = time.monotonic()
        names = canal.start(config)
        running_s = time.monotonic() - began
        connector = canal.connect(names[0])
        connector.subscribe()
        server.execute("INSERT INTO shop.item VALUES (1)")
        while not connector.get(10, timeout=1.0).batches:
            pass
        first_row_s = time.monotonic() - began
        time.sleep(5)
        return {
            "destinations": options.destinations,
            "running_s": round(running_s, 2),
            "first_row_s": round(first_row_s, 2),
            "processes": measured(options.seconds),
        }
    finally:
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
