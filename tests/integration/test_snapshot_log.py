"""Rows that tables hold, in a subscriber's log, beside writers, on real servers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ray_canal.errors import (
    ConfigError,
    InstanceNotRunning,
    PositionNotFound,
    PositionPurged,
    TransactionsMissing,
)
from ray_canal.model.snapshot_marks import MARK_BEGIN, MARK_END
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.model.subscription import Subscription
from tests.integration.test_snapshot_keyed import CREATE, KEYS, Judge, Writers, held_now, keyed
from tests.local_destination import run
from tests.servers import Server, start
from tests.snapshot_runs import CLIENT, Taker, destination_at

__all__ = ["keyed"]
pytestmark = pytest.mark.soak  # `make soak-snapshot`
TABLES = r"keyed\..*"
ROWS = 20_000
"""Some seconds of reading, for what has to come in the midst of it."""
RANGE = 3_000
"""Rows of a range of 64 KiB at most, by InnoDB's mean length of a row."""
INITIAL = Subscription(snapshot="initial")
ONE = pytest.mark.parametrize("server", ["mysql97"], indirect=True)
"""The others run in test_snapshot_torture.py."""


def fill(server: Server) -> None:
    """Many rows, whose mean length the server knows: else all could be one range."""
    rows = ", ".join(f"({number}, {number})" for number in range(1000, 1000 + ROWS))
    server.execute(f"insert into keyed.n values {rows}", "analyze table keyed.n")


def test_a_new_subscriber_gets_rows_and_changes(server: Server, keyed: Path) -> None:
    run(beside_writers(server, keyed.parent))


async def beside_writers(server: Server, folder: Path) -> None:
    destination = destination_at(server, folder)
    await destination.wait_running(60)
    taker, other = Taker(destination), Taker(destination, client_id=2)
    await destination.subscribe(2, TABLES, wishes=Subscription(start="tail"))
    with server.with_global("sync_binlog", "1"), Writers(server, 3, seed=5).running():
        await destination.subscribe(CLIENT, TABLES, wishes=INITIAL)
        ended = await taker.until_ended()
    await taker.drain()
    await other.drain()
    await destination.stop()
    assert ended["state"] == "done", ended
    assert taker.judge.rows == held_now(server)
    assert taker.judge.read > 20
    assert ended["rows"] == taker.judge.read
    *begun, ended_by = [mark.kind for mark in taker.marks]
    assert ended_by == MARK_END
    assert set(begun) == {MARK_BEGIN}  # an attempt that is given up begins again
    assert set(taker.marks[0].tables) == {f"keyed.{name}" for name in ("n", "c", "u")}
    assert taker.ids == sorted(taker.ids)
    assert other.judge.read == 0
    assert other.marks == []


def test_without_gtids_what_was_written_long_enough_ago_shows(tmp_path: Path) -> None:
    options = {"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"}
    with start("mysql56", tmp_path / "server", options) as server:
        server.execute(
            "create database keyed", *CREATE,
            f"insert into keyed.n values {', '.join(f'({k}, {k})' for k in range(1000, 2000))}",
        )  # fmt: skip
        run(without_gtids(server, tmp_path))


async def without_gtids(server: Server, folder: Path) -> None:
    destination = destination_at(server, folder, snapshot={"chunk_bytes": 65536, "readers": 1})
    await destination.wait_running(60)
    taker = Taker(destination)
    with Writers(server, 3, seed=8).running():
        await destination.subscribe(CLIENT, TABLES, wishes=INITIAL)
        ended = await taker.until_ended()
    await taker.drain()
    await destination.stop()
    assert ended["state"] == "done", ended
    assert taker.judge.rows == held_now(server)
    assert taker.judge.read >= 1000


def test_a_seek_begins_it_again(mysql97: Server, tmp_path: Path) -> None:
    run(sought(mysql97, tmp_path))


async def sought(server: Server, folder: Path) -> None:
    """Changes that the seek leaves out are of rows that were read and acked."""
    server.execute("drop database if exists keyed", "create database keyed", *CREATE)
    fill(server)
    small = {"chunk_bytes": 65536, "readers": 1, "rows_per_s": 9000}
    destination = destination_at(server, folder, snapshot=small)
    await destination.wait_running(60)
    await destination.subscribe(CLIENT, TABLES, wishes=INITIAL)
    taker = Taker(destination)
    while taker.judge.read < RANGE:
        await taker.take(0.5)
    assert (await taker.state())["rows"] >= RANGE
    server.execute("update keyed.n set v = -1 where id < 1100")
    await destination.api.operate(CLIENT, "pause")
    await asyncio.sleep(0.5)  # the destination has read it
    await destination.api.operate(CLIENT, "seek", "tail")
    await destination.api.operate(CLIENT, "resume")
    taker.judge = Judge(KEYS)
    ended = await taker.until_ended()
    await taker.drain()
    await destination.stop()
    assert ended["state"] == "done", ended
    assert taker.judge.rows == held_now(server)
    server.execute("drop database keyed")


