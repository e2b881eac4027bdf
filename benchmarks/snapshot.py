"""Reading tables: rows and CPU seconds, next to a socket that throws everything away.

    python -m benchmarks.snapshot [--rows 1000000] [--runs 3]

Each system reads one table of eight columns and one of sixty from the same server on this machine,
in a process of its own that is warm: once before it is timed. `socket` sends the same statement by
the same protocol and reads what comes without looking at it: nobody is faster. Ratios to it hold
from machine to machine, figures do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from ray_canal.client.message import Message
from ray_canal.config import MetaConfig, load
from ray_canal.model.snapshot_marks import MARK_END
from ray_canal.model.subscription import Subscription
from ray_canal.snapshot.consistent import ConsistentSnapshot
from ray_canal.snapshot.keyed import KeyedSnapshot
from ray_canal.snapshot.read import Snapshot
from ray_canal.snapshot.result import ResultReader
from ray_canal.snapshot.session import open_session
from ray_canal.source.catalog import Catalog
from tests.local_destination import LocalDestination
from tests.servers import Server, start
from tests.snapshot_runs import chunks_of

ITEM = (
    "create table bench.item (id int primary key, a int, b bigint, price decimal(12,2), "
    "at datetime, name varchar(100), note varchar(60), flag tinyint)"
)
_WIDE = ("int", "bigint", "double", "decimal(14,4)", "datetime(6)", "varchar(40)")
WIDE = "create table bench.wide (id int primary key, {})".format(
    ", ".join(f"c{n} {_WIDE[n % len(_WIDE)]}" for n in range(59))
)
WIDE_PART = 20  # as many rows has the narrow table


class Figure(NamedTuple):
    """One run: rows, seconds, and CPU seconds of the client."""

    rows: int
    seconds: float
    cpu_s: float


def fill(server: Server, rows: int) -> None:
    """Make both tables."""
    server.execute("create database bench", ITEM, WIDE)
    digits = "(" + " union all ".join(f"select {n} n" for n in range(10)) + ")"
    numbers = " + ".join(f"{10**k} * d{k}.n" for k in range(7))
    joined = ", ".join(f"{digits} d{k}" for k in range(7))
    source = f"(select {numbers} as n from {joined}) x"
    server.execute(
        f"insert into bench.item select n, n * 7, n * 1000003, n / 100, '2026-01-01 10:00:00', "
        f"concat('name of number ', n, ' and more text'), repeat('x', n % 50), n % 2 "
        f"from {source} where n < {rows}"
    )
    values = {
        "int": "n", "bigint": "n * 1000003", "double": "n / 7", "decimal(14,4)": "n / 100",
        "datetime(6)": "'2026-01-01 10:00:00.123456'", "varchar(40)": "concat('text ', n)",
    }  # fmt: skip
    columns = ", ".join(values[_WIDE[n % len(_WIDE)]] for n in range(59))
    server.execute(
        f"insert into bench.wide select n, {columns} from {source} where n < {rows // WIDE_PART}",
        "analyze table bench.item, bench.wide",
    )


def read_socket(address: str, table: str) -> int:
    """The ceiling: the same bytes, thrown away. Return no rows: nobody counts them."""
    config = _instance(address).source
    connection = open_session(config, Catalog(config))
    reader = ResultReader(connection, config)
    reader._execute(f"SELECT * FROM bench.{table}")
    view, tail = reader._buffer.data, reader._buffer[: reader._end].tobytes()[-9:]
    while not (tail[:3] == b"\x05\0\0" and tail[4:5] == b"\xfe"):
        count = connection._sock.recv_into(view)
        tail = (tail + bytes(view[max(count - 9, 0) : count]))[-9:]
    connection._force_close()
    return 0


def _count(snapshot: Snapshot) -> int:
    with snapshot:
        for _ in snapshot:
            pass
        return snapshot.rows


def read_consistent(address: str, table: str, readers: int = 1) -> int:
    """All rows of one moment."""
    instance = _instance(address)
    return _count(Snapshot(ConsistentSnapshot(instance, rf"bench\.{table}", readers), "null"))


def read_keyed(address: str, table: str) -> int:
    """By chunks, with both marks of each."""
    return _count(Snapshot(KeyedSnapshot(_instance(address), rf"bench\.{table}"), "null"))


def read_log(address: str, table: str, readers: int = 1) -> int:
    """Into a subscriber's log, and out of it as Arrow batches that are acked."""
    instance = _instance(address)
    snapshot = instance.snapshot.model_copy(update={"readers": readers, "threads_running": 0})
    return asyncio.run(_through_a_log(instance.model_copy(update={"snapshot": snapshot}), table))


