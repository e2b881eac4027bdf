"""One real Redis server, from Debian's package: own folder, loopback, free port."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import redis

from tests.servers.fetch import cache_dir, fetch_tree
from tests.servers.run import free_port, loader


class RedisServer:
    """`address` is host:port; every write is fsync'd before its answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, timeout_s: float = 120.0) -> None:
        """Start (again) on the same folder and port; returns when it answers."""
        tree = cache_dir() / "redis"
        # What it is asked to be is in its name; the loader passes the path on.
        command = [
            *loader(tree), str(tree / "root" / "usr" / "bin" / "redis-server"),
            "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
            "--appendonly", "yes", "--appendfsync", "always", "--save", "",
        ]  # fmt: skip
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                with redis.Redis(port=self.port, socket_timeout=2) as client:
                    client.ping()
                return
            except redis.RedisError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    text = (self.folder / "redis.log").read_text(errors="replace")
                    raise RuntimeError(f"redis did not start: {error}\n{text[-1500:]}") from None
                time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL: as in a crash."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextlib.contextmanager
def start_redis(folder: Path) -> Iterator[RedisServer]:
    """A running Redis in `folder`. Raises FetchError."""
    fetch_tree("redis")
    folder.mkdir(parents=True, exist_ok=True)
    server = RedisServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
