"""Nodes of a Ray cluster on this machine, each by `ray start`, so that each can die alone."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.processes import send, wait_for, with_environment
from tests.servers.run import free_port

PATIENCE_S = 180.0
_RAY = (sys.executable, "-m", "ray.scripts.scripts")


_MARK = "RAY_CANAL_TEST_NODE"


def cluster_environment() -> dict[str, str]:
    """Return the environment variables that all who join one cluster have in common: where Ray
    authenticates they need one token, and Ray reads that at its import."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": uuid.uuid4().hex,
        "RAY_raylet_start_wait_time_s": "60",  # a machine under load takes its time
        # A dead node is known sooner: docs/how-to/cluster.md.
        "RAY_health_check_initial_delay_ms": "500",
        "RAY_health_check_period_ms": "500",
    }


class RayNode:
    """The processes of one node. `mark`: what all of them have in their environment, also those
    whose `ray start` has ended."""

    def __init__(self, process: subprocess.Popen[bytes], mark: str) -> None:
        self.process = process
        self._mark = mark

    def pids(self) -> list[int]:
        return [self.process.pid, *with_environment(_MARK, self._mark)]

    def signal(self, number: int) -> None:
        for pid in self.pids():
            send(pid, number)

    def kill(self) -> None:
        """SIGKILL of all its processes; return when none is left."""
        wait_for(self._is_killed, PATIENCE_S, "all processes of a node are gone")

    def _is_killed(self) -> bool:
        self.signal(signal.SIGKILL)
        self.process.wait()
        return not with_environment(_MARK, self._mark)


class RayNodes:
    """One cluster. `redis`: where its head keeps its state; "": nowhere."""

    def __init__(
        self, folder: Path, redis: str = "", ip: str = "127.0.0.1", **settings: str
    ) -> None:
        """`settings`: more of Ray's environment."""
        self._log = folder / "ray.log"
        self._ip = ip
        self._port = free_port()
        self._temp = Path(tempfile.mkdtemp(prefix="rr"))  # sockets need short names
        self._numbers = itertools.count()
        self._env = {
            **cluster_environment(),
            "RAY_health_check_timeout_ms": "2000",
            "RAY_health_check_failure_threshold": "3",
            **os.environ,  # a process that joins the cluster itself has its token there
            **settings,
        }
        self.keeps_state = bool(redis)
        if redis:
            self._env |= {
                "RAY_REDIS_ADDRESS": redis,
                "RAY_external_storage_namespace": uuid.uuid4().hex,
                "RAY_gcs_rpc_server_reconnect_timeout_s": "170",
            }

    @property
    def folder(self) -> Path:
        """Where Ray's own files are, logs among them."""
        return self._temp

    @property
    def address(self) -> str:
        return f"{self._ip}:{self._port}"

    def _start(self, *how: str) -> RayNode:
        command = [*_RAY, "start", "--block", "--disable-usage-stats", *how]
        command += [f"--node-ip-address={self._ip}", "--object-store-memory=100000000"]
        mark = uuid.uuid4().hex
        env = {**self._env, _MARK: mark}
        with self._log.open("ab") as log:
            return RayNode(subprocess.Popen(command, env=env, stdout=log, stderr=log), mark)

    def head(self, *how: str, cpus: int = 0) -> RayNode:
        """Start the head. By default it has no CPU: the controller alone is there."""
        # Where a worker of the cluster runs, Ray would take the head for running, too.
        (self._temp / "ray_current_cluster").unlink(missing_ok=True)
        return self._start(
            "--head",
            f"--port={self._port}",
            f"--temp-dir={self._temp}",
            f"--num-cpus={cpus}",
            "--include-dashboard=false",
            *how,
        )

    def worker(self, *how: str) -> RayNode:
        """Start another node. `how`: more options of `ray start`."""
        # Ray numbers the sockets of nodes that share a folder: two that start at once get one name,
        # and one of them never stands.
        folder = self._temp / str(next(self._numbers))
        return self._start(f"--address={self.address}", f"--temp-dir={folder}", *how)

    @contextlib.contextmanager
    def running(self, start: Callable[[], RayNode]) -> Iterator[RayNode]:
        """A node that stands, until the block ends; then all its processes are killed."""
        node = self._standing(start)
        try:
            yield node
        finally:
            node.kill()

    def _standing(self, start: Callable[[], RayNode]) -> RayNode:
        """Start a node until it stands: Ray gives one up that took 30 s, as under load."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            before = self._stood()
            node = start()
            while node.process.poll() is None and self._stood() == before:
                time.sleep(0.1)
            if node.process.poll() is None:
                return node
            node.kill()
            assert time.monotonic() < deadline, self._log.read_text()[-2000:]

    def wait_standing(self, start: Callable[[], object], count: int) -> None:
        """Start nodes, and wait until so many more stand; whoever supervises them starts those
        again that Ray gives up."""
        before = self._stood()
        start()
        wait_for(lambda: self._stood() >= before + count, PATIENCE_S, "nodes stand")

    def _stood(self) -> int:
        return self._log.read_text().count("Ray runtime started") if self._log.exists() else 0

    def program(self, *arguments: str, patience_s: float = PATIENCE_S) -> str:
        """Run tests/fault/cluster_program.py until it succeeds."""
        return self._until_done("-m", "tests.fault.cluster_program", self.address, *arguments,
                                patience_s=patience_s)  # fmt: skip

    def drain(self, node_id: str, deadline_s: int = 600) -> None:
        """`ray drain-node`, as an operator says it."""
        self._until_done(
            *_RAY[1:], "drain-node", f"--address={self.address}", f"--node-id={node_id}",
            "--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=test",
            f"--deadline-remaining-seconds={deadline_s}", patience_s=PATIENCE_S,
        )  # fmt: skip

    def _until_done(self, *command: str, patience_s: float) -> str:
        deadline = time.monotonic() + patience_s
        while True:
            done = subprocess.run(
                [sys.executable, *command],
                env=self._env, capture_output=True, text=True, timeout=patience_s, check=False,
            )  # fmt: skip
            if done.returncode == 0:
                return done.stdout
            assert time.monotonic() < deadline, done.stdout[-1000:] + done.stderr[-3000:]
            time.sleep(0.5)

    def remove(self) -> None:
        """Remove its temporary files."""
        shutil.rmtree(self._temp, ignore_errors=True)
