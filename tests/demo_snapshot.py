"""`make demo` begins with this where the machine has a test server: rows that a table holds come
into a subscriber's log, between changes that a writer makes meanwhile, until both are one.

    python -m tests.demo_snapshot
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import ray
from rich.console import Console
from rich.progress import Progress

import ray_canal as canal
from ray_canal.model.snapshot_marks import MARK_END
from tests.servers import Server, cache_dir, start

NAME, CLIENT, ROWS = "demo-snapshot", 1001, 50_000
_RATE = 20_000  # rows a second, so that there is something to see


def fill(server: Server) -> None:
    """Make the table and its rows."""
    rows = ", ".join(f"({k}, 'order {k}', {k % 90})" for k in range(ROWS))
    server.execute(
        "create database shop", "create table shop.orders (id int primary key, name varchar(30), "
        "total int)", f"insert into shop.orders values {rows}", "analyze table shop.orders",
    )  # fmt: skip


def write(server: Server, stopped: threading.Event) -> None:
    """Change rows until told to stop."""
    number = 0
    with server.connect() as connection, connection.cursor() as cursor:
        while not stopped.wait(0.01):
            number += 1
            key = number * 7919 % ROWS
            cursor.execute(f"update shop.orders set total = {number} where id = {key}")
            cursor.execute(f"delete from shop.orders where id = {(key + 1) % ROWS}")
            cursor.execute(f"insert into shop.orders values ({ROWS + number}, 'new', 0)")


def take(console: Console) -> tuple[dict[int, int], Counter[str], str]:
    """What a subscriber holds at the snapshot's end, events by kind, and the place."""
    held: dict[int, int] = {}
    kinds: Counter[str] = Counter()
    with canal.connect(NAME, CLIENT) as connector, Progress(console=console) as progress:
        connector.subscribe(r"shop\..*", snapshot="initial")
        task = progress.add_task("   rows and changes", total=ROWS)
        for message in connector:
            for batch in message.batches:
                for row in batch.to_pylist():
                    kinds[row["event_type"]] += 1
                    if row["before"]:
                        held.pop(row["before"]["id"], None)
                    if row["after"]:
                        held[row["after"]["id"]] = row["after"]["total"]
            progress.update(task, completed=kinds["READ"])
            for mark in message.snapshot_marks:
                if mark.kind == MARK_END:
                    return held, kinds, f"{mark.journal_name}:{mark.position}"
    raise AssertionError("it has no end")


def at_place(server: Server, held: dict[int, int]) -> bool:
    """Take the changes since, and compare with the table, which nobody writes to any more."""
    with canal.connect(NAME, CLIENT) as connector:
        connector.subscribe(r"shop\..*")
        while message := connector.get(batch_size=1000, timeout=3.0):
            for batch in message.batches:
                for row in batch.to_pylist():
                    if row["before"]:
                        held.pop(row["before"]["id"], None)
                    if row["after"]:
                        held[row["after"]["id"]] = row["after"]["total"]
    return held == dict(server.execute("select id, total from shop.orders"))


def main() -> int:
    """Run it. 1 where the rows differ."""
    console = Console()
    if not (cache_dir() / "sid").exists():
        console.print("No test server is here (make servers): the demo begins without a snapshot.")
        return 0
    with tempfile.TemporaryDirectory() as folder, start("mysql97", Path(folder) / "x") as server:
        fill(server)
        snapshot = {"rows_per_s": _RATE, "chunk_bytes": 1 << 17}
        source = {"address": server.address, "username": "root"}
        one = {"destination": NAME, "source": source, "snapshot": snapshot}
        console.print(f"[bold]0. Snapshot[/] of {ROWS:,} rows of a MySQL 9.7 that is written to")
        canal.start({"meta": {"path": f"{folder}/meta.db"}, "instance": [one]})
        stopped = threading.Event()
        writer = threading.Thread(target=write, args=(server, stopped))
        writer.start()
        began = time.monotonic()
        try:
            held, kinds, place = take(console)
        finally:
            stopped.set()
            writer.join()
        seconds = time.monotonic() - began
        console.print(f"   consistent at {place} after {seconds:.1f} s: {dict(kinds)}")
        same = at_place(server, held)
        console.print(f"   with the changes since then it is what SELECT shows: {same}")
        canal.stop(NAME)
        ray.shutdown()
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
