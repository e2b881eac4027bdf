"""A cluster whose nodes drain, die and come, with destinations on them: a program of its own, as a
process has one Ray.

    RAY_AUTH_TOKEN=... python -m tests.fault.moving_nodes HOST:PORT FOLDER DESTINATIONS NODES

The head has no CPU, so nothing but the controller is there. Rows are written all the time, the
number of the row in each destination's table; a thread a destination reads and acknowledges them.
Prints what was seen as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import pymysql
from ray.cluster_utils import Cluster

import ray_canal as canal
from ray_canal.errors import InstanceError
from tests.fault.own_cluster import drain_node, own_cluster
from tests.processes import wait_for

PATIENCE_S = 150.0
MEMORY = {"object_store_memory": 100 << 20}


def config_of(address: str, folder: str, names: list[str]) -> dict[str, Any]:
    return {
        "meta": {"path": f"{folder}/meta.db", "shared": True},
        "ray": {"destinations_per_process": 2, "node": "any"},
        "instance": [
            {
                "destination": name,
                "source": {
                    "address": address,
                    "username": "canal_moves",
                    "password": "in clear text",  # the head tells it to other nodes
                    "start": "earliest",
                },
                "filter": {"tables": rf"moves\.{name}"},
            }
            for name in names
        ],
    }


class Writer(threading.Thread):
    """Rows 1, 2, 3, … into each table."""

    def __init__(self, address: str, names: list[str]) -> None:
        super().__init__(daemon=True)
        host, _, port = address.rpartition(":")
        self._server = pymysql.connect(
            host=host, port=int(port), user="root", autocommit=True, ssl_disabled=True
        )
        self._names = names
        self.written = 0
        self.over = threading.Event()

    def run(self) -> None:
        with self._server.cursor() as cursor:
            while not self.over.wait(0.05):
                for name in self._names:
                    cursor.execute(f"insert into moves.{name} values ({self.written + 1})")
                self.written += 1


class Reader(threading.Thread):
    """Takes the rows of one destination, and acknowledges them."""

    def __init__(self, name: str) -> None:
        super().__init__(daemon=True)
        self.destination = name
        self.ids: list[int] = []
        self.repeated = 0
        self.longest_s = 0.0
        self.last = time.monotonic()
        self.over = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        with canal.connect(self.destination, 1) as connector:
            connector.subscribe(rf"moves\.{self.destination}")
            while not self.over.is_set():
                try:
                    self._take(connector)
                except InstanceError:
                    continue  # what was not acknowledged comes again
                except Exception as error:
                    self.failure = error
                    raise

    def _take(self, connector: canal.Connector) -> None:
        message = connector.get_without_ack(100, 1.0)
        if not message:
            return
        found = [
            row["after"]["id"]
            for batch in message.batches
            for row in batch.to_pylist()
            if row["after"]
        ]
        newest = self.ids[-1] if self.ids else 0
        new = [id for id in found if id > newest]
        self.repeated += len(found) - len(new)
        self.ids += new
        now = time.monotonic()
        self.longest_s, self.last = max(self.longest_s, now - self.last), now
        # Last: one whose answer is lost with its node may have been made, and nothing comes again.
        connector.ack(message.id)

    def restart_clock(self) -> None:
        self.longest_s, self.last = 0.0, time.monotonic()


def held() -> dict[str, list[str]]:
    """Destinations by node, of nodes that have some."""
    return {each["node"]: each["destinations"] for each in canal.nodes() if each["destinations"]}


def main(address: str, folder: str, destinations: str, nodes: str) -> None:
    names = [f"d{number}" for number in range(int(destinations))]
    with own_cluster(num_cpus=0, **MEMORY) as cluster:
        print(json.dumps(played(cluster, address, folder, names, int(nodes))), flush=True)


def played(
    cluster: Cluster, address: str, folder: str, names: list[str], nodes: int
) -> dict[str, Any]:
    """Spread destinations over nodes, of which one drains and one dies; return what was seen."""
    workers = [cluster.add_node(num_cpus=1, **MEMORY) for _ in range(nodes)]
    canal.start(config_of(address, folder, names), timeout=PATIENCE_S)
    told: dict[str, Any] = {"counts": sorted(map(len, held().values()))}
    writer = Writer(address, names)
    readers = [Reader(name) for name in names]
    for each in (writer, *readers):
        each.start()
    wait_for(lambda: all(each.ids for each in readers), PATIENCE_S, "rows arrive")
    told |= drain(cluster, workers[0].node_id, readers)
    told |= die(cluster, workers[1], names, readers)
    told |= judge(writer, readers)
    for name in names:
        canal.stop(name)
    return told


def drain(cluster: Cluster, drained: str, readers: list[Reader]) -> dict[str, Any]:
    """A node drains; `drain_pause_s`: the longest that a reader had no row."""
    for reader in readers:
        reader.restart_clock()
    drain_node(cluster, drained)
    drained_s = wait_for(lambda: drained not in held(), PATIENCE_S, "the draining node is left")
    time.sleep(2.0)
    return {"drained_s": drained_s, "drain_pause_s": max(each.longest_s for each in readers)}


def die(cluster: Cluster, dying: Any, names: list[str], readers: list[Reader]) -> dict[str, Any]:
    """A new node comes, and another one is killed."""
    told: dict[str, Any] = {}
    replacement = cluster.add_node(num_cpus=1, **MEMORY)
    time.sleep(2.0)
    before = held()
    lost = set(before[dying.node_id])
    for reader in readers:
        reader.restart_clock()
    cluster.remove_node(dying, allow_graceful=False)
    told["died_s"] = wait_for(
        lambda: (
            dying.node_id not in held()
            and {name for each in held().values() for name in each} == set(names)
        ),
        PATIENCE_S,
        "the dead node's destinations have others",
    )
    marks = {reader.destination: len(reader.ids) for reader in readers}
    told["rows_s"] = wait_for(
        lambda: all(len(each.ids) > marks[each.destination] for each in readers),
        PATIENCE_S,
        "rows arrive",
    )
    after = held()
    moved = {
        name for node, each in before.items() for name in each if name not in after.get(node, [])
    }
    told["moved_beyond"] = sorted(moved - lost)
    told["death_pause_s"] = max(reader.longest_s for reader in readers)
    # What was lost joins processes that run, and is spread evenly later.
    told["evened_s"] = wait_for(
        lambda: bool(held().get(replacement.node_id)), 2 * PATIENCE_S, "the new node has some"
    )
    told["to_replacement"] = len(held()[replacement.node_id])
    return told


def judge(writer: Writer, readers: list[Reader]) -> dict[str, Any]:
    """Every row has arrived, in order."""
    writer.over.set()
    writer.join()
    wait_for(
        lambda: all(each.failure or len(each.ids) >= writer.written for each in readers),
        PATIENCE_S,
        "all rows have arrived",
    )
    wanted = list(range(1, writer.written + 1))
    for reader in readers:
        reader.over.set()
    for reader in readers:
        reader.join(10)
    return {
        "rows": writer.written,
        "wrong": [each.destination for each in readers if each.ids != wanted],
        "failures": [str(each.failure) for each in readers if each.failure],
        "repeated": sum(each.repeated for each in readers),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
