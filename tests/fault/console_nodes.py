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
from ray.cluster_utils import Cluster
from typer.testing import CliRunner

from ray_canal import cli
from ray_canal.actors.control.homes import cluster_nodes, head_of
from ray_canal.console.rest_client import ConsoleClient
from ray_canal.demo import binlog_files
from ray_canal.errors import CanalError
from tests.fault.own_cluster import own_cluster
from tests.processes import wait_for
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


def main(folder: str) -> None:
    with own_cluster(num_cpus=1) as cluster:
        print(json.dumps(played(cluster, Path(folder))), flush=True)


def played(cluster: Cluster, folder: Path) -> dict[str, Any]:
    """Kill the console's process, then a node; return where it ran and what it answered."""
    path = folder / "canal.toml"
    port = free_port()
    path.write_text(config_of(folder, port), encoding="utf-8")
    others = [cluster.add_node(num_cpus=1) for _ in range(2)]
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
    wait_for(lambda: len(client.nodes()) == 2, PATIENCE_S, "the dead node is no longer shown")
    after = answer(client)
    nodes = client.nodes()
    return {
        "output": told.output,
        "states": [first[0], again[0], after[0]],
        "restarted_s": again[1],
        "raylets": len(raylets),
        "on_head": _parent_is_head(process),
        "with_destination": [each["head"] for each in nodes if NAME in each["destinations"]],
        "head": head_of(cluster_nodes()) in {each["node"] for each in nodes},
    }


def _parent_is_head(process: psutil.Process) -> bool:
    parent = process.parent()
    return parent is not None and any("--head" in each for each in parent.cmdline())


if __name__ == "__main__":
    main(*sys.argv[1:])
