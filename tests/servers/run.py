"""Start and stop one real server: own data directory, loopback, free port, root without password.

A data directory takes seconds to make, so one per kind is kept as a template in the cache and
copied. Only processes started here are ever signalled, by their process id.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql

from tests.servers.fetch import OTHER_BUILDS, cache_dir, fetch, locked, tree_of

Options = Mapping[str, str | None]
_PORTS = range(20001, 32768, 2)
"""Below those that Linux gives to connections by default; where it gives these, it takes the even
ones first."""

_COMMON: dict[str, str | None] = {
    "bind-address": "127.0.0.1",
    "log-bin": "mysql-bin",
    "binlog-format": "ROW",
    "server-id": "1",
    "sync-binlog": "0",
    "innodb-flush-log-at-trx-commit": "2",
    "max-allowed-packet": "256M",
    "max-connections": "200",
    "character-set-server": "utf8mb4",
}
_OF_KIND: dict[str, dict[str, str | None]] = {
    "mysql97": {
        "gtid-mode": "ON",
        "enforce-gtid-consistency": "ON",
        "binlog-row-metadata": "FULL",
        "mysqlx": "OFF",
        "secure-file-priv": "",
        "innodb-redo-log-capacity": "32M",
        "innodb-buffer-pool-size": "64M",
        "performance-schema": "OFF",
    },
    "mysql56": {
        "gtid-mode": "ON",
        "enforce-gtid-consistency": "ON",
        "log-slave-updates": "ON",
        "innodb-buffer-pool-size": "32M",
        "innodb-log-file-size": "48M",
        "performance-schema": "OFF",
    },
    "mariadb": {
        "binlog-row-metadata": "FULL",
        "innodb-buffer-pool-size": "32M",
        "innodb-log-file-size": "48M",
    },
}


def loader(tree: Path) -> list[str]:
    """Run a program on its own tree's C library, whatever the machine's is."""
    for folder in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"):
        found = tree / "root" / folder / "ld-linux-x86-64.so.2"
        if found.exists():
            libraries = [
                str(tree / "root" / name)
                for name in ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
            ]
            return [str(found), "--library-path", ":".join(libraries)]
    raise FileNotFoundError(f"no ld-linux in {tree}; remove it and fetch again")


def _program(build: str) -> list[str]:
    root = tree_of(build) / "root"
    if build == "mysql56":
        server = cache_dir() / "mysql56" / "package" / "server"
        return [
            *loader(tree_of(build)), str(server / "mysqld"), "--no-defaults",
            f"--basedir={server}", f"--lc-messages-dir={server / 'share'}",
            f"--character-sets-dir={server / 'share' / 'charsets'}",
        ]  # fmt: skip
    name = "mysqld" if build == "mysql97" else "mariadbd"
    share = _share(build)
    return [
        *loader(tree_of(build)), str(root / "usr" / "sbin" / name), "--no-defaults",
        f"--basedir={root / 'usr'}", f"--lc-messages-dir={share}",
        f"--character-sets-dir={share / 'charsets'}",
    ]  # fmt: skip


def _share(build: str) -> Path:
    """Error messages, character sets and, of MariaDB, the scripts of a data directory."""
    folder = tree_of(build) / "root" / "usr" / "share"
    return folder / ("mariadb" if build in OTHER_BUILDS else "mysql")


def mysql_tool(name: str) -> list[str]:
    """Command line of a MySQL 9.7 client program (`mysqlbinlog`, `mysqldump`, `mysql`)."""
    fetch("mysql97")
    tree = tree_of("mysql97")
    return [*loader(tree), str(tree / "root" / "usr" / "bin" / name)]


def _user() -> list[str]:
    return ["--user=root"] if os.getuid() == 0 else []


def template(build: str, lower_case: bool = False) -> Path:
    """A fresh data directory to copy; made once per build. `lower_case`: for a server with
    lower_case_table_names=1, which MySQL 8 and later must be made for."""
    fetch(build)
    target = cache_dir() / (f"{build}-lower.data" if lower_case else f"{build}.data")
    with locked(target.name):
        if not target.exists():
            making = target.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir()
            _initialise(build, making, lower_case)
            (making / "auto.cnf").unlink(missing_ok=True)  # each copy makes its own server_uuid
            making.rename(target)
    return target


def _initialise(build: str, datadir: Path, lower_case: bool) -> None:
    command = [*_program(build), *_user(), f"--datadir={datadir}"]
    script = ""
    if build == "mysql97":
        command += ["--initialize-insecure", "--innodb-redo-log-capacity=32M"]
        command += ["--lower-case-table-names=1"] * lower_case
    else:
        command += ["--bootstrap", "--innodb-log-file-size=48M"]
        (datadir / "mysql").mkdir()
        script = _bootstrap_script(build)
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise RuntimeError(f"{build}: cannot make a data directory ({done.returncode})\n{tail}")


def _bootstrap_script(build: str) -> str:
    if build == "mysql56":
        share = cache_dir() / "mysql56" / "package" / "server" / "share"
        names = ["mysql_system_tables.sql", "mysql_system_tables_data.sql"]
        head = "use mysql;\n"
    else:
        share = _share(build)
        names = [
            *(f"{share.name}_{part}.sql"
              for part in ("system_tables", "performance_tables", "system_tables_data")),
            "maria_add_gis_sp_bootstrap.sql",
        ]  # fmt: skip
        head = "use mysql;\nSET @auth_root_socket=NULL;\n"
    body = "\n".join((share / name).read_text(encoding="utf-8") for name in names)
    # An anonymous user would shadow users of any host on connections from localhost.
    return (
        head
        + body
        + "\nDELETE FROM mysql.global_priv WHERE User='';\n".replace(
            "global_priv", "user" if build == "mysql56" else "global_priv"
        )
    )


@dataclass
class Server:
    """A test server. `options` are mysqld's, without dashes in front; None leaves a default out."""

    kind: str
    folder: Path
    options: dict[str, str | None] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    build: str = ""  # which software runs; empty: that of the kind's name

    @property
    def datadir(self) -> Path:
        return self.folder / "data"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_mariadb(self) -> bool:
        return self.kind == "mariadb"

    def connect(self, user: str = "root", password: str = "", **more: Any) -> Any:
        """A PyMySQL connection, autocommit, utf8mb4 unless told otherwise. Without TLS where no
        password is sent: to read all certificates of a machine costs 40 ms of CPU a connection."""
        settings: dict[str, Any] = {"charset": "utf8mb4", "autocommit": True, **more}
        settings.setdefault("ssl_disabled", not password and "ssl" not in more)
        return pymysql.connect(
            host=self.host, port=self.port, user=user, password=password, **settings
        )

    def execute(self, *statements: str) -> tuple[tuple[Any, ...], ...]:
        """Run statements as root, each committed; return the last one's rows."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return tuple(cursor.fetchall())

    @contextlib.contextmanager
    def with_global(self, name: str, value: str) -> Iterator[None]:
        """A global variable set inside the `with` block, and put back."""
        ((before,),) = self.execute(f"SELECT @@GLOBAL.{name}")
        self.execute(f"SET GLOBAL {name}={value}")
        try:
            yield
        finally:
            self.execute(f"SET GLOBAL {name}={before}")

    @contextlib.contextmanager
    def with_database(self, name: str) -> Iterator[Server]:
        """An empty database inside the `with` block, whatever a run that erred has left of it."""
        self.execute(f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}")
        yield self
        self.execute(f"DROP DATABASE {name}")

    @contextlib.contextmanager
    def without_row_metadata(self) -> Iterator[None]:
        """TABLE_MAP events without column names inside the `with` block, on every kind."""
        if self.kind == "mysql56":  # it knows of none
            yield
            return
        bare = "NO_LOG" if self.is_mariadb else "MINIMAL"
        with self.with_global("binlog_row_metadata", bare):
            yield

    def binlogs(self) -> list[Path]:
        """The binlog files, oldest first."""
        return [self.datadir / str(row[0]) for row in self.execute("SHOW BINARY LOGS")]

    def position(self) -> tuple[str, int]:
        """Current binlog file name and offset."""
        word = "BINARY LOG STATUS" if self.kind == "mysql97" else "MASTER STATUS"
        row = self.execute(f"SHOW {word}")[0]
        return str(row[0]), int(row[1])

    def start(self, timeout_s: float = 120.0) -> None:
        """Start (again) on the same data directory and port; returns when it answers."""
        port = self.port or free_port()
        options = {**_COMMON, **_OF_KIND[self.kind], **self.options}
        given = [f"--{key}={value}" for key, value in options.items() if value is not None]
        command = [
            *_program(self.build or self.kind), *_user(),
            f"--datadir={self.datadir}", f"--port={port}",
            f"--socket={_socket_path(self.folder)}", f"--pid-file={self.folder / 'server.pid'}",
            f"--tmpdir={self.folder / 'tmp'}", *given,
        ]  # fmt: skip
        with open(self.folder / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.port = port
        self._wait(timeout_s)

    def _wait(self, timeout_s: float) -> None:
        assert self.process is not None
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self.connect(connect_timeout=5).close()
                return
            except pymysql.err.MySQLError as error:
                code = self.process.poll()
                if code is not None or time.monotonic() > deadline:
                    self.kill()
                    log = (self.folder / "server.log").read_text(errors="replace")
                    tail = "\n".join(log.splitlines()[-15:])
                    raise RuntimeError(
                        f"{self.kind} did not start ({code}): {error}\n{tail}"
                    ) from None
                time.sleep(0.1)

    def stop(self, timeout_s: float = 60.0) -> None:
        """Shut down in an orderly way (SIGTERM), then by force."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def kill(self) -> None:
        """SIGKILL: as in a crash."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self, **options: str | None) -> None:
        """Stop, and start with changed options (`binlog_format="MIXED"`)."""
        self.stop()
        self.options.update({key.replace("_", "-"): value for key, value in options.items()})
        self.start()


def free_port() -> int:
    """Return a port of loopback that nobody has. No other process of tests gets it for some
    thousand calls, nor does the system give it to a connection: so a server that starts late, or
    is killed and starts again, finds it free."""
    note = cache_dir() / "port.txt"
    with locked("port"):
        last = int(note.read_text()) if note.exists() else _PORTS[0]
        for step in range(1, len(_PORTS) + 1):
            port = _PORTS[(_PORTS.index(last) + step) % len(_PORTS)]
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                note.write_text(str(port))
                return port
    raise RuntimeError("no port of loopback is free")


def _socket_path(folder: Path) -> Path:
    """A Unix socket's path has at most 107 bytes; pytest's folders are long."""
    path = folder / "s.sock"
    return path if len(str(path)) < 100 else Path(f"/tmp/ray_canal_{os.getpid()}_{id(folder)}.sock")


@contextlib.contextmanager
def start(kind: str, folder: Path, options: Options | None = None) -> Iterator[Server]:
    """A running server of `kind` in `folder`, killed and its data removed at the end.

    `options`: mysqld's options by name, e.g. {"max-binlog-size": "64K", "gtid-mode": None}.
    """
    build = os.environ.get("RAY_CANAL_TEST_MARIADB", kind) if kind == "mariadb" else kind
    kind = OTHER_BUILDS.get(build, kind)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tmp").mkdir(exist_ok=True)
    lower_case = kind == "mysql97" and (options or {}).get("lower-case-table-names") == "1"
    made = template(build, lower_case)
    # cp keeps InnoDB's sparse files sparse; shutil would write out every zero.
    subprocess.run(["cp", "-a", "--sparse=always", str(made), str(folder / "data")], check=True)
    server = Server(kind, folder, dict(options or {}), build=build)
    try:
        server.start()
        yield server
    finally:
        server.kill()  # nobody reads its data any more; an orderly end takes 1.5 s
        shutil.rmtree(server.datadir, ignore_errors=True)
