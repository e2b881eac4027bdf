"""The server that everything reads from, and when it began a dump, by its own clock.

The workload's files are the server's binlog and its tables exist, empty, since some peers ask the
catalog for columns. TLS is off for all alike.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.workloads import MARIADB, MYSQL, Made, prepare, serve_files
from tests.servers import Server, start

_READ_BYTES = 8 << 20

_OPTIONS: dict[str, str | None] = {
    "performance-schema": "ON",  # knows when a dump began
    "innodb-buffer-pool-size": "256M",
    "max-binlog-size": "1G",
}
OPTIONS: dict[str, dict[str, str | None]] = {
    MYSQL: {**_OPTIONS, "tls-version": "", "innodb-redo-log-capacity": "512M"},
    MARIADB: {
        **_OPTIONS, "innodb-log-file-size": "512M",
        "performance-schema-instrument": "statement/%=ON",
        "performance-schema-consumer-events-statements-current": "ON",
    },
}
"""By the server's kind."""

_DUMPS = """SELECT TIMER_WAIT FROM performance_schema.events_statements_current
 WHERE EVENT_NAME LIKE 'statement/com/Binlog Dump%' ORDER BY TIMER_START"""
"""For how long each has run, in picoseconds."""


@contextlib.contextmanager
def source(made: Made | None = None) -> Iterator[Source]:
    """A server with the workload's tables, and, when there is one, its files as the binlog."""
    kind = MYSQL if made is None else made.server
    with (
        tempfile.TemporaryDirectory(prefix="ray_canal_bench_") as temporary,
        start(kind, Path(temporary), OPTIONS[kind]) as server,
    ):
        prepare(server)
        if made is not None:
            serve_files(server, made)
        with contextlib.closing(server.connect()) as connection:
            yield Source(server, connection.cursor())


class Source:
    """A server, and a connection to ask it."""

    def __init__(self, server: Server, cursor: Any) -> None:
        self.server = server
        self._cursor = cursor
        process = server.process
        assert process is not None
        self.pid = process.pid

    def dump_began_ns(self) -> int | None:
        """When the latest dump began (CLOCK_MONOTONIC); None: there is none."""
        self._cursor.execute(_DUMPS)
        now_ns = time.monotonic_ns()
        rows = self._cursor.fetchall()
        if not rows:
            return None
        return now_ns - int(rows[-1][0]) // 1000

    def end_dumps(self, timeout_s: float = 20.0) -> None:
        """End what dumps readers left behind."""
        deadline = time.monotonic() + timeout_s
        cursor = self._cursor
        while self.dump_began_ns() is not None:
            cursor.execute(
                "SELECT PROCESSLIST_ID FROM performance_schema.threads"
                " WHERE PROCESSLIST_COMMAND LIKE 'Binlog Dump%'"
            )
            for (number,) in cursor.fetchall():
                with contextlib.suppress(Exception):  # it may have gone by itself
                    cursor.execute(f"KILL {number}")
            if time.monotonic() > deadline:
                raise TimeoutError("a dump of a reader that has gone does not end")
            time.sleep(0.02)

    def load_binlogs(self) -> None:
        """Have its binlog files in the page cache, where a server has what it has written lately.

        A kernel that takes back what nobody has used for minutes (DAMON) lets the reader that comes
        after slow ones wait for the disk."""
        for path in sorted(self.server.datadir.glob("mysql-bin.[0-9]*")):
            with path.open("rb", buffering=0) as file:
                while file.read(_READ_BYTES):
                    pass

    def cpu_s(self) -> float:
        """CPU seconds of the server so far."""
        from benchmarks.e2e.processes import cpu_s

        return cpu_s([self.pid])


def load_average() -> float:
    """Of the last minute."""
    return round(os.getloadavg()[0], 2)