@ONE
def test_an_idle_server_and_empty_tables(server: Server, keyed: Path) -> None:
    run(idle(server, keyed.parent))


async def idle(server: Server, folder: Path) -> None:
    server.execute("truncate table keyed.u", "flush binary logs")
    destination = destination_at(server, folder, snapshot={"chunk_bytes": 65536, "readers": 1})
    await destination.wait_running(60)
    server.execute("flush binary logs")  # it has no transaction until the snapshot has ended
    while (await destination.status())["fetched"].journal_name != server.position()[0]:
        await asyncio.sleep(0.02)
    taker = Taker(destination)
    await destination.subscribe(CLIENT, TABLES, wishes=INITIAL)
    ended = await taker.until_ended()
    await destination.stop()
    assert ended["state"] == "done", ended
    assert (ended["tables"], ended["tables_done"]) == (3, 3)
    assert taker.judge.rows == held_now(server)


@ONE
def test_it_goes_on_in_the_midst_of_a_table(server: Server, keyed: Path) -> None:
    run(goes_on(server, keyed.parent))


async def goes_on(server: Server, folder: Path) -> None:
    """Restarts, each after some acked messages and one that is not acked. What comes again is that
    message, and of the range before it what was acked."""
    fill(server)
    small = {"chunk_bytes": 65536, "readers": 2, "bytes": 1 << 20}
    acked, judge, again = [0], None, 0
    with Writers(server, 2, seed=9).running():
        for life in range(4):
            destination = destination_at(server, folder, snapshot=small)
            await destination.wait_running(60)
            taker = Taker(destination)
            if judge is not None:
                taker.judge = judge
            judge = taker.judge
            await destination.subscribe(CLIENT, TABLES, wishes=INITIAL)
            if life == 3:
                ended = await taker.until_ended()
                assert ended["state"] == "done", ended
                break
            while (await taker.state())["rows"] <= acked[-1] + 300:
                await taker.take(0.5, size=4)
            acked.append((await taker.state())["rows"])
            read = judge.read
            while judge.read == read:  # there may have been other rows than the snapshot's
                await taker.take(0.5, size=4, ack=False)
            again += judge.read - read + RANGE
            judge.repeats = True
            await destination.stop()
    assert judge is not None
    await taker.drain()
    await destination.stop()
    assert judge.rows == held_now(server)
    assert acked == sorted(set(acked))
    assert ROWS <= ended["rows"] < judge.read <= ended["rows"] + again
    assert again < ROWS


@ONE
def test_asked_for_by_tables_conditions_and_columns(server: Server, keyed: Path) -> None:
    run(asked_for(server, keyed.parent))


async def asked_for(server: Server, folder: Path) -> None:
    destination = destination_at(server, folder)
    await destination.wait_running(60)
    await destination.subscribe(CLIENT, TABLES, wishes=Subscription(start="tail"))
    taker = Taker(destination)
    wishes = (SnapshotWish(r"keyed\.n", "v % 2 = 0"), SnapshotWish(r"keyed\.c", "", ("v",)))
    begun = await destination.api.snapshot(CLIENT, "start", wishes, "mine")
    assert begun["state"] == "running"
    assert (await destination.api.snapshot(CLIENT, "start", wishes, "mine"))["id"] == "mine"
    with pytest.raises(ConfigError, match="which is running"):
        await destination.api.snapshot(CLIENT, "start")
    ended = await taker.until_ended()
    held = held_now(server)
    assert ended["state"] == "done", ended
    assert taker.judge.rows["n"] == {k: v for k, v in held["n"].items() if v % 2 == 0}
    assert taker.judge.rows["c"] == held["c"]
    assert taker.judge.rows["u"] == {}
    with pytest.raises(ConfigError, match="is done: start another one"):
        await destination.api.snapshot(CLIENT, "resume")

    await destination.api.snapshot(CLIENT, "start", (SnapshotWish(r"keyed\.none"),))
    failed = await taker.until_ended()
    assert failed["state"] == "failed"
    assert "no table to read matches" in failed["error"]
    await destination.api.snapshot(CLIENT, "cancel")
    assert (await taker.state())["state"] == "cancelled"
    await destination.stop()


def test_pause_resume_cancel(mysql97: Server, tmp_path: Path) -> None:
    run(paused(mysql97, tmp_path))


