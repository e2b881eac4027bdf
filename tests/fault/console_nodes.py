"""A cluster of three nodes with a console: a program of its own, as a process has one Ray.

    RAY_AUTH_TOKEN=... python -m tests.fault.console_nodes FOLDER

`ray-canal start` opens the console; its process is killed, then a node that it is not on. Prints as
JSON where it ran and what it answered.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.cluster_utils import Cluster
from typer.testing import CliRunner

from ray_canal import cli
from ray_canal.actors.control.homes import cluster_nodes, head_of
from ray_canal.console.rest_client import ConsoleClient
from ray_canal.demo import binlog_files
from ray_canal.errors import CanalError
from tests.servers.run import free_port

PATIENCE_S = 90.0
NAME = "replayed"


def config_of(folder: Path, port: int) -> str:
    return (
        '[meta]\npath = "meta.db"\n'
        f'[[instance]]\ndestination = "{NAME}"\nsource.files = ["{binlog_files()[0]}"]\n'
        f"[console]\nport = {port}\nrefresh_s = 0.5\n"
    )


def processes() -> list[psutil.Process]:
    """The console's processes on all nodes of this cluster."""
    every = psutil.Process().children(recursive=True)
    return [each for each in every if _title(each).startswith("ray::ConsoleActor")]


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def answer(client: ConsoleClient) -> tuple[str, float]:
    """The state of the destination as the console shows it, and after how many seconds."""
    began = time.monotonic()
    while time.monotonic() < began + PATIENCE_S:
        try:
            found = client.destination(NAME)
            if found["status"]:
                return found["state"], time.monotonic() - began
        except (CanalError, OSError):
            pass
        time.sleep(0.2)
    raise TimeoutError("the console does not answer")


def main(folder: str) -> dict[str, Any]:
    path = Path(folder) / "canal.toml"
    port = free_port()
    path.write_text(config_of(Path(folder), port), encoding="utf-8")
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        others = [cluster.add_node(num_cpus=1) for _ in range(2)]
        ray.init(address=cluster.address)
        told = CliRunner().invoke(cli.app, ["start", str(path), "--detach"])
        assert told.exit_code == 0, told.output
        client = ConsoleClient(f"http://127.0.0.1:{port}")
        first = answer(client)
        (process,) = processes()
        raylets = {process.ppid()}
        process.kill()
        process.wait(30)
        again = answer(client)
        (process,) = processes()
        raylets.add(process.ppid())
        cluster.remove_node(others[0], allow_graceful=False)
        deadline = time.monotonic() + PATIENCE_S
        while len(nodes := client.nodes()) > 2 and time.monotonic() < deadline:
            time.sleep(0.5)
        after = answer(client)
        return {
            "output": told.output,
            "states": [first[0], again[0], after[0]],
            "restarted_s": again[1],
            "raylets": len(raylets),
            "on_head": _parent_is_head(process),
            "nodes": len(nodes),
            "with_destination": [each["head"] for each in nodes if NAME in each["destinations"]],
            "head": head_of(cluster_nodes()) in {each["node"] for each in nodes},
        }
    finally:
        ray.shutdown()
        cluster.shutdown()


def _parent_is_head(process: psutil.Process) -> bool:
    parent = process.parent()
    return parent is not None and any("--head" in each for each in parent.cmdline())


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
