"""A snapshot's rows are read on nodes of their own, of which some die in the midst of it: a program
of its own, as a process has one Ray.

    RAY_AUTH_TOKEN=... python -m tests.fault.lost_reader HOST:PORT FOLDER MODE HOW

The head has the destination, the other nodes what reads. HOW: `one` of two dies while it reads;
`all` do, and another one comes a while later; `read`: everything is read, and the nodes die that
have the rows. Prints what was seen as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pymysql
from ray._private.state import actors
from ray.cluster_utils import Cluster

import ray_canal as canal
from ray_canal.errors import InstanceError
from ray_canal.model.snapshot_marks import MARK, MARK_END
from ray_canal.model.snapshot_wish import KEYED
from ray_canal.model.table_event import TRUNCATE
from tests.fault.own_cluster import own_cluster
from tests.processes import wait_for

NAME, CLIENT, ROWS = "far", 7, 12_000
TABLES = ("t", "other", "bag")
PATIENCE_S = 150.0
ALONE_S = 3.0
MEMORY = {"object_store_memory": 200 << 20}
READS = {"num_cpus": 1, "resources": {"reads": 1.0}, **MEMORY}
Rows = dict[str, Counter[tuple[Any, ...]]]


def config_of(address: str, folder: str, mode: str, unacked: int) -> dict[str, Any]:
    return {
        "meta": {"path": f"{folder}/meta.db"},
        "instance": [
            {
                "destination": NAME,
                "decoders": 0,
                "source": {"address": address, "username": "root", "reconnect_max_s": 1.0},
                "snapshot": {
                    "node": "reads", "readers": 2, "mode": mode, "may_lock": True,
                    "chunk_bytes": 1 << 18, "bytes": unacked,
                },
            }
        ],
    }  # fmt: skip


def tables_of(mode: str) -> list[str]:
    """In mode keyed each has a key."""
    return [name for name in TABLES if name != "bag" or mode != KEYED]


class Source:
    """The server's tables, and what happens to their rows meanwhile."""

    def __init__(self, address: str, mode: str) -> None:
        host, _, port = address.rpartition(":")
        self._server = pymysql.connect(host=host, port=int(port), user="root", ssl_disabled=True)
        self.tables = tables_of(mode)
        values = "select n, n % 100, repeat(char(65 + n % 26), 800) from numbers"
        self._run(
            f"drop database if exists {NAME}", f"create database {NAME}", f"use {NAME}",
            "set session cte_max_recursion_depth = 1000000",
            "create table t (id int primary key, v int, pad varchar(800))",
            "create table other (id int primary key, v int)",
            "create table bag (v int, pad varchar(800))",
            f"insert into t with recursive numbers(n) as "
            f"(select 1 union all select n + 1 from numbers where n < {ROWS}) {values}",
            "insert into other select id, v from t where id <= 1000",
            "insert into bag select v, pad from t",
            "commit",
            *(f"analyze table {name}" for name in TABLES),
        )  # fmt: skip

    def _run(self, *statements: str) -> None:
        with self._server.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def change(self) -> None:
        """One transaction: rows of the beginning, the middle and the end of all tables."""
        some = f"id % {ROWS // 10} < 3"
        self._run(
            f"update t set v = v + 1 where {some}",
            f"delete from t where id % {ROWS // 10} = 7",
            f"update t set id = id + {ROWS} where id % {ROWS // 10} = 9",
            "update other set v = v - 1 where id % 100 = 3",
            "insert into bag values (1000, 'new'), (1000, 'new')",
            "delete from bag where v = 4 limit 3",
            "commit",
        )

    def held(self) -> Rows:
        found = {}
        with self._server.cursor() as cursor:
            for name in self.tables:
                cursor.execute(f"select * from {name}")
                found[name] = Counter(cursor.fetchall())
        self._run("commit")  # the next look is another moment
        return found