async def paused(server: Server, folder: Path) -> None:
    server.execute("drop database if exists keyed", "create database keyed", *CREATE)
    fill(server)
    destination = destination_at(
        server, folder, snapshot={"chunk_bytes": 65536, "readers": 1, "rows_per_s": 3000}
    )
    await destination.wait_running(60)
    await destination.subscribe(CLIENT, TABLES, wishes=INITIAL)
    taker = Taker(destination)
    while not (await taker.state())["rows"]:
        await taker.take(0.5)
    await destination.api.snapshot(CLIENT, "pause")
    await taker.drain()
    held = taker.judge.read
    assert held < ROWS
    assert not await taker.take(1.0)
    assert (await taker.state())["state"] == "paused"
    await destination.api.snapshot(CLIENT, "resume")
    while taker.judge.read == held:
        await taker.take(0.5)
    await destination.api.snapshot(CLIENT, "cancel")
    await taker.drain()
    assert (await taker.state())["state"] == "cancelled"
    server.execute("insert into keyed.n values (-1, 7)")  # streaming goes on
    while (-1,) not in taker.judge.rows["n"]:
        assert await taker.take(10.0)
    await destination.stop()
    server.execute("drop database keyed")


@ONE
def test_ddl_of_a_table_that_is_read(server: Server, keyed: Path) -> None:
    run(altered(server, keyed.parent))


async def altered(server: Server, folder: Path) -> None:
    fill(server)
    small = {"chunk_bytes": 65536, "readers": 1, "bytes": 1 << 20, "rows_per_s": 3000}
    destination = destination_at(server, folder, snapshot=small)
    await destination.wait_running(60)
    await destination.subscribe(CLIENT, r"keyed\.n", wishes=INITIAL)
    taker = Taker(destination)
    while (await taker.state())["rows"] < 300:
        await taker.take(0.5, size=16)
    server.execute("alter table keyed.n add column w int default 5")
    before = (await taker.state())["rows"]
    assert before < ROWS // 2
    server.execute("insert into keyed.n values (-5000, 1, 2)")
    ended = await taker.until_ended()
    assert ended["state"] == "done", ended
    assert ended["rows"] > before
    await taker.drain()
    assert taker.judge.rows["n"] == held_now(server)["n"]
    assert len([mark for mark in taker.marks if mark.kind == MARK_BEGIN]) > 1

    server.execute(
        "create table keyed.m like keyed.n", "insert into keyed.m values (1, 11, 0), (2, 22, 0)"
    )
    await destination.api.snapshot(CLIENT, "start")
    while (await taker.state())["rows"] < 300:
        await taker.take(0.5, size=16)
    server.execute("rename table keyed.n to keyed.old, keyed.m to keyed.n")
    ended = await taker.until_ended()
    await destination.stop()
    assert ended["state"] == "done", ended
    assert ended["rows"] == 2
    assert taker.judge.rows["n"] == {(1,): 11, (2,): 22}


def test_a_purged_place_is_answered_by_a_snapshot(mysql97: Server, tmp_path: Path) -> None:
    run(purged(mysql97, tmp_path))


async def purged(server: Server, folder: Path) -> None:
    server.execute(
        "drop database if exists keyed", "create database keyed", *CREATE,
        "insert into keyed.n values (1, 1), (2, 2)",
    )  # fmt: skip
    config = {"source": {"on_purged": "snapshot", "on_reset": "snapshot"}}
    destination = destination_at(server, folder, **config)
    await destination.wait_running(60)
    await destination.subscribe(CLIENT, TABLES, wishes=Subscription(start="tail"))
    taker = Taker(destination)
    server.execute("insert into keyed.n values (3, 3)")
    while (3,) not in taker.judge.rows["n"]:
        assert await taker.take(10.0)
    await destination.stop()
    server.execute("update keyed.n set v = 30 where id = 3", "flush binary logs")
    server.execute("insert into keyed.n values (4, 4)", "flush binary logs")
    newest = server.position()[0]
    server.execute(f"purge binary logs to '{newest}'", "insert into keyed.n values (5, 5)")

    taker.judge.repeats = True
    for gap in ("purged from mysql-bin.", "another log than that of mysql-bin."):
        taker.marks.clear()
        taker.destination = destination = destination_at(server, folder, **config)
        while not taker.marks or taker.marks[-1].kind != MARK_END:
            try:
                await taker.take(0.5)
            except (PositionPurged, PositionNotFound, TransactionsMissing, InstanceNotRunning):
                await asyncio.sleep(0.05)  # else it would be asked without a pause
        await destination.stop()
        assert taker.judge.rows["n"] == held_now(server)["n"]
        assert taker.marks[0].reason.startswith(gap)
        assert taker.marks[-1].state == "done"
        server.execute("update keyed.n set v = 40 where id = 4", "reset binary logs and gtids")
        server.execute("replace into keyed.n values (6, 6)")
    server.execute("drop database keyed")
