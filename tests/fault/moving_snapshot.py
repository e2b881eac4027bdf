"""A sink whose snapshot runs while the node of its destination drains and dies: a program of its
own, as a process has one Ray.

    RAY_AUTH_TOKEN=... python -m tests.fault.moving_snapshot HOST:PORT FOLDER SEED

Two nodes next to a head without CPUs, and clients that write all the time. Prints what was seen as
JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

import ray_canal as canal
from ray_canal.errors import CanalError
from tests.fault.moving_nodes import MEMORY, PATIENCE_S, held
from tests.fault.own_cluster import drain_node, own_cluster
from tests.integration.test_snapshot_keyed import Writers
from tests.integration.test_snapshot_mirror import TABLES, rows
from tests.processes import wait_for
from tests.servers import Server

NAME, CLIENT = "filling", 7
COPY, CURSORS = "keyed_copy", "keyed_cursors"


def config_of(address: str, folder: str) -> dict[str, Any]:
    source = {"address": address, "username": "root", "snapshot": "initial"}
    return {
        "meta": {"path": f"{folder}/meta.db", "shared": True},
        "ray": {"node": "any"},
        "instance": [
            {
                "destination": NAME,
                "source": source,
                "filter": {"tables": r"keyed\.[nc]"},
                "snapshot": {"chunk_bytes": 65536, "mode": "keyed", "rows_per_s": 10_000},
            }
        ],
        "sink": [
            {
                "name": "copy",
                "destination": NAME,
                "type": "mysql",
                "client_id": CLIENT,
                "tables": r"keyed\.[nc]",
                "mirror": {
                    "address": address,
                    "username": "root",
                    "database": COPY,
                    "cursor_database": CURSORS,
                },
            }
        ],
    }


def main(address: str, folder: str, seed: str) -> None:
    host, _, port = address.rpartition(":")
    server = Server("mysql97", Path(folder), host=host, port=int(port))  # another process's
    config = config_of(address, folder)
    with own_cluster(num_cpus=0, **MEMORY) as cluster:
        workers = {node.node_id: node for node in (_node(cluster), _node(cluster))}
        canal.start(config, timeout=PATIENCE_S)
        with Writers(server, 2, seed=int(seed)).running():
            told = drained_and_killed(cluster, workers, config)
        told |= judged(server)
        canal.stop_sink("copy")
        canal.stop(NAME)
        print(json.dumps(told), flush=True)


def _node(cluster: Cluster) -> Any:
    return cluster.add_node(num_cpus=2, **MEMORY)


def snapshot() -> dict[str, Any]:
    """How it goes; empty while the destination is on its way."""
    try:
        return {**canal.subscriber(NAME, CLIENT).snapshot.status()}
    except CanalError:
        return {}


def drained_and_killed(
    cluster: Cluster, workers: dict[str, Any], config: dict[str, Any]
) -> dict[str, Any]:
    """Let the destination's node drain in the midst of the snapshot; once it is left, kill it, and
    whatever of the sink is on it. Return at which row each was."""
    canal.start_sinks(config)
    wait_for(lambda: snapshot().get("rows", 0) > 0, PATIENCE_S, "the snapshot has rows")
    found, (drained,) = snapshot(), held()
    drain_node(cluster, drained)
    told = {"drained_at": (found["state"], found["rows"], found["rows_estimate"])}
    wait_for(lambda: list(held()) not in ([], [drained]), PATIENCE_S, "the node is left")
    wait_for(lambda: snapshot().get("rows", 0) > found["rows"], PATIENCE_S, "it goes on")
    found = snapshot()
    told["killed_at"] = (found["state"], found["rows"], found["rows_estimate"])
    _node(cluster)
    cluster.remove_node(workers[drained], allow_graceful=False)
    wait_for(lambda: snapshot().get("state") == "done", PATIENCE_S, "all rows are read")
    return told


def judged(server: Server) -> dict[str, Any]:
    """The mirror is what SELECT shows, now that nobody writes: same rows, each as often."""
    wanted = {table: rows(server, "keyed", table) for table in TABLES}

    def is_equal() -> bool:
        return all(rows(server, COPY, table) == found for table, found in wanted.items())

    failure = ""
    try:
        wait_for(is_equal, PATIENCE_S, "the mirror is SELECT")
    except AssertionError as error:
        failure = str(error)
    copies = {table: rows(server, COPY, table) for table in TABLES}
    return {
        "failure": failure,
        "rows": {table: len(found) for table, found in wanted.items()},
        "lost": {t: sorted(set(wanted[t]) - set(copies[t]))[:5] for t in TABLES},
        "wrong": {t: sorted(set(copies[t]) - set(wanted[t]))[:5] for t in TABLES},
        "twice": {t: len(copies[t]) - len(set(copies[t])) for t in TABLES},
        "sink": canal.sink_status("copy")["copy"]["state"],
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
