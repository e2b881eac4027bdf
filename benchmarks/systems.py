"""Who decodes: command lines, and how peers are installed into the cache.

All work on one thread over the workload's files, in a process of their own; mysql-replication alone
reads from a server, since it can do nothing else.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.workloads import MARIADB, MYSQL, Made, cache_folder
from tests.servers import FetchError
from tests.servers.run import mysql_tool

HERE = Path(__file__).parent


class NotAvailable(Exception):
    """A peer is not on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class System:
    """Something that decodes. `reports`: its process prints a clock's line; else the whole process
    is measured. `servers`: kinds whose files it reads."""

    name: str
    command: Callable[[Made, int], list[str]]
    reports: bool = True
    row_limit: int = 1 << 62
    from_server: bool = False
    servers: tuple[str, ...] = (MYSQL, MARIADB)


def _ray_canal(view: str) -> Callable[[Made, int], list[str]]:
    def command(made: Made, _port: int) -> list[str]:
        return [sys.executable, "-m", "benchmarks.child_ray_canal", view, *made.files]

    return command


def _mysqlbinlog(made: Made, _port: int) -> list[str]:
    try:
        return [*mysql_tool("mysqlbinlog"), "--no-defaults", "-v", *made.files]
    except FetchError as error:
        raise NotAvailable(str(error)) from error


def _event_stream(made: Made, _port: int) -> list[str]:
    python = environment("mysql-event-stream")
    limit = str(SYSTEMS["mysql-event-stream"].row_limit)
    return [str(python), str(HERE / "child_event_stream.py"), limit, *made.files]


def _mysql_replication(_made: Made, port: int) -> list[str]:
    limit = str(SYSTEMS["mysql-replication"].row_limit)
    return [sys.executable, str(HERE / "child_mysql_replication.py"), limit, str(port)]


SYSTEMS = {
    system.name: system
    for system in (
        System("ray_canal-arrow", _ray_canal("arrow")),
        System("ray_canal-entries", _ray_canal("entries")),
        System("mysqlbinlog", _mysqlbinlog, reports=False, servers=(MYSQL,)),
        System("mysql-event-stream", _event_stream, row_limit=50_000),
        System("mysql-replication", _mysql_replication, row_limit=5_000, from_server=True),
    )
}
OURS = ("ray_canal-arrow", "ray_canal-entries")
BASE = "mysqlbinlog"


def environment(package: str, *options: str) -> Path:
    """Python of the package's own virtual environment. `options` are pip's. Raises
    NotAvailable."""
    folder = cache_folder() / package
    python = folder / "bin" / "python"
    done = folder / ".installed"
    if not done.exists():
        venv.create(folder, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", *options, package]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            last = (result.stderr.strip().splitlines() or ["no message"])[-1]
            raise NotAvailable(f"pip install {package}: {last}")
        done.touch()
    return python


def version_of(name: str) -> str:
    """A system's version as it says it itself. Raises NotAvailable."""
    if name == "mysqlbinlog":
        command = [*_mysqlbinlog(Made("", 0, 0, ()), 0)[:-2], "--version"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return text.partition("Ver ")[2].split(" for ")[0].strip()
    package = {"ray_canal-arrow": "ray-canal", "ray_canal-entries": "ray-canal"}.get(name, name)
    python = environment(package) if name == "mysql-event-stream" else Path(sys.executable)
    script = f"from importlib.metadata import version; print(version({package!r}))"
    result = subprocess.run(
        [str(python), "-c", script], capture_output=True, text=True, check=False
    )
    return result.stdout.strip() or "of this tree"
