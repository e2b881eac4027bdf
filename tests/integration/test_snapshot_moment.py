"""All rows of one moment in a subscriber's log, then the changes, beside writers: each table is a
bag of rows, so a row that lacks or comes twice is seen in tables without a key, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pymysql
import pytest
from pymysql.constants import ER

from ray_canal.destination.records.timeline_record import TimelineRecord
from ray_canal.errors import ConfigError
from ray_canal.model.snapshot_marks import MARK_BEGIN, MARK_END
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.model.subscription import Subscription
from tests.integration.test_snapshot_keyed import Writers
from tests.local_destination import run
from tests.servers import Server
from tests.snapshot_runs import CLIENT, Bags, Taker, destination_at
from tests.snapshot_torture import kill_connections

TABLES = ("bag", "maybe", "keyed")
CREATE = (
    "create table moment.bag (v int, t varchar(1000) character set latin1)",
    "create table moment.maybe (k int null, v int, unique key (k))",
    "create table moment.keyed (k int primary key, v int)",
)
ROWS = 10_000
"""Of about 1 kB: more than is read ahead."""
INITIAL = Subscription(snapshot="initial")
MOMENT = {"mode": "consistent", "may_lock": True, "readers": 2}


def bags_now(server: Server) -> dict[str, Counter[Any]]:
    return {
        name: Counter(tuple(row) for row in server.execute(f"select * from moment.{name}"))
        for name in TABLES
    }


def statement(r: random.Random) -> str:
    k, v = r.randrange(300), r.randrange(1 << 20)
    null_or_k = r.choice(("null", str(k)))
    return r.choice((
        f"insert into moment.bag values ({v % 7}, 'x'), ({v % 7}, 'x')",
        f"update moment.bag set t = 'y' where v = {v % 7} limit 3",
        f"delete from moment.bag where v = {v % 7} limit 2",
        f"replace into moment.maybe values ({null_or_k}, {v})",
        f"update moment.maybe set v = {v}, k = {null_or_k} where k = {k}",
        "delete from moment.maybe where k is null limit 2",
        f"replace into moment.keyed (k, v) values ({k}, {v})",
        f"update moment.keyed set k = {k + 300} where k = {k}",
        f"delete from moment.keyed where k = {k}",
    ))


@pytest.fixture
def moment(server: Server, tmp_path: Path) -> Iterator[Path]:
    server.execute("drop database if exists moment", "create database moment", *CREATE)
    rows = ", ".join(f"({number % 9}, '{'z' * 990}')" for number in range(ROWS // 4))
    server.execute(
        f"insert into moment.bag values {rows}",
        *["insert into moment.bag select * from moment.bag"] * 2,
        "analyze table moment.bag",
        "insert into moment.maybe values (null, 1), (null, 1), (3, 1)",
        f"insert into moment.keyed values {', '.join(f'({k}, {k})' for k in range(900, 1200))}",
    )
    yield tmp_path
    server.execute("set session lock_wait_timeout=5", "drop database moment")


def test_rows_asked_for_beside_writers_are_of_one_moment(server: Server, moment: Path) -> None:
    run(beside_writers(server, moment))


async def beside_writers(server: Server, folder: Path) -> None:
    destination = destination_at(server, folder, snapshot=MOMENT)
    await destination.wait_running(60)
    taker, other = Taker(destination), Taker(destination, client_id=2)
    taker.judge = bags = Bags(TABLES)
    other.judge = Bags(TABLES)
    await destination.subscribe(2, r"moment\.none", wishes=Subscription(start="tail"))
    with server.with_global("sync_binlog", "1"), Writers(server, 3, 5, statement).running():
        await destination.subscribe(CLIENT, r"moment\..*", wishes=INITIAL)
        ended = await taker.until_ended()
        for _ in range(5):
            await taker.take(1.0)
    await taker.drain()
    assert ended["state"] == "done", ended
    assert {k: +v for k, v in bags.rows.items()} == bags_now(server)
    assert ended["rows"] == bags.read > ROWS
    assert [mark.kind for mark in taker.marks] == [MARK_BEGIN, MARK_END]
    assert {mark.mode for mark in taker.marks} == {"consistent"}
    assert len({(mark.journal_name, mark.position) for mark in taker.marks}) == 1
    assert taker.ids == sorted(taker.ids)
    await other.drain(0.1)
    assert other.judge.read == 0
    await destination.stop()


SOAK = [pytest.param(name, marks=pytest.mark.soak) for name in ("mysql56", "mariadb")]
ONE = pytest.mark.parametrize("server", ["mysql97"], indirect=True)


@pytest.mark.parametrize("server", ["mysql97", *SOAK], indirect=True)
def test_what_was_asked_for_begins_again_when_it_is_killed(server: Server, moment: Path) -> None:
    run(killed(server, moment))


async def killed(server: Server, folder: Path) -> None:
    """A restart, lost connections, a table that is emptied and one that is altered: each after some
    acked rows. The moment is another one each time, and what came is void."""
    slow = {**MOMENT, "rows_per_s": 4000, "readers": 1, "bytes": 1 << 20}
    destination = destination_at(server, folder, snapshot=slow)
    await destination.wait_running(60)
    await destination.subscribe(CLIENT, r"moment\..*", wishes=INITIAL)
    taker, bags = Taker(destination), Bags(TABLES)
    taker.judge = bags
    with Writers(server, 2, 9, statement).running():
        for what in ("restart", "kill", "truncate", "alter"):
            read = bags.read
            while bags.read == read:
                await taker.take(0.5, size=4)
            assert (await taker.state())["state"] == "running"
            if what == "restart":
                await taker.take(0.5, size=4, ack=False)
                await destination.stop()
                bags.void = set(TABLES)
                destination = destination_at(server, folder, snapshot=slow)
                await destination.wait_running(60)
                await destination.subscribe(CLIENT, r"moment\..*")
                taker.destination = destination
            elif what == "kill":
                kill_connections(server)
            else:
                ddl = {"truncate": "truncate table", "alter": "alter table"}[what]
                more = " add w int" if what == "alter" else ""
                await asyncio.to_thread(changed, server, f"{ddl} moment.keyed{more}")
        ended = await taker.until_ended()
    await taker.drain()
    await destination.stop()
    assert ended["state"] == "done", ended
    assert {k: +v for k, v in bags.rows.items()} == bags_now(server)
    begins = [mark for mark in taker.marks if mark.kind == MARK_BEGIN]
    assert len(begins) >= 3
    assert taker.marks[-1].kind == MARK_END
    assert bags.emptied >= 3 * len(begins)


def changed(server: Server, statement: str) -> None:
    """Run DDL of a table that is not read yet. Where the reader was faster, it would wait for the
    end of the snapshot, which waits for acks here: then the reader is cut off, and begins again."""
    while True:
        try:
            server.execute("set session lock_wait_timeout=1", statement)
            return
        except pymysql.err.OperationalError as error:
            if error.args[0] != ER.LOCK_WAIT_TIMEOUT:
                raise
            kill_connections(server)


@pytest.mark.parametrize("server", ["mysql97", "mariadb"], indirect=True)
def test_its_place_is_one_of_the_log_that_was_read(server: Server, moment: Path) -> None:
    """A1, A6: the file may be newer than all that the destination's log has read, and a server that
    is put back to an older copy makes another file of its name."""
    run(place_of_rows(server, moment))


async def place_of_rows(server: Server, folder: Path) -> None:
    destination = destination_at(server, folder, snapshot=MOMENT)
    await destination.wait_running(60)
    noted: list[Any] = []
    reach = TimelineRecord.reach

    async def noting(self: TimelineRecord, *of: Any, is_own: bool = True) -> None:
        await reach(self, *of, is_own=is_own)
        noted.append((self.reached, is_own))

    server.execute("flush binary logs")
    with mock.patch.object(TimelineRecord, "reach", noting):
        await destination.subscribe(CLIENT, r"moment\..*", wishes=INITIAL)
        taker = Taker(destination)
        await taker.until_ended()
    cursor = destination.state.subscribers.get(CLIENT).cursor
    assert cursor is not None
    place = cursor.position
    assert place.created_s > 0
    assert ((place.journal_name, place.created_s), False) in noted
    await destination.stop()


@ONE
def test_asked_for_by_one_that_is_subscribed_and_cancelled(server: Server, moment: Path) -> None:
    run(asked_for(server, moment))


async def asked_for(server: Server, folder: Path) -> None:
    slow = {"rows_per_s": 3000, "readers": 1, "bytes": 1 << 20}
    destination = destination_at(server, folder, snapshot=slow)
    await destination.wait_running(60)
    await destination.subscribe(CLIENT, r"moment\..*", wishes=Subscription(start="tail"))
    taker, bags, api = Taker(destination), Bags(TABLES), destination.api
    taker.judge = bags
    with pytest.raises(ConfigError, match="expected"):
        await api.snapshot(CLIENT, "start", (), "", "quick")
    await api.snapshot(CLIENT, "start", (), "", "keyed")
    failed = await taker.until_ended()
    assert "moment.bag" in failed["error"]
    assert "--mode consistent" in failed["error"]
    part = (SnapshotWish(r"moment\.bag"),)
    await api.snapshot(CLIENT, "start", part, "", "consistent")
    failed = await taker.until_ended()
    assert failed["error"].startswith("ConfigError: moment.keyed, moment.maybe: the subscriber")

    await api.snapshot(CLIENT, "start", (), "", "consistent")
    while not bags.read:
        await taker.take(0.5, size=4)
    with pytest.raises(ConfigError, match="is of one moment"):
        await api.snapshot(CLIENT, "pause")
    await api.snapshot(CLIENT, "cancel")
    server.execute("insert into moment.bag values (77, 'new')")
    while not bags.rows["bag"][77, "new"]:
        await taker.take(5.0)
    assert bags.read < ROWS

    halves = (SnapshotWish(r"moment\.bag", "v = 4", ("v",)), SnapshotWish())
    await api.snapshot(CLIENT, "start", halves, "", "consistent")
    ended = await taker.until_ended()
    assert ended["state"] == "done", ended
    held = bags_now(server)
    assert bags.rows["bag"] == {(4,): sum(n for row, n in held["bag"].items() if row[0] == 4)}
    assert bags.rows["keyed"] == held["keyed"]
    server.execute("insert into moment.maybe values (null, 5)")
    while not bags.rows["maybe"][None, 5]:
        await taker.take(5.0)
    await destination.stop()


@pytest.mark.soak  # `make soak-snapshot`
@ONE
def test_what_it_refuses(server: Server, moment: Path) -> None:
    run(refused(server, moment))


async def refused(server: Server, folder: Path) -> None:
    """Each time the subscriber gets its changes all the same."""
    for number, (settings, why) in enumerate((
        ({"address": server.address}, "snapshot.address"),
        ({"history_max": 1}, "snapshot.history_max is 1"),
    )):
        each = folder / str(number)
        each.mkdir()
        destination = destination_at(server, each, snapshot={**MOMENT, **settings})
        await destination.wait_running(60)
        taker = Taker(destination)
        taker.judge = bags = Bags(TABLES)
        bags.void = {"keyed"}
        with old_view(server):
            await destination.subscribe(CLIENT, r"moment\..*", wishes=INITIAL)
            ended = await taker.until_ended()
        assert ended["state"] == "failed"
        assert why in ended["error"]
        server.execute("insert into moment.bag values (78, 'new')")
        while not bags.rows["bag"][78, "new"]:
            assert await taker.take(10.0)
        await destination.stop()


class ReadRows:
    """Keeps the rows that were read, by key."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}

    def take(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            if row["event_type"] == "READ":
                self.rows[row["after"]["k"]] = row["after"]["v"]


@ONE
def test_what_was_asked_for_is_void_next_to_partial_images(server: Server, moment: Path) -> None:
    run(partial_images(server, moment))


async def partial_images(server: Server, folder: Path) -> None:
    """In mode keyed: a session writes images that lack columns, of a row that is not read yet. It
    is read again, whole, rather than left out for a change that is not."""
    rows = ", ".join(f"({k}, {k})" for k in range(2000, 8000))
    server.execute(f"insert into moment.keyed values {rows}", "analyze table moment.keyed")
    slow = {"chunk_bytes": 65536, "readers": 1, "rows_per_s": 2000}
    destination = destination_at(server, folder, snapshot=slow)
    await destination.wait_running(60)
    await destination.subscribe(CLIENT, r"moment\.keyed", wishes=INITIAL)
    taker = Taker(destination)
    taker.judge = read = ReadRows()
    while not read.rows:
        await taker.take(0.5)
    assert 7999 not in read.rows
    server.execute(
        "set session binlog_row_image = 'MINIMAL'", "update moment.keyed set v = 5 where k = 7999"
    )
    ended = await taker.until_ended()
    await destination.stop()
    assert ended["state"] == "done", ended
    assert len([mark for mark in taker.marks if mark.kind == MARK_BEGIN]) == 2
    assert read.rows == dict(server.execute("select k, v from moment.keyed"))


@contextlib.contextmanager
def old_view(server: Server) -> Iterator[None]:
    """Something that keeps old versions of rows."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("start transaction with consistent snapshot")
        for number in range(5):
            server.execute(f"update moment.keyed set v = {number} where k = 900")
        yield
