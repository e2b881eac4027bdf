"""Heads of one deployment, each a Ray of its own in a process of its own; and who reads from them.

    python -m tests.fault.heads ADDRESS_FILE DESTINATION    the reader of one head's cluster

A reader prints a line of JSON for each row that it has acknowledged, and tries again for ever.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.fault.ray_nodes import cluster_environment
from tests.processes import family, send, wait_for

START_S = 180.0
_PROGRAM = (sys.executable, "-m")


class Head:
    """A process that runs tests/fault/head.py, and its reader's."""

    def __init__(self, folder: Path, number: int, config: Path, destination: str) -> None:
        self._folder = folder
        self._number = number
        self._config = config
        self._destination = destination
        self._lives = 0
        self._env = {**os.environ, **cluster_environment()}
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: subprocess.Popen[bytes] | None = None
        self.rows = folder / f"rows{number}.jsonl"
        self.log = folder / f"head{number}.log"

    @property
    def address_file(self) -> Path:
        return self._folder / f"address{self._number}.{self._lives}"

    def start(self) -> None:
        self._lives += 1
        temp = f"/tmp/rh{self._number}{self._lives}-{id(self) % 10**6}"  # sockets need short names
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_PROGRAM, "tests.fault.head", str(self._config), temp, str(self.address_file)],
                env=self._env,
                stdout=log,
                stderr=log,
            )
        wait_for(self.address_file.exists, START_S, f"Ray of head {self._number}")
        with self.rows.open("ab") as rows, self.log.open("ab") as log:
            self._reader = subprocess.Popen(
                [*_PROGRAM, "tests.fault.heads", self.address_file.read_text(), self._destination],
                env=self._env,
                stdout=rows,
                stderr=log,
            )

    def pids(self) -> list[int]:
        assert self._process is not None
        return [self._process.pid, *(each.pid for each in family(self._process.pid))]

    def signal(self, number: int) -> None:
        for pid in self.pids():
            send(pid, number)

    def kill(self) -> None:
        """SIGKILL of all its processes, the reader's included."""
        for process in (self._reader, self._process):
            if process is not None:
                pids = [process.pid, *(each.pid for each in family(process.pid))]
                for pid in pids:
                    send(pid, signal.SIGKILL)
                process.wait()
        self._process = self._reader = None

    def read(self) -> list[dict[str, Any]]:
        """Return the rows that were acknowledged here: `id`, and when (`at`)."""
        if not self.rows.exists():
            return []
        return [json.loads(line) for line in self.rows.read_text().splitlines()]

    def said(self, words: str) -> int:
        """Return how often its log has these words, over all its lives."""
        return self.log.read_text().count(words) if self.log.exists() else 0


def main(address: str, destination: str) -> None:
    import ray

    import ray_canal as canal
    from ray_canal.errors import CanalError

    ray.init(address=address, log_to_driver=False)
    while True:
        try:
            with canal.connect(destination, 1) as connector:
                connector.subscribe()
                while True:
                    message = connector.get_without_ack(100, 0.5)
                    if not message:
                        continue
                    rows = [row for batch in message.batches for row in batch.to_pylist()]
                    connector.ack(message.id)
                    for row in rows:
                        told = {"id": row["after"]["id"], "at": time.time()}
                        print(json.dumps(told), flush=True)
        except CanalError:
            time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
