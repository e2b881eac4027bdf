"""Programs of a cluster whose head keeps its state in Redis.

    python -m tests.fault.redis_head ADDRESS wait NODES                so many nodes are there
    python -m tests.fault.redis_head ADDRESS start CONFIG ROWS_FILE    a deployment, and its reader
    python -m tests.fault.redis_head ADDRESS nodes                     what is where, as JSON

The reader is an actor on a node that is not the head, which appends a line of JSON for each row
that it has acknowledged.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import ray_canal as canal
from ray_canal.actors.homes import cluster_nodes
from ray_canal.errors import CanalError

DESTINATION = "ft"


class Reader:
    """Reads in a thread of its own, also while the head is away."""

    def __init__(self, rows_file: str) -> None:
        self._rows_file = rows_file
        threading.Thread(target=self._read, daemon=True).start()

    def ready(self) -> None:
        return

    def _read(self) -> None:
        with open(self._rows_file, "a", encoding="ascii") as file:
            while True:
                try:
                    with canal.connect(DESTINATION, 1) as connector:
                        connector.subscribe()
                        while True:
                            message = connector.get_without_ack(100, 0.5)
                            rows = [row for batch in message.batches for row in batch.to_pylist()]
                            if not rows:
                                continue
                            connector.ack(message.id)
                            for row in rows:
                                told = {"id": row["after"]["id"], "at": time.time()}
                                file.write(json.dumps(told) + "\n")
                            file.flush()
                except CanalError:
                    time.sleep(0.1)


def main(address: str, what: str, *arguments: str) -> None:
    ray.init(address=address, log_to_driver=False, namespace="tests")
    if what == "wait":
        while len(cluster_nodes()) < int(arguments[0]):
            time.sleep(0.2)
    elif what == "start":
        config, rows_file = arguments
        canal.start(config, timeout=150)
        (node,) = (each.id for each in cluster_nodes() if not each.is_head)
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        options = {"name": "reader", "lifetime": "detached", "num_cpus": 0}
        reader = ray.remote(Reader).options(**options, scheduling_strategy=there)
        ray.get(reader.remote(rows_file).ready.remote(), timeout=150)
    else:
        told = canal.nodes()
        status = canal.status(DESTINATION)[DESTINATION]
        print(json.dumps({"nodes": told, "generations": status["generations"]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
