"""What is done to a cluster of several nodes: they die, drain, sleep, come back; so do heads, a
destination's process, and a source's server. A fault returns the destinations that it hit."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.fault.ray_nodes import RayNode, RayNodes
from tests.fault.time_line import Step, steps
from tests.processes import STORE, running, send, wait_for
from tests.servers import Server

LEFT_MAX_S = 150.0
START_MAX_S = 360.0
"""Five nodes that start at once on two busy CPUs may each need a second try."""
SLEEPS_S = 12.0
"""Longer than Ray takes to give a node up."""
REPLACED_S = 20.0
LABEL = "canal-node"
HEAD, READERS = "head", "readers"


class Cluster:
    """Its nodes, as a supervisor keeps them: a head, workers, and one where the readers are. A node
    that ends is started again. `config`: the deployment's file; `servers`: each destination's."""

    def __init__(self, nodes: RayNodes, folder: Path, workers: int, rng: random.Random) -> None:
        self._nodes, self._folder, self.rng = nodes, folder, rng
        self.config = folder / "canal.toml"
        self.servers: dict[str, Server] = {}
        self.workers = [f"w{k}" for k in range(workers)]
        self._running: dict[str, RayNode] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)
        self._began = 0.0
        self.times: dict[str, float] = {}
        """When the steps of the present recovery were done."""

    @property
    def keeps_state(self) -> bool:
        return self._nodes.keeps_state

    def start(self) -> None:
        """Start every node and the deployment."""
        if not self._supervisor.is_alive():
            self._supervisor.start()
        self._nodes.wait_standing(lambda: self._start_all(HEAD), 1)
        self.note("Ray's head")
        for name in (READERS, *self.workers):  # Ray gives one up that took 30 s
            self._nodes.wait_standing(lambda name=name: self._start_all(name), 1)
        count = str(len(self.workers) + 2)
        told = self._nodes.program(
            "start", str(self.config), str(self._folder), count, patience_s=START_MAX_S
        )
        self.times |= json.loads(told.splitlines()[-1])  # Ray tells of dead nodes before
        self._began = time.time()

    def note(self, step: str) -> None:
        """Note when a step of a recovery was done."""
        self.times.setdefault(step, time.time())

    def steps(self, since: float) -> list[Step]:
        """See tests/fault/time_line.py."""
        return steps(self._nodes.folder, since)

    def _start_all(self, *names: str) -> None:
        with self._lock:
            for name in names:
                self._start(name)

    def _start(self, name: str) -> None:
        if name == HEAD:
            self._running[name] = self._nodes.head()
        elif name == READERS:
            how = "--num-cpus=0", '--resources={"readers": 1}'
            self._running[name] = self._nodes.worker(*how)
        else:
            how = "--num-cpus=1", f"--labels={LABEL}={name}"
            self._running[name] = self._nodes.worker(*how)

    def _supervise(self) -> None:
        while not self._over.wait(0.5):
            with self._lock:
                for name, node in list(self._running.items()):
                    if node.process.poll() is not None:
                        node.kill()  # what it has left would be in the next one's way
                        self._start(name)

    def node(self, name: str) -> RayNode:
        return self._running[name]

    @contextlib.contextmanager
    def down(self, *names: str) -> Iterator[None]:
        """Kill these nodes; they are started at the end of the block."""
        with self._lock:
            for name in names:
                self._running.pop(name).kill()
        yield
        self._start_all(*names)

    def drain(self, node_id: str) -> None:
        self._nodes.drain(node_id)

    def kill(self) -> None:
        """End all nodes."""
        with self._lock:
            while self._running:
                self._running.popitem()[1].kill()

    def close(self) -> None:
        """End all nodes, and nobody starts them again."""
        self._over.set()
        self.kill()

    # --- what is where --------------------------------------------------------------------------

    def seen(self) -> dict[str, Any]:
        """Return what the readers' node saw last; {} before the first time."""
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((self._folder / "seen.json").read_text())
            return found
        return {}

    def now(self) -> dict[str, dict[str, Any]]:
        """Return the workers as they are seen now, by name."""
        asked = time.time()
        wait_for(lambda: self.seen().get("at", 0.0) > asked, LEFT_MAX_S, "the controller answers")
        return self._workers()

    def _workers(self) -> dict[str, dict[str, Any]]:
        nodes = self.seen().get("nodes", [])
        return {node["labels"][LABEL]: node for node in nodes if LABEL in node["labels"]}

    def is_whole(self, names: list[str], since: float) -> bool:
        """Return whether all nodes are there and every destination runs on one, as it was seen
        later than `since`."""
        seen = self.seen()
        if seen.get("at", 0.0) < max(since, self._began):
            return False
        workers = self._workers()
        held = sorted(name for node in workers.values() for name in node["destinations"])
        return (
            sorted(workers) == self.workers
            and not any(node["draining"] for node in workers.values())
            and held == names
            and set(seen["states"].values()) == {"running"}
        )

    def counts(self) -> dict[str, int]:
        """Return how many destinations each worker has."""
        return {name: len(node["destinations"]) for name, node in sorted(self._workers().items())}


