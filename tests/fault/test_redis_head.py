"""Ray's head keeps its state in Redis, dies and comes back: destinations elsewhere go on."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fault.test_fencing import insert, table
from tests.processes import family, send, wait_for
from tests.servers import Server
from tests.servers.redis import start_redis
from tests.servers.run import free_port

PATIENCE_S = 180.0
AWAY_S = 5.0


class RayNodes:
    """`ray start` of a head and of a worker, on this machine."""

    def __init__(self, folder: Path, redis: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.temp = Path(tempfile.mkdtemp(prefix="rr"))  # sockets need short names
        self.env = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": uuid.uuid4().hex,
            "RAY_REDIS_ADDRESS": redis,
            "RAY_external_storage_namespace": uuid.uuid4().hex,
            "RAY_gcs_rpc_server_reconnect_timeout_s": "170",
            "RAY_raylet_start_wait_time_s": "120",
        }

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(self, *how: str) -> Iterator[subprocess.Popen[bytes]]:
        """A node until the block ends, then all its processes are killed."""
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *how]
        command += ["--node-ip-address=127.0.0.1", "--object-store-memory=100000000"]
        with (self.folder / "ray.log").open("ab") as log:
            node = subprocess.Popen(command, env=self.env, stdout=log, stderr=log)
        try:
            yield node
        finally:
            for pid in (node.pid, *(each.pid for each in family(node.pid))):
                send(pid, signal.SIGKILL)
            node.wait()

    def head(self) -> Any:
        # Where a worker of the cluster runs, Ray would take the head for running, too.
        (self.temp / "ray_current_cluster").unlink(missing_ok=True)
        return self.running(
            "--head",
            f"--port={self.port}",
            f"--temp-dir={self.temp}",
            "--num-cpus=0",
            "--include-dashboard=false",
        )

    def worker(self) -> Any:
        return self.running(f"--address={self.address}", "--num-cpus=1")

    def program(self, *arguments: str) -> str:
        """Run tests/fault/redis_head.py until it succeeds."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            done = subprocess.run(
                [sys.executable, "-m", "tests.fault.redis_head", self.address, *arguments],
                env=self.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            )  # fmt: skip
            if done.returncode == 0:
                return done.stdout
            assert time.monotonic() < deadline, done.stderr[-3000:]
            time.sleep(0.5)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_destinations_go_on_while_the_head_is_away(mysql97: Server, tmp_path: Path) -> None:
    """P2: and the controller looks after them again when it is back."""
    table(mysql97, "ft")
    config = tmp_path / "canal.toml"
    config.write_text(
        f'[meta]\npath = "{tmp_path}/meta.db"\nshared = true\n'
        '[ray]\nnode = "any"\ndestinations_per_process = 1\n'
        '[[instance]]\ndestination = "ft"\n'
        f'[instance.source]\naddress = "{mysql97.address}"\nusername = "root"\n'
        "start = \"earliest\"\n[instance.filter]\ntables = 'ft\\.t'\n"
    )
    rows_file = tmp_path / "rows.jsonl"
    rows_file.touch()
    written = 0

    def read() -> list[dict[str, Any]]:
        return [json.loads(line) for line in rows_file.read_text().splitlines()]

    def one_more() -> None:
        nonlocal written
        written += 1
        insert(mysql97, "ft", written)
        wait_for(lambda: len(read()) >= written, PATIENCE_S, f"row {written}")

    with start_redis(tmp_path / "redis") as redis, contextlib.ExitStack() as stack:
        nodes = RayNodes(tmp_path, redis.address)
        stack.callback(shutil.rmtree, nodes.temp, ignore_errors=True)
        head = contextlib.ExitStack()
        stack.enter_context(head)
        head.enter_context(nodes.head())
        nodes.program("wait", "1")
        stack.enter_context(nodes.worker())
        nodes.program("wait", "2")
        nodes.program("start", str(config), str(rows_file))
        for _ in range(3):
            one_more()
        head.close()
        died_s = time.monotonic()
        while time.monotonic() < died_s + AWAY_S:
            one_more()
            time.sleep(0.1)
        head.enter_context(nodes.head())
        told = json.loads(nodes.program("nodes"))
        back_s = time.monotonic() - died_s - AWAY_S
        for _ in range(3):
            one_more()
        rows = read()
    pauses = [two["at"] - one["at"] for one, two in itertools.pairwise(rows)]
    print(
        f"the head died and stood again, and its controller answered, {back_s:.1f} s after its "
        f"start; the longest time without a row was {max(pauses[3:]):.1f} s"
    )
    assert told["generations"] == 1  # nobody began again
    (there,) = (each for each in told["nodes"] if not each["head"])
    assert there["destinations"] == ["ft"]
    assert [row["id"] for row in rows] == list(range(1, written + 1))
