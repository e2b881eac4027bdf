"""A cluster of two nodes of which one dies, with chunks of the log: a program of its own, as a
process has one Ray.

    RAY_AUTH_TOKEN=... python -m tests.fault.lost_node HOST:PORT DESTINATION FOLDER HOW

The head decodes nothing and has all actors, so every decoded chunk lies on the other node. HOW:
`noticed` (nobody asks for anything until the log has begun again), else clients go on reading;
`slow`: there is no other node for a while.
Prints what was received as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from ray.cluster_utils import Cluster

import ray_canal as canal
from ray_canal.errors import InstanceRestarted
from tests.fault.own_cluster import own_cluster
from tests.processes import wait_for

ROWS = 8_000
CHUNK_BYTES = 256 << 10
PATIENCE_S = 90.0
MEMORY = {"object_store_memory": 200 << 20}
SLOW_S = 40.0
"""Longer than the log waits for a chunk that it looks for."""


def config_of(address: str, destination: str, folder: str) -> dict[str, Any]:
    return {
        "meta": {"path": f"{folder}/meta.db"},
        "ray": {"destinations_per_process": 0},
        "instance": [
            {
                "destination": destination,
                "decoders": 1,
                "chunk_bytes": CHUNK_BYTES,
                "source": {"address": address, "username": "root", "start": "earliest"},
            }
        ],
    }


def ids_of(message: canal.Message) -> list[int]:
    return [id for batch in message.batches for id in batch.column("after").field("id").to_pylist()]


def read_all(connector: canal.Connector, found: list[int], restarts: list[str]) -> None:
    """By the documented recipe: what cannot be read comes again."""
    deadline = time.monotonic() + PATIENCE_S
    while not found or found[-1] < ROWS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} rows of {ROWS}; restarts: {restarts[-3:]}")
        message = connector.get_without_ack(256, 1.0)
        if not message:
            continue
        try:
            ids = ids_of(message)
            connector.ack(message.id)
        except InstanceRestarted as error:
            restarts.append(str(error))
            continue
        found += [id for id in ids if not found or id > found[-1]]


def read_in_a_loop(connector: canal.Connector, found: list[int], restarts: list[str]) -> None:
    """The same with `messages`."""
    deadline = time.monotonic() + PATIENCE_S
    while not found or found[-1] < ROWS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} rows of {ROWS}; restarts: {restarts[-3:]}")
        try:
            for message in connector.messages(256, 1.0):
                found += [id for id in ids_of(message) if not found or id > found[-1]]
                if found and found[-1] >= ROWS:
                    break
        except InstanceRestarted as error:
            restarts.append(str(error))


def main(address: str, destination: str, folder: str, how: str) -> None:
    with own_cluster(num_cpus=0, **MEMORY) as cluster:
        print(json.dumps(played(cluster, address, destination, folder, how)), flush=True)


def played(
    cluster: Cluster, address: str, destination: str, folder: str, how: str
) -> dict[str, Any]:
    """Lose the node that has the chunks; return what clients received."""
    canal.start(config_of(address, destination, folder))
    dying = cluster.add_node(num_cpus=1, **MEMORY)

    def status() -> dict[str, Any]:
        found: dict[str, Any] = canal.status(destination)[destination]
        return found

    restarts: list[str] = []
    by_get: list[int] = []
    by_loop: list[int] = []
    with canal.connect(destination, 1) as one, canal.connect(destination, 2) as two:
        for connector in (one, two):
            connector.subscribe(rf"{destination}\.t")
        wait_for(lambda: status()["lag_bytes"] == 0, PATIENCE_S, "everything is in the log")
        first = one.get_without_ack(256, 10.0)
        by_get += ids_of(first)
        one.ack(first.id)
        held = one.get_without_ack(1024, 10.0)  # not read before its node dies
        cluster.remove_node(dying, allow_graceful=False)
        began = time.monotonic()
        if how == "slow":
            time.sleep(SLOW_S)  # nothing can be decoded
        cluster.add_node(num_cpus=1, **MEMORY)
        if how == "noticed":
            wait_for(lambda: status()["generations"] > 1, PATIENCE_S, "it begins again by itself")
        else:
            try:
                ids = ids_of(held)
                one.ack(held.id)
                by_get += ids
            except InstanceRestarted as error:
                restarts.append(str(error))
        read_all(one, by_get, restarts)
        read_in_a_loop(two, by_loop, restarts)
    seconds = time.monotonic() - began
    told = {
        "by_get": by_get,
        "by_loop": by_loop,
        "restarts": restarts,
        "generations": status()["generations"],
        "seconds": seconds,
    }
    canal.stop(destination)
    return told


if __name__ == "__main__":
    main(*sys.argv[1:])