async def _through_a_log(config: Any, table: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        destination = LocalDestination(config, MetaConfig(path=f"{folder}/meta.db"))
        await destination.wait_running(60)
        wishes = Subscription(snapshot="initial")
        await destination.subscribe(1, rf"bench\.{table}", wishes=wishes)
        rows, ended = 0, False
        while not ended:
            head = await destination.poll(1, 16 << 10, 10.0)
            message = Message(head, chunks_of)
            rows += sum(batch.num_rows for batch in message.batches)
            ended = any(mark.kind == MARK_END for mark in message.snapshot_marks)
            await destination.ack(1, head.id, head.epoch)
        await destination.stop()
    return rows


def _instance(address: str) -> Any:
    source = {"address": address, "username": "root", "tls": {"mode": "disabled"}}
    instance = {"destination": "x", "source": source, "decoders": 0}
    return load({"instance": [instance]}).destination("x")


def read_pymysql(address: str, table: str) -> int:
    """PyMySQL's unbuffered cursor."""
    import pymysql
    from pymysql.cursors import SSCursor

    host, port = address.split(":")
    rows = 0
    with contextlib.closing(
        pymysql.connect(host=host, port=int(port), user="root", cursorclass=SSCursor)
    ) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM bench.{table}")
        while found := cursor.fetchmany(1000):
            rows += len(found)
    return rows


SYSTEMS: dict[str, Callable[[str, str], int]] = {
    "socket": read_socket,
    "ray_canal consistent": read_consistent,
    "ray_canal, 2 readers": lambda address, table: read_consistent(address, table, 2),
    "ray_canal keyed": read_keyed,
    "ray_canal in a log": read_log,
    "in a log, 2 readers": lambda address, table: read_log(address, table, 2),
    "PyMySQL SSCursor": read_pymysql,
}


def measure(name: str, address: str, table: str, runs: int) -> list[Figure]:
    """Run a system in this process: once to be warm, then so many times."""
    system, found = SYSTEMS[name], []
    system(address, table)
    for _ in range(runs):
        began, cpu = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        rows = system(address, table)
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
        found.append(Figure(rows, time.perf_counter() - began, cpu_s))
    return found


def main(
    rows: Annotated[int, typer.Option(help="Rows of the narrow table.")] = 1_000_000,
    runs: Annotated[int, typer.Option(help="Runs of each; the median counts.")] = 3,
    only: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Measure all systems on a MySQL 9.7 of their own, and print a table."""
    if only:
        name, address, table = only.split("|")
        sys.stdout.write(json.dumps(measure(name, address, table, runs)))
        return
    shown = Table("table", "system", "1,000 rows/s", "CPU s per M rows", "of the socket")
    with tempfile.TemporaryDirectory() as folder, start("mysql97", Path(folder)) as server:
        fill(server, rows)
        for table, count in (("item", rows), ("wide", rows // WIDE_PART)):
            ceiling = 0.0
            for name in SYSTEMS:
                found = _in_a_process(name, server.address, table, runs)
                seconds = statistics.median(figure.seconds for figure in found)
                cpu_s = statistics.median(figure.cpu_s for figure in found)
                if any(figure.rows not in (0, count) for figure in found):
                    raise typer.BadParameter(f"{name} read {found[0].rows} rows of {count}")
                ceiling = ceiling or count / seconds
                shown.add_row(
                    table, name, f"{count / seconds / 1000:,.0f}", f"{cpu_s / count * 1e6:.2f}",
                    f"{count / seconds / ceiling:.2f}",
                )  # fmt: skip
    Console().print(shown)


def _in_a_process(name: str, address: str, table: str, runs: int) -> list[Figure]:
    command = [sys.executable, "-m", "benchmarks.snapshot", "--runs", str(runs)]
    done = subprocess.run(
        [*command, "--only", f"{name}|{address}|{table}"],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return [Figure(*figure) for figure in json.loads(done.stdout)]


if __name__ == "__main__":
    typer.run(main)
