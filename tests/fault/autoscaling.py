"""A cluster whose autoscaler is real, on this machine: a program of its own.

    RAY_AUTH_TOKEN=... python -m tests.fault.autoscaling HOST:PORT FOLDER ROWS

The head has one CPU. Rows are read in tiny chunks, so that decode tasks are many. Prints as JSON
what was seen: the largest number of decoders in flight, when `ray status` showed their demand, and
when a node came.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import Any

import ray
from ray.cluster_utils import AutoscalingCluster

import ray_canal as canal

PATIENCE_S = 300.0
NAME = "autoscaling"


def config_of(address: str, folder: str) -> dict[str, Any]:
    return {
        "meta": {"path": f"{folder}/meta.db"},
        "ray": {"destinations_per_process": 0},
        "instance": [
            {
                "destination": NAME,
                "decoders": 8,
                "chunk_bytes": 16 << 10,
                "source": {"address": address, "username": "root", "start": "earliest"},
                "filter": {"tables": rf"{NAME}\..*"},
            }
        ],
    }


def demand() -> bool:
    """Whether `ray status` says that tasks wait for CPUs."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "status"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return "pending tasks/actors" in done.stdout


class Reader(threading.Thread):
    """Counts rows, and acknowledges them."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.rows = 0

    def run(self) -> None:
        with canal.connect(NAME, 1) as connector:
            connector.subscribe()
            for message in connector.messages(4096, 1.0):
                self.rows += sum(batch.num_rows for batch in message.batches)


def main(address: str, folder: str, rows: str) -> None:
    cluster = AutoscalingCluster(
        head_resources={"CPU": 1},
        worker_node_types={
            "decoders": {
                "resources": {"CPU": 2, "object_store_memory": 200 << 20},
                "node_config": {},
                "min_workers": 0,
                "max_workers": 1,
            }
        },
        idle_timeout_minutes=1,
    )
    cluster.start()
    try:
        ray.init("auto", log_to_driver=False)
        print(json.dumps(watched(address, folder, int(rows))), flush=True)
        ray.shutdown()
    finally:
        cluster.shutdown()


def watched(address: str, folder: str, rows: int) -> dict[str, Any]:
    """Read all rows, and look at decoders, demand and nodes meanwhile."""
    canal.start(config_of(address, folder), timeout=PATIENCE_S)
    reader = Reader()
    reader.start()
    began = time.monotonic()
    told: dict[str, Any] = {"decoders_max": 0, "demand_s": None, "node_s": None}
    while reader.rows < rows or told["node_s"] is None:
        now = time.monotonic() - began
        if now > PATIENCE_S:
            break
        status = canal.status(NAME)[NAME]
        told["decoders_max"] = max(told["decoders_max"], status["decoders_now"] or 0)
        if told["demand_s"] is None and demand():
            told["demand_s"] = now
        if told["node_s"] is None and sum(node["Alive"] for node in ray.nodes()) > 1:
            told["node_s"] = now
        time.sleep(0.2)
    told["rows"] = reader.rows
    told["read_s"] = time.monotonic() - began
    canal.stop(NAME)
    return told


if __name__ == "__main__":
    main(*sys.argv[1:])
