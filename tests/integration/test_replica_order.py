"""A cursor of a MySQL 5.6 replica that applied in parallel, and so in another order, is refused by
its healthy master, and goes on there by the seek that the error advises.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest

from ray_canal.client.message import Message
from ray_canal.config import InstanceConfig
from ray_canal.model.message import EMPTY_BATCH
from tests.integration.test_failover import QUICK, Pair, replicating
from tests.local_destination import LocalDestination, run, running, until
from tests.processes import wait_for
from tests.servers import Server
from tests.snapshot_runs import chunks_of

CLIENTS = (1, 2)


@pytest.mark.soak  # `make soak-servers`
def test_after_a_failover_by_the_advised_seek_no_row_is_lost(tmp_path: Path) -> None:
    with replicating("mysql56", tmp_path / "servers") as pair:
        run(fails_over(pair, tmp_path), 200)


async def fails_over(pair: Pair, folder: Path) -> None:
    source = {
        "address": pair.standby.address, "standby": [pair.master.address], "username": "root",
        **QUICK,
    }  # fmt: skip
    config = InstanceConfig.model_validate({"destination": "x", "decoders": 0, "source": source})
    async with running(folder, config) as destination:
        for client_id in CLIENTS:
            await destination.subscribe(client_id, r"[fg]\.t")
        write_out_of_order(pair)
        for client_id in CLIENTS:
            assert await ids(destination, client_id, 2) == [2, 1]
        pair.standby.kill()
        pair.master.execute("INSERT INTO f.t VALUES (3, 0)", "INSERT INTO g.t VALUES (4, 0)")
        supervisor = destination.state.supervisor
        await until(lambda: "slave_preserve_commit_order" in str(supervisor.failure), 60)
        for client_id in CLIENTS:
            shown: Any = await destination.operate(client_id, "show")
            await destination.operate(client_id, "seek", shown["cursor_gtid"])
        for client_id in CLIENTS:
            assert await ids(destination, client_id, 2) == [3, 4]
        assert destination.state.log.identity is not None
        assert destination.state.log.identity.address == pair.master.address


def write_out_of_order(pair: Pair) -> None:
    """Write row 1, and two seconds later row 2, which the replica has first."""
    pair.standby.execute("STOP SLAVE", "SET GLOBAL slave_parallel_workers=2", "START SLAVE")
    pair.master.execute("CREATE DATABASE g", "CREATE TABLE g.t (id INT PRIMARY KEY, v INT)")
    wait_for(lambda: has(pair.standby, "SHOW DATABASES LIKE 'g'"), 60, "the replica has g")
    wait_for(lambda: has(pair.standby, "SHOW TABLES FROM g"), 60, "the replica has g.t")
    with contextlib.closing(pair.standby.connect(autocommit=False)) as lock:
        cursor = lock.cursor()
        cursor.execute("SET SQL_LOG_BIN=0")
        cursor.execute("INSERT INTO f.t VALUES (1, 9)")
        pair.master.execute("INSERT INTO f.t VALUES (1, 0)")
        time.sleep(2.1)  # headers have whole seconds
        pair.master.execute("INSERT INTO g.t VALUES (2, 0)")
        wait_for(lambda: has(pair.standby, "SELECT * FROM g.t"), 60, "the replica has row 2")
        lock.rollback()
    wait_for(lambda: has(pair.standby, "SELECT * FROM f.t"), 60, "the replica has row 1")


def has(server: Server, query: str) -> bool:
    return bool(server.execute(query))


async def ids(destination: LocalDestination, client_id: int, count: int) -> list[int]:
    """The ids of so many rows, acked."""
    found: list[int] = []
    while len(found) < count:
        head = await destination.poll(client_id, 10, 5.0)
        if head.id == EMPTY_BATCH:
            continue
        for batch in Message(head, chunks_of).batches:
            found += [row["after"]["id"] for row in batch.to_pylist() if row["after"]]
        await destination.ack(client_id, head.id, head.epoch)
    return found
