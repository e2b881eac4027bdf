"""A cluster whose autoscaler is real, on this machine: a program of its own.

    RAY_AUTH_TOKEN=... python -m tests.fault.autoscaling HOST:PORT FOLDER ROWS

The head has one CPU. Rows are read in tiny chunks, so that decode tasks are many. Prints as JSON
what was seen: the largest number of decoders in flight, when `ray status` showed their demand, and
when a node came.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ray
from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.autoscaler._private.commands import debug_status
from ray.util import get_node_ip_address

import ray_canal as canal
from tests.fault.ray_nodes import RayNodes

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


class Watcher(threading.Thread):
    """Notes when `ray status` has first shown that tasks wait for CPUs, and when a node came."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._gcs = GcsClient(address=address)
        self._began_s = time.monotonic()
        self.demand_s: float | None = None
        self.node_s: float | None = None
        self.text = ""

    def run(self) -> None:
        while self.demand_s is None or self.node_s is None:
            # As the command does it, which takes seconds to start.
            found = self._gcs.internal_kv_get(DEBUG_AUTOSCALING_STATUS.encode())
            self.text = debug_status(found, None, address=self._address)
            now_s = time.monotonic() - self._began_s
            if self.demand_s is None and "pending tasks/actors" in self.text:
                self.demand_s = now_s
            if self.node_s is None and sum(node["Alive"] for node in ray.nodes()) > 1:
                self.node_s = time.monotonic() - self._began_s
            time.sleep(0.1)


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


def autoscaler_of(gcs_address: str) -> dict[str, Any]:
    """What `ray up` would be given: a provider that starts nodes on this machine, one at most."""
    return {
        "cluster_name": "autoscaling",
        "max_workers": 1,
        "idle_timeout_minutes": 1,
        "head_node_type": "ray.head.default",  # as the provider calls it
        "provider": {
            "type": "fake_multinode",
            "gcs_address": gcs_address,
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
            "decoders": {
                "resources": {"CPU": 2, "object_store_memory": 200 << 20},
                "node_config": {},
                "min_workers": 0,
                "max_workers": 1,
            },
        },
        "auth": {},
        # The autoscaler demands these; the provider uses none of them.
        "docker": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "initialization_commands": [],
        "setup_commands": [],
        "head_setup_commands": [],
        "worker_setup_commands": [],
        "head_start_ray_commands": [],
        "worker_start_ray_commands": [],
    }


def main(address: str, folder: str, rows: str) -> None:
    # ray.cluster_utils.AutoscalingCluster does the same, but ends every Ray of the machine first.
    settings = {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    nodes = RayNodes(Path(folder), ip=get_node_ip_address(), **settings)
    file = Path(folder) / "autoscaler.json"
    file.write_text(json.dumps(autoscaler_of(nodes.address)))
    os.environ["RAY_ADDRESS"] = nodes.address
    try:
        how = f"--autoscaling-config={file}"
        with nodes.running(lambda: nodes.head(how, cpus=1)):
            ray.init(nodes.address, log_to_driver=False)
            watcher = Watcher(nodes.address)
            watcher.start()
            print(json.dumps(watched(address, folder, int(rows), watcher)), flush=True)
            ray.shutdown()
    finally:
        nodes.remove()


def watched(address: str, folder: str, rows: int, watcher: Watcher) -> dict[str, Any]:
    """Read all rows, and look at decoders, demand and nodes meanwhile."""
    canal.start(config_of(address, folder), timeout=PATIENCE_S)
    reader = Reader()
    reader.start()
    began = time.monotonic()
    told: dict[str, Any] = {"decoders_max": 0}
    while reader.rows < rows or watcher.is_alive():
        if time.monotonic() - began > PATIENCE_S:
            break
        status = canal.status(NAME)[NAME]
        told["decoders_max"] = max(told["decoders_max"], status["decoders_now"] or 0)
        time.sleep(0.2)
    told |= {"demand_s": watcher.demand_s, "node_s": watcher.node_s}
    if watcher.is_alive():
        told["status"] = watcher.text
    told["rows"] = reader.rows
    told["read_s"] = time.monotonic() - began
    canal.stop(NAME)
    return told


if __name__ == "__main__":
    main(*sys.argv[1:])