def _picked(cluster: Cluster) -> tuple[str, dict[str, Any]]:
    workers = cluster.now()  # one that has nothing would show nothing
    name = cluster.rng.choice(sorted(n for n, its in workers.items() if its["destinations"]))
    return name, workers[name]


def kill_node(cluster: Cluster) -> list[str]:
    """A node dies, and comes back later."""
    name, seen = _picked(cluster)
    with cluster.down(name):
        time.sleep(cluster.rng.uniform(0.0, 5.0))
    return list(seen["destinations"])


def drain_node(cluster: Cluster) -> list[str]:
    """`ray drain-node`, and an end when it is left; another one takes its place."""
    name, seen = _picked(cluster)
    cluster.drain(seen["node"])
    wait_for(
        lambda: name not in (now := cluster.now()) or not now[name]["destinations"],
        LEFT_MAX_S, "the draining node is left",
    )  # fmt: skip
    with cluster.down(name):
        return list(seen["destinations"])


def end_node(cluster: Cluster) -> list[str]:
    """SIGTERM, as at the end of a pod: it drains by itself, and ends."""
    name, seen = _picked(cluster)
    process = cluster.node(name).process
    send(process.pid, signal.SIGTERM)
    process.wait(LEFT_MAX_S)
    return list(seen["destinations"])


def sleep_node(cluster: Cluster) -> list[str]:
    """All its processes stand still until Ray has given it up; then they go on."""
    name, seen = _picked(cluster)
    node = cluster.node(name)
    node.signal(signal.SIGSTOP)
    time.sleep(SLEEPS_S)
    node.signal(signal.SIGCONT)
    time.sleep(cluster.rng.uniform(0.0, 3.0))
    with cluster.down(name):
        return list(seen["destinations"])


def kill_process(cluster: Cluster) -> list[str]:
    """A process that holds destinations dies; Ray starts it again."""
    name, seen = _picked(cluster)
    for pid in running(STORE, cluster.node(name).process.pid):
        send(pid, signal.SIGKILL)
    return list(seen["destinations"])


def kill_head(cluster: Cluster) -> list[str]:
    """The head dies, and comes back later; without its state everything is started again."""
    if cluster.keeps_state:
        with cluster.down(HEAD):
            time.sleep(cluster.rng.uniform(0.0, 8.0))
    else:
        cluster.kill()
        cluster.note("all is dead")
        cluster.start()
    return sorted(cluster.servers)


def kill_head_and_node(cluster: Cluster) -> list[str]:
    """The head dies, and a node with it. Who supervises the head starts it again soon; a machine
    takes longer to be replaced, and does not begin on the head's CPUs."""
    if not cluster.keeps_state:
        return kill_head(cluster)
    name, seen = _picked(cluster)
    with cluster.down(name):
        with cluster.down(HEAD):
            time.sleep(cluster.rng.uniform(0.0, 4.0))
        time.sleep(REPLACED_S)
    return list(seen["destinations"])


def kill_server(cluster: Cluster) -> list[str]:
    """A source's server dies, and stands again."""
    server = cluster.servers[cluster.rng.choice(sorted(cluster.servers))]
    server.kill()
    time.sleep(cluster.rng.uniform(0.0, 2.0))
    server.start()
    return [name for name, its in cluster.servers.items() if its is server]


Kinds = dict[str, tuple[str, int, Callable[[Cluster], list[str]]]]
KINDS: Kinds = {
    "kill node": ("node", 3, kill_node),
    "drain node": ("drain", 3, drain_node),
    "end node": ("drain", 1, end_node),
    "sleep node": ("asleep", 2, sleep_node),
    "kill process": ("process", 2, kill_process),
    "kill head": ("head", 3, kill_head),
    "kill head and node": ("both", 2, kill_head_and_node),
    "kill server": ("server", 1, kill_server),
}
"""By name: its group, how often it comes, what is done."""
