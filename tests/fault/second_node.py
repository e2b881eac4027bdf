"""A second node that joins a run's cluster, decodes, and dies with the chunks that lie on it.

    python -m tests.fault.second_node ADDRESS SECONDS

While it is there, the head's CPUs are taken, so that it decodes everything. A program of its own,
as a process is in one cluster; the address it joins is the head's, before there is another node.
Runs with decoders have this kind (`--decoders 2`): without, all chunks lie on the head.

Its chunks are decoded again; where Ray may not (RAY_lineage_pinning_enabled=0 in the environment of
the run), they are read from the server again.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import ray
from ray._private.internal_api import node_stats

from tests.processes import family, send, wait_for

if TYPE_CHECKING:
    from tests.fault.faults import Deployment

MEMORY_BYTES = 100 << 20
JOINS_S, DECODES_S = 60.0, 30.0
HELD_BYTES = 200_000
"""So much lies on it at least, unless nothing comes; smaller chunks lie with the log."""


def kill_second_node(run: Deployment) -> None:
    """The fault: a node joins, and is killed when it holds chunks. Large ones come of pauses."""
    proxy, over = run.proxy, threading.Event()

    def pauses() -> None:
        while not over.wait(0.7):
            proxy.stall(True)
            over.wait(1.5)
            proxy.stall(False)

    pausing = threading.Thread(target=pauses)
    pausing.start()
    try:
        run.run_beside("tests.fault.second_node", run.rng.uniform(0.0, 3.0))
    finally:
        over.set()
        pausing.join()


class Idle:
    """Holds the CPUs of the node where it is."""

    def ready(self) -> None:
        return


def _nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _held_bytes(node: dict[str, Any]) -> int:
    stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], False)
    return int(stats.store_stats.object_store_bytes_used)


def main(address: str, seconds: float) -> None:
    ray.init(address=address, log_to_driver=False)
    (head,) = _nodes()
    command = ["start", "--block", f"--address={address}", "--num-cpus=2"]
    command += [f"--object-store-memory={MEMORY_BYTES}", "--disable-usage-stats"]
    ray_command = [sys.executable, "-m", "ray.scripts.scripts", *command]
    node = subprocess.Popen(ray_command, stdout=sys.stderr)
    try:
        wait_for(lambda: len(_nodes()) == 2, JOINS_S, "the second node joins")
        (second,) = (each for each in _nodes() if each["NodeID"] != head["NodeID"])
        holder = ray.remote(Idle).options(
            num_cpus=int(head["Resources"]["CPU"]),
            resources={"node:__internal_head__": 0.001},
        )
        ray.get(holder.remote().ready.remote(), timeout=JOINS_S)
        end = time.monotonic() + DECODES_S
        while _held_bytes(second) < HELD_BYTES and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(seconds)
        print(_held_bytes(second), flush=True)
    finally:
        for process in family(node.pid):
            send(process.pid, signal.SIGKILL)
        node.kill()
        node.wait()
    wait_for(lambda: len(_nodes()) == 1, JOINS_S, "the head knows that it is dead")
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
