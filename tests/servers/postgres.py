"""One real PostgreSQL server, from Debian's package: own folder, loopback, free port.

PostgreSQL refuses to run as root. Started by root, server and data belong to `nobody`, in a folder
that everybody may enter, with links to the files of the package tree.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from tests.servers.fetch import cache_dir, fetch_tree
from tests.servers.run import free_port, loader

_PARTS = ("usr/lib/postgresql", "usr/share/postgresql", "usr/lib/x86_64-linux-gnu",
          "lib/x86_64-linux-gnu", "lib64")  # fmt: skip
_BIN = Path("root/usr/lib/postgresql/15/bin")
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "synchronous_commit": "on",
    "jit": "off",
    "timezone": "UTC",
}


class PostgresServer:
    """The user `postgres` needs no password; its database is `postgres`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def connect(self, **more: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="postgres", autocommit=True, **more
        )

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, each committed; return the last one's rows."""
        with self.connect() as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def start(self, timeout_s: float = 120.0) -> None:
        """Start (again) on the same folder and port; returns when it answers."""
        settings = {**_SETTINGS, "port": str(self.port)}
        given = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        program = self.folder / _BIN / "postgres"
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(program), "-D", str(self.folder / "data"), *given],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                start_new_session=True, env=_environment(), **_identity(),
            )  # fmt: skip
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self.connect(connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    text = (self.folder / "server.log").read_text(errors="replace")
                    message = f"PostgreSQL did not start: {error}\n{text[-1500:]}"
                    raise RuntimeError(message) from None
                time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL to the server and to its children, which have the same group."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}


def _identity() -> dict[str, Any]:
    if os.getuid():
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _lay_out(folder: Path) -> None:
    """The programs under `folder`, each run by the tree's own loader, and a data directory."""
    tree = cache_dir() / "postgres"
    for part in _PARTS:
        source, target = tree / "root" / part, folder / "root" / part
        if source.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            linked = subprocess.run(["cp", "-al", source, target], capture_output=True, check=False)
            if linked.returncode:  # another file system
                shutil.rmtree(target, ignore_errors=True)
                subprocess.run(["cp", "-a", source, target], check=True)
    for name in ("postgres", "initdb"):
        program = folder / _BIN / name
        program.rename(program.with_suffix(".real"))
        command = " ".join(loader(folder))
        program.write_text(f'#!/bin/sh\nexec {command} --argv0 "$0" {program}.real "$@"\n')
        program.chmod(0o755)
    folder.chmod(0o755)
    data, who = folder / "data", _identity()
    data.mkdir(mode=0o700)
    if who:
        os.chown(data, who["user"], who["group"])
    made = subprocess.run(
        [str(folder / _BIN / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust",
         "-E", "UTF8", "--locale=C", "--no-sync"],
        capture_output=True, text=True, check=False, cwd="/", env=_environment(), **who,
    )  # fmt: skip
    if made.returncode:
        raise RuntimeError(f"PostgreSQL: no data directory: {(made.stdout + made.stderr)[-1500:]}")


@contextlib.contextmanager
def start_postgres() -> Iterator[PostgresServer]:
    """A running PostgreSQL in a temporary folder. Raises FetchError."""
    fetch_tree("postgres")
    folder = Path(tempfile.mkdtemp(prefix="ray_canal_postgres_"))
    server = PostgresServer(folder)
    try:
        _lay_out(folder)
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)
