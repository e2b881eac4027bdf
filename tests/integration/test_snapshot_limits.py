"""Snapshots of the widest tables and the longest values that servers have."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ray_canal.errors import ConfigError
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.model.subscription import Subscription
from ray_canal.model.table_event import TRUNCATE
from ray_canal.offline import decode_chunks
from ray_canal.snapshot.key_ranges import FIRST_ROWS
from tests.integration.test_snapshot import images, images_of, rows_of, snapshot_of
from tests.local_destination import run
from tests.servers import Server
from tests.snapshot_runs import CLIENT, Taker, destination_at

INNODB_COLUMNS, MOST_COLUMNS = 1017, 4096
SHORT = ("tinyint", "smallint unsigned", "varchar(3) character set latin1", "date", "bit(9)",
         "decimal(5,2)", "enum('a','b')", "time", "char(2) character set utf8", "year")  # fmt: skip
VALUES = ("-1", "65535", "'é'", "'2026-02-03'", "b'101'", "-1.25", "'b'", "'-10:00:00'", "'x'",
          "2026")  # fmt: skip
MIB = 1 << 20
LONG = 64 * MIB


@pytest.fixture
def limits(server: Server) -> Iterator[Server]:
    with server.with_database("limits"):
        yield server


def test_as_many_columns_as_innodb_has(limits: Server) -> None:
    """A row that is read, in either mode, is the row that was streamed."""
    server, more = limits, range(INNODB_COLUMNS - 1)
    columns = ", ".join(f"c{n} {SHORT[n % len(SHORT)]} null" for n in more)
    values = ", ".join(VALUES[n % len(VALUES)] for n in more)
    nulls = ", ".join(["null"] * len(more))
    server.execute("flush binary logs")
    first = len(server.binlogs()) - 1
    server.execute(
        f"create table limits.t (id int primary key, {columns}) row_format=dynamic",
        f"insert into limits.t values (1, {values}), (2, {nulls}), (3, {values})",
        "flush binary logs",
    )
    streamed = [
        row
        for _, chunk in decode_chunks(server.binlogs()[first:-1])
        for row in images(chunk).get("t", ())
    ]
    read = images_of(server, r"limits\.t")["t"]
    assert [len(row[0]) for row in read] == [INNODB_COLUMNS] * 3
    assert read == streamed
    [by_key] = rows_of(server, r"limits\.t", mode="keyed").values()
    assert by_key == [row[0].as_py() for row in streamed]


def test_as_many_columns_as_a_server_has(limits: Server) -> None:
    """MyISAM takes more of them (where the definition is in a file, as many as fit there); it has
    no read view, so its rows are read by key."""
    server = limits
    count = MOST_COLUMNS if server.kind == "mysql97" else 2500
    columns = ", ".join(f"c{n} tinyint null" for n in range(1, count))
    values = ", ".join(str(n % 100) if n % 3 else "null" for n in range(1, count))
    server.execute(
        f"create table limits.m (id int primary key, {columns}) engine=MyISAM",
        f"insert into limits.m values (7, {values})",
    )
    with pytest.raises(ConfigError, match=r"limits\.m: the engine has no read view"):
        snapshot_of(server, r"limits\.m")
    [[row]] = rows_of(server, r"limits\.m", mode="keyed").values()
    assert list(row.values()) == [7, *(n % 100 if n % 3 else None for n in range(1, count))]


class Digests:
    """Keeps of each row the length and the digest of its value."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, str]] = {}
        self.read = 0

    def take(self, batch: pa.RecordBatch) -> None:
        kinds, images_after = batch.column("event_type").to_pylist(), batch.column("after")
        for kind, row in zip(kinds, images_after, strict=True):
            if kind == TRUNCATE:  # before all rows of one moment
                assert not self.rows
                continue
            value = row["b"].as_py()
            self.rows[row["id"].as_py()] = len(value), hashlib.md5(value).hexdigest()
            self.read += kind == "READ"


def digest(letter: str, size: int) -> tuple[int, str]:
    return size, hashlib.md5(letter.encode() * size).hexdigest()


@pytest.mark.parametrize(
    ("server", "mode"),
    [
        ("mysql97", "keyed"),
        ("mariadb", "consistent"),
        pytest.param("mysql56", "keyed", marks=pytest.mark.soak),  # `make soak-snapshot`
        pytest.param("mysql56", "consistent", marks=pytest.mark.soak),
        pytest.param("mysql97", "consistent", marks=pytest.mark.soak),
        pytest.param("mariadb", "keyed", marks=pytest.mark.soak),
    ],
    indirect=["server"],
)
def test_values_of_64_mib_in_a_log(limits: Server, tmp_path: Path, mode: str) -> None:
    """Beside short rows, with the settings that a destination has by itself: one row is as large
    as all that a snapshot may hold."""
    run(long_values(limits, tmp_path, mode))


