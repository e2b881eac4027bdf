"""Snapshots that rows of a signal table start, and rows that are read from a replica."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ray_canal.config import load
from ray_canal.errors import ConfigError
from ray_canal.model.snapshot_marks import MARK_BEGIN
from ray_canal.model.subscription import Subscription
from tests.integration.test_failover import replicating
from tests.integration.test_snapshot_keyed import CREATE, Writers, held_now
from tests.local_destination import run
from tests.servers import Server
from tests.snapshot_runs import CLIENT, Taker, destination_at

TABLES = r"keyed\..*"
SIGNALS = "keyed.signals"
CREATE_SIGNALS = f"create table {SIGNALS} (id varchar(42) primary key, type varchar(32), data text)"


def say(server: Server, name: str, kind: str, **data: Any) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        values = [name, kind, json.dumps(data)]
        cursor.execute(f"insert into {SIGNALS} values (%s, %s, %s)", values)


def test_signals_start_and_end_snapshots_once(
    mysql97: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mysql97.execute(
        "drop database if exists keyed", "create database keyed", *CREATE, CREATE_SIGNALS,
        f"insert into keyed.n values {', '.join(f'({k}, {k})' for k in range(500))}",
    )  # fmt: skip
    with caplog.at_level(logging.WARNING):
        run(signalled(mysql97, tmp_path))
    assert "a signal of keyed.signals is not done: signal s0: type 'nonsense'" in caplog.text
    mysql97.execute("drop database keyed")


async def signalled(server: Server, folder: Path) -> None:
    settings = {"signal_table": SIGNALS}
    destination = destination_at(server, folder, snapshot=settings)
    await destination.wait_running(60)
    taker, other = Taker(destination), Taker(destination, client_id=2)
    for each in (taker, other):
        await destination.subscribe(each.client_id, TABLES, wishes=Subscription(start="tail"))
    say(server, "s0", "nonsense")
    conditions = [{"data-collection": "keyed.n", "filter": "v % 2 = 0"}]
    say(
        server, "s1", "execute-snapshot", client_id=CLIENT,
        **{"data-collections": ["keyed.n"], "additional-conditions": conditions},
    )  # fmt: skip
    while not taker.marks:
        assert await taker.take(10.0)
    assert (await taker.until_ended())["id"] == "s1"
    await taker.drain(0.5)
    assert taker.judge.rows["n"] == {(k,): k for k in range(0, 500, 2)}
    say(server, "s2", "execute-snapshot", **{"data-collections": ["keyed.n"]})
    for each in (taker, other):
        each.judge.repeats = True
        while not any(mark.snapshot == "s2" for mark in each.marks):
            assert await each.take(10.0)
        assert (await each.until_ended())["state"] == "done"
        await each.drain(0.5)
        assert each.judge.rows["n"] == held_now(server)["n"]
    await destination.stop()

    # The log is read again from the oldest cursor on, and its signals with it.
    behind = destination_at(server, folder, snapshot=settings)
    await behind.wait_running(60)
    await behind.api.operate(2, "seek", "earliest")
    taker.destination = behind
    count = len(taker.marks)
    say(server, "s3", "stop-snapshot", client_id=CLIENT)  # it has ended: nothing to do
    await taker.drain(0.5)
    await asyncio.sleep(0.5)
    assert ((await taker.state())["id"], len(taker.marks)) == ("s2", count)
    await behind.stop()


def test_a_signal_table_that_is_left_out_is_refused() -> None:
    source = {"address": "127.0.0.1:3306", "username": "root"}
    one = {
        "destination": "x", "source": source, "filter": {"tables": r"shop\..*"},
        "snapshot": {"signal_table": "ops.signals"},
    }  # fmt: skip
    with pytest.raises(ConfigError, match="leaves its rows out"):
        load({"instance": [one]})


@pytest.mark.soak  # two servers
def test_rows_are_read_from_a_replica_that_lags(tmp_path: Path) -> None:
    with replicating("mysql97", tmp_path / "servers") as pair:
        run(from_a_replica(pair.master, pair.standby, tmp_path))


async def from_a_replica(source: Server, replica: Server, folder: Path) -> None:
    replica.execute("stop replica sql_thread")  # it has not even the tables
    source.execute(
        "create database keyed", *CREATE,
        f"insert into keyed.n values {', '.join(f'({k}, {k})' for k in range(200, 6000))}",
        "analyze table keyed.n",
    )  # fmt: skip
    small = {"chunk_bytes": 65536, "readers": 2, "address": replica.address, "rows_per_s": 2000}
    destination = destination_at(source, folder, snapshot=small)
    await destination.wait_running(60)
    taker = Taker(destination)
    with Writers(source, 3, seed=11).running():
        wishes = Subscription(snapshot="initial")
        await destination.subscribe(CLIENT, TABLES, wishes=wishes)
        for _ in range(10):
            await taker.take(0.2)
        assert taker.judge.read == 0  # it waits until the replica has what the log began with
        assert (await taker.state())["waits_for"]
        replica.execute("start replica sql_thread")
        while taker.judge.read < 1000:
            await taker.take(0.2)
        replica.execute("stop replica sql_thread")
        await asyncio.sleep(1.0)
        replica.execute("start replica sql_thread")
        ended = await taker.until_ended()
    await taker.drain()
    await destination.stop()
    assert ended["state"] == "done", ended
    assert taker.judge.rows == held_now(source)
    assert [mark.kind for mark in taker.marks].count(MARK_BEGIN) == 1
    [[_, prepared]] = source.execute("show global status like 'Com_stmt_prepare'")
    assert prepared == "0"
