"""Who reads a table, and how: ours in this process, peers in environments of their own.

`socket` sends the same statement by the same protocol and reads what comes without looking at it:
nobody is faster.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.e2e.child import Child
from benchmarks.e2e.processes import cpu_s
from benchmarks.e2e.systems import READERS
from benchmarks.systems import environment
from ray_canal.client.message import Message
from ray_canal.config import MetaConfig, load
from ray_canal.model.snapshot_marks import MARK_END
from ray_canal.model.snapshot_wish import KEYED, SnapshotWish
from ray_canal.model.subscription import Subscription
from ray_canal.snapshot.consistent import ConsistentSnapshot, moment_readers
from ray_canal.snapshot.keyed import KeyedSnapshot
from ray_canal.snapshot.read import Snapshot
from ray_canal.snapshot.result import ResultReader
from ray_canal.snapshot.session import open_session
from ray_canal.source.catalog import Catalog
from tests.local_destination import LocalDestination
from tests.snapshot_runs import chunks_of

_SCRIPT = Path(__file__).parent / "peers" / "sql_reader.py"
_CHILD_S = 600.0
_WARM = 0.25
"""The part of its rows that Debezium has before its clock starts."""


class Figure(NamedTuple):
    """One run: rows, seconds, and CPU seconds of the client."""

    rows: int
    seconds: float
    cpu_s: float


def read_socket(address: str, table: str, rows: int, connections: int = 1) -> int:
    """The ceiling: the same bytes, thrown away."""
    cuts = [rows * n // connections for n in range(connections + 1)]
    parts = [f" WHERE id >= {a} AND id < {b}" for a, b in itertools.pairwise(cuts)]
    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(lambda part: _throw_away(address, table, part), parts))
    return rows


def _throw_away(address: str, table: str, part: str) -> None:
    config = instance_of(address).source
    connection = open_session(config, Catalog(config))
    reader = ResultReader(connection, config)
    reader._execute(f"SELECT * FROM bench.{table}{part}")
    view, tail = reader._buffer.data, reader._buffer[: reader._end].tobytes()[-9:]
    while not (tail[:3] == b"\x05\0\0" and tail[4:5] == b"\xfe"):
        count = connection._sock.recv_into(view)
        tail = (tail + bytes(view[max(count - 9, 0) : count]))[-9:]
    connection._force_close()


def _count(snapshot: Snapshot) -> int:
    with snapshot:
        for _ in snapshot:
            pass
        return snapshot.rows


def read_consistent(address: str, table: str, rows: int, readers: int = 1) -> int:
    """All rows of one moment."""
    instance = instance_of(address)
    wishes = (SnapshotWish(rf"bench\.{table}"),)
    opened = moment_readers(instance, readers)
    return _count(Snapshot(ConsistentSnapshot(instance, wishes, opened), "null"))


def read_keyed(address: str, table: str, rows: int) -> int:
    """By chunks, with both marks of each."""
    return _count(Snapshot(KeyedSnapshot(instance_of(address), rf"bench\.{table}"), "null"))


def read_log(address: str, table: str, rows: int, readers: int = 1, mode: str = KEYED) -> int:
    """Into a subscriber's log, and out of it as Arrow batches that are acked."""
    instance = instance_of(address)
    changed = {"readers": readers, "threads_running": 0, "mode": mode}
    snapshot = instance.snapshot.model_copy(update=changed)
    return asyncio.run(_through_a_log(instance.model_copy(update={"snapshot": snapshot}), table))


_log_s = [0.0, 0.0]
"""How long the last snapshot took, of a destination that was there, and its CPU seconds."""