async def long_values(server: Server, folder: Path, mode: str) -> None:
    # InnoDB of MySQL 5.6 takes a tenth of its redo log for a value.
    size = 8 * MIB if server.kind == "mysql56" and mode == "consistent" else LONG
    engine = "MyISAM" if server.kind == "mysql56" and size == LONG else "InnoDB"
    expected = {key: digest("s", 10) for key in range(50)}
    shorts = ", ".join(f"({key}, repeat('s', 10))" for key in expected)
    with (
        server.with_global("max_allowed_packet", str(4 * LONG)),
        server.connect(max_allowed_packet=4 * LONG) as connection,
    ):
        cursor = connection.cursor()
        cursor.execute(f"create table limits.l (id int primary key, b longblob) engine={engine}")
        cursor.execute(f"insert into limits.l values {shorts}")
        cursor.execute(f"update limits.l set b = repeat('a', {size}) where id = 20")
        expected[20] = digest("a", size)
        destination = destination_at(server, folder, snapshot={"mode": mode})
        await destination.wait_running(60)
        await destination.subscribe(
            CLIENT, r"limits\..*", wishes=Subscription(snapshot="initial")
        )
        taker = Taker(destination)
        taker.judge = found = Digests()
        ended = await taker.until_ended()
        assert ended["state"] == "done", ended
        assert found.rows == expected
        assert found.read == ended["rows"] == 50
        cursor.execute("update limits.l set b = concat(b, 'c') where id = 20")
        cursor.execute("update limits.l set b = 'd' where id = 3")
        last = digest("d", 1)
        while found.rows[3] != last:
            await taker.take(1.0)
        await destination.stop()
    assert found.rows[20][0] == size + 1


@pytest.mark.parametrize("server", ["mysql97"], indirect=True)
def test_a_value_that_is_too_long_fails_by_name(limits: Server, tmp_path: Path) -> None:
    run(too_long(limits, tmp_path))


async def too_long(server: Server, folder: Path) -> None:
    """The error has table, keys and setting; without that column the snapshot ends."""
    server.execute(
        "create table limits.l (id int primary key, b longblob, v int)",
        f"insert into limits.l values (1, 'x', 1), (2, repeat('x', {2 * MIB}), 2)",
    )
    settings: dict[str, Any] = {"event_bytes_max": MIB, "reconnect_max_s": 0.1}
    destination = destination_at(server, folder, source=settings)
    await destination.wait_running(60)
    await destination.subscribe(CLIENT, r"limits\..*", wishes=Subscription(snapshot="initial"))
    taker = Taker(destination)
    taker.judge = Rows()
    ended = await taker.until_ended()
    assert ended["state"] == "failed"
    assert re.search(r"limits\.l: a row with \(+`id` <= 2\)", ended["error"])
    assert "source.event_bytes_max" in ended["error"]
    await destination.api.snapshot(CLIENT, "start", (SnapshotWish(columns=("v",)),))
    ended = await taker.until_ended()
    assert ended["state"] == "done", ended
    assert taker.judge.rows == {1: {"id": 1, "v": 1}, 2: {"id": 2, "v": 2}}
    await destination.stop()


class Rows:
    """Keeps rows by key."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}

    def take(self, batch: pa.RecordBatch) -> None:
        for row in batch.column("after").to_pylist():
            self.rows[row["id"]] = row


def test_rows_that_are_longer_than_the_server_says(mysql97: Server, tmp_path: Path) -> None:
    """Its statistics are of when the table was empty: what waits for acks is limited all the same.
    (By them, the table is one chunk.)"""
    server, rows = mysql97, 4000
    server.execute(
        "drop database if exists limits", "create database limits",
        "create table limits.long_rows (id int primary key, b varchar(9000) character set latin1) "
        "stats_persistent=1, stats_auto_recalc=0",
        "analyze table limits.long_rows",
        "insert into limits.long_rows with recursive n(id) as (select 1 union all select id + 1 "
        f"from n where id < 1000) select id, repeat('x', 8000) from n where id <= {rows // 4}",
        *(f"insert into limits.long_rows select id + {k * 1000}, b from limits.long_rows where id "
          f"<= 1000" for k in (1, 2, 3)),
    )  # fmt: skip

    async def work() -> None:
        destination = destination_at(
            server, tmp_path, snapshot={"readers": 1, "chunk_bytes": MIB, "bytes": MIB}
        )
        try:
            await destination.wait_running(60)
            await destination.subscribe(
                CLIENT, r"limits\..*", wishes=Subscription(snapshot="initial")
            )
            taker = Taker(destination)
            while "ack" not in ((await taker.state())["waits_for"] or ""):
                await asyncio.sleep(0.05)
            held = (await taker.state())["bytes_unacked"]
            assert MIB <= held < 1.5 * FIRST_ROWS * 8000
        finally:
            await destination.stop()

    run(work())
    server.execute("drop database limits")