class Mirror:
    """Rows as they come. A row of a key replaces what was there; one without a key is one more."""

    def __init__(self, tables: list[str], mode: str) -> None:
        self._keyed: dict[str, dict[Any, tuple[Any, ...]]] = {name: {} for name in tables}
        self._bags: Rows = {name: Counter() for name in tables}
        self._by_key = mode == KEYED
        self.read = 0
        self.emptied = 0
        self.at_end: Rows | None = None
        self.failures: list[str] = []
        self._last: tuple[Any, ...] = ()

    @property
    def rows(self) -> Rows:
        if not self._by_key:
            return {name: +bag for name, bag in self._bags.items()}
        return {name: Counter(held.values()) for name, held in self._keyed.items()}

    def take(self, connector: canal.Connector) -> bool:
        """Take a message, and ack it; False: nothing came. What cannot be read or acked comes
        again: what was applied of it has ids that are known."""
        try:
            message = connector.get_without_ack(batch_size=300, timeout=1.0)
            if not message:
                return False
            parts = zip(message.batches_by_part(), message.chunks_by_part(), strict=True)
            for batches, (_, chunk) in parts:
                rows = [(b.schema.metadata[b"canal.table"].decode(), row)
                        for b in batches for row in b.to_pylist()]  # fmt: skip
                self._apply([(table, row) for table, row in rows if id_of(row) > self._last])
                self._last = max([self._last, *(id_of(row) for _, row in rows)])
                if dict(chunk.layout.props).get(MARK) == MARK_END:
                    self.at_end = self.rows
            connector.ack(message.id)
        except InstanceError as error:
            self.failures.append(f"{type(error).__name__}: {error}")
        return True

    def _apply(self, rows: list[tuple[str, dict[str, Any]]]) -> None:
        for name, row in rows:
            keyed, bag = self._keyed[name], self._bags[name]
            if row["event_type"] == TRUNCATE:
                keyed.clear()
                bag.clear()
                self.emptied += 1
                continue
            self.read += row["event_type"] == "READ"
            if row["before"] is not None:
                image = tuple(row["before"].values())
                keyed.pop(image[0], None)
                bag[image] -= 1
            if row["after"] is not None:
                image = tuple(row["after"].values())
                keyed[image[0]] = image
                bag[image] += 1


def id_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["timeline"], row["journal_name"], row["position"], row["row"]


def until(condition: Callable[[], bool], what: str) -> None:
    try:
        wait_for(condition, PATIENCE_S, what)
    except AssertionError:
        print(canal.status(NAME)[NAME]["snapshots"])
        raise


def readers_on() -> list[str]:
    """Ids of the nodes on which readers live."""
    return [
        one["Address"]["NodeID"]
        for one in actors().values()
        if one["ActorClassName"].endswith(("RangeRows", "MomentRows")) and one["State"] == "ALIVE"
    ]


def state() -> dict[str, Any]:
    [found] = canal.status(NAME)[NAME]["snapshots"]
    return dict(found)


def played(cluster: Cluster, address: str, folder: str, mode: str, how: str) -> dict[str, Any]:
    """Lose nodes in the midst; return what the subscriber had."""
    source = Source(address, mode)
    nodes = {node.node_id: node for node in (cluster.add_node(**READS), cluster.add_node(**READS))}
    canal.start(config_of(address, folder, mode, (64 if how == "read" else 1) << 20))
    mirror = Mirror(source.tables, mode)
    with canal.connect(NAME, CLIENT) as connector:
        connector.subscribe(rf"{NAME}\.({'|'.join(source.tables)})", snapshot="initial")

        def take_rows(count: int) -> None:
            until(lambda: bool(mirror.take(connector) and mirror.read >= count), f"{count} rows")

        take_rows(ROWS // 5)
        if how == "read":
            until(lambda: not readers_on(), "everything is read")
            where = set(nodes)
        else:  # they live until all is placed, which waits for acks
            until(lambda: bool(readers_on()), "readers")
            where = set(readers_on())
        source.change()
        for node_id in sorted(where)[: 1 if how == "one" else None]:
            cluster.remove_node(nodes.pop(node_id), allow_graceful=False)
        died_s = time.monotonic()
        if how != "one":
            while how == "all" and time.monotonic() < died_s + ALONE_S:
                mirror.take(connector)
            cluster.add_node(**READS)
        until(lambda: bool(mirror.take(connector) and mirror.at_end), "the snapshot's end")
        took_s = time.monotonic() - died_s
        at_end = source.held()
        source.change()
        after = source.held()
        until(lambda: bool(mirror.take(connector) and mirror.rows == after), "the last change")
    ended = state()
    told = {
        "nodes": len(where),
        "failures": mirror.failures,
        "state": ended["state"], "error": ended["error"],
        "emptied": mirror.emptied, "read": mirror.read,
        "at_end": mirror.at_end == at_end,
        "seconds": took_s,
        "generations": canal.status(NAME)[NAME]["generations"],
    }  # fmt: skip
    canal.stop(NAME)
    return told


def main(address: str, folder: str, mode: str, how: str) -> None:
    with own_cluster(num_cpus=0, **MEMORY) as cluster:
        print(json.dumps(played(cluster, address, folder, mode, how)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