async def _through_a_log(config: Any, table: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        destination = LocalDestination(config, MetaConfig(path=f"{folder}/meta.db"))
        await destination.wait_running(60)
        began_s, before_s = time.perf_counter(), time.process_time()
        rows = await take_snapshot(destination, 1, table)
        _log_s[:] = time.perf_counter() - began_s, time.process_time() - before_s
        await destination.stop()
    return rows


async def take_snapshot(destination: LocalDestination, client_id: int, table: str) -> int:
    """Subscribe with a snapshot, and take it to its end."""
    wishes = Subscription(snapshot="initial")
    await destination.subscribe(client_id, rf"bench\.{table}", wishes=wishes)
    rows, ended = 0, False
    while not ended:
        head = await destination.poll(client_id, 16 << 10, 10.0)
        message = Message(head, chunks_of)
        rows += sum(batch.num_rows for batch in message.batches)
        ended = any(mark.kind == MARK_END for mark in message.snapshot_marks)
        await destination.ack(client_id, head.id, head.epoch)
    return rows


def instance_of(address: str, **more: Any) -> Any:
    """A destination's configuration."""
    source = {"address": address, "username": "root", "tls": {"mode": "disabled"}}
    instance = {"destination": "x", "source": source, "decoders": 0, **more}
    return load({"instance": [instance]}).destination("x")


def read_pymysql(address: str, table: str, rows: int) -> int:
    """PyMySQL's unbuffered cursor."""
    import pymysql
    from pymysql.cursors import SSCursor

    host, port = address.split(":")
    found = 0
    with contextlib.closing(
        pymysql.connect(host=host, port=int(port), user="root", cursorclass=SSCursor)
    ) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM bench.{table}")
        while some := cursor.fetchmany(1000):
            found += len(some)
    return found


Read = Callable[[str, str, int], int]
SOCKET, SOCKETS = "socket", "socket, 2 connections"
CONNECTORX, CONNECTORX_2 = "connectorx", "connectorx, 2 partitions"
MYSQLCLIENT, DEBEZIUM = "mysqlclient SSCursor", "Debezium"
IN_A_LOG, IN_A_LOG_2 = "ray_canal in a log", "ray_canal in a log, 2 readers"
OURS: dict[str, Read] = {
    SOCKET: read_socket,
    SOCKETS: lambda address, table, rows: read_socket(address, table, rows, 2),
    "ray_canal consistent": read_consistent,
    "ray_canal consistent, 2 readers": lambda a, table, rows: read_consistent(a, table, rows, 2),
    "ray_canal keyed": read_keyed,
    IN_A_LOG: read_log,
    IN_A_LOG_2: lambda address, table, rows: read_log(address, table, rows, 2),
    "ray_canal in a log, 4 readers": lambda address, table, rows: read_log(
        address, table, rows, 4
    ),
    "PyMySQL SSCursor": read_pymysql,
}
_PEERS = {
    CONNECTORX: ("connectorx", "connectorx", 1),
    CONNECTORX_2: ("connectorx", "connectorx", 2),
    MYSQLCLIENT: ("mysqlclient-static", "mysqlclient", 1),
}
"""Name -> (package, what sql_reader.py calls it, partitions)."""
NAMES = (*OURS, *_PEERS, DEBEZIUM)


def measure(name: str, address: str, table: str, rows: int, runs: int) -> list[Figure]:
    """Run a system of this tree in this process: once to be warm, then so many times."""
    found = []
    for _ in range(runs + 1):
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        _log_s[:] = 0.0, 0.0
        read = OURS[name](address, table, rows)
        after = resource.getrusage(resource.RUSAGE_SELF)
        spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        seconds = time.perf_counter() - began
        found.append(Figure(read, _log_s[0] or seconds, _log_s[1] or spent_s))
    return found[1:]


def in_a_process(name: str, address: str, table: str, rows: int, runs: int) -> list[Figure]:
    """Run a system in a process of its own. Raises NotAvailable, ChildFailed."""
    if name == DEBEZIUM:
        return [_debezium(address, table, rows) for _ in range(runs)]
    if name in _PEERS:
        package, system, parts = _PEERS[name]
        options = ("pyarrow",) if system == "connectorx" else ()
        port = address.split(":")[1]
        command = [str(environment(package, *options)), str(_SCRIPT), system, port, table]
        command += [str(parts), str(runs)]
    else:
        task = json.dumps([name, address, table, rows, runs])
        command = [sys.executable, "-m", "benchmarks.snapshot", "--task", task]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [Figure(*figure) for figure in json.loads(done.stdout)]


def _debezium(address: str, table: str, rows: int) -> Figure:
    """Its embedded engine's initial snapshot, from a quarter of the rows on: it is warm then."""
    reader = READERS["debezium"]
    assert reader.command is not None
    command = reader.command(int(address.split(":")[1]), rows, int(rows * _WARM))
    with Child([*command, f"bench.{table}"]) as child:
        mark = child.wait("mark", _CHILD_S)
        before = cpu_s(child.pids())
        end = child.wait("end", _CHILD_S)
        spent_s = cpu_s(child.pids()) - before
    return Figure(end["rows"] - mark["rows"], (end["ns"] - mark["ns"]) / 1e9, spent_s)
