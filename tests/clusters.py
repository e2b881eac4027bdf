"""A source of several servers that all have its rows: writers at them, and what a subscriber holds
of a table (id, v)."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Literal

import pymysql

from ray_canal.client.connector import Connector
from ray_canal.client.transport import RayTransport
from tests.in_process_sink import in_thread
from tests.servers import Server

FILLED = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900)"


def source_of(nodes: list[Server]) -> dict[str, object]:
    """Settings of a source that begins at the first server, and may go to the others."""
    return {
        "address": nodes[0].address,
        "standby": [node.address for node in nodes[1:]],
        "username": "root",
        "detect_interval_s": 1.0,
    }


@contextlib.contextmanager
def held(
    wanted: str, snapshot: Literal["initial", "never"] = "never"
) -> Iterator[dict[int, int]]:
    """What a subscriber holds of a table (id, v)."""
    connector = Connector(RayTransport("x"), 7)
    rows: dict[int, int] = {}
    connector.subscribe(wanted, snapshot=snapshot)

    def read(stopped: threading.Event) -> None:
        while not stopped.is_set():
            message = connector.get_without_ack(1000, 0.2)
            for row in (row for batch in message.batches for row in batch.to_pylist()):
                if row["event_type"] == "TRUNCATE":
                    rows.clear()
                if row["before"]:
                    rows.pop(row["before"]["id"], None)
                if row["after"]:
                    rows[row["after"]["id"]] = row["after"]["v"]
            connector.ack(message.id)

    with in_thread(read):
        yield rows


def _write(servers: list[Server], seed: int, stopped: threading.Event) -> None:
    """Change random rows at the last of the servers, until it is stopped."""
    chosen, connection = random.Random(seed), None
    while not stopped.is_set():
        key, other = chosen.randrange(1, 900), chosen.randrange(1, 1200)
        statement = chosen.choice(
            [
                f"UPDATE l.t SET v = v + 1 WHERE id = {key}",
                f"UPDATE IGNORE l.t SET id = {other} WHERE id = {key}",
                f"DELETE FROM l.t WHERE id = {key}",
                f"REPLACE INTO l.t VALUES ({other}, {chosen.randrange(1000)})",
            ]
        )
        try:
            if connection is None:
                connection = servers[-1].connect(connect_timeout=2, read_timeout=5)
            connection.cursor().execute(statement)
        except pymysql.err.MySQLError:  # a conflict of two members, or the primary is gone
            connection = None
            time.sleep(0.05)


@contextlib.contextmanager
def writing(places: Sequence[list[Server]]) -> Iterator[None]:
    """A writer at the last server of each list, which may get others, inside the block."""
    with contextlib.ExitStack() as writers:
        for seed, servers in enumerate(places):
            work = lambda end, s=seed, at=servers: _write(at, s, end)  # noqa: E731
            writers.enter_context(in_thread(work))
        yield
