"""Rows that a transaction has changed which is not committed yet when they are read, or never is:
XA between PREPARE and its end, and what a log has with a ROLLBACK."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from ray_canal.errors import ConnectionLost, PrivilegeMissing
from ray_canal.model.subscription import Subscription
from ray_canal.snapshot import commits
from ray_canal.snapshot.prepared import PreparedTransactions
from ray_canal.snapshot.read import read_snapshot
from ray_canal.snapshot.result import ResultReader
from ray_canal.snapshot.unplaced_rows import UnplacedRows
from tests.integration.test_mirror_xa import prepare
from tests.integration.test_snapshot import config_of, rows_of
from tests.local_destination import run
from tests.servers import Server
from tests.snapshot_runs import CLIENT, Taker, destination_at

FROM_80 = pytest.mark.parametrize("server", ["mysql97"], indirect=True)
XA_ID = r"'\xff\'a', 'b'"
"""With bytes that are no text."""


@pytest.fixture
def prepared(server: Server) -> Iterator[Server]:
    server.execute(
        "drop database if exists prepared", "create database prepared",
        "create table prepared.t (id int primary key, v int)",
        "insert into prepared.t values (1, 0), (2, 0)",
    )  # fmt: skip
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"xa start {XA_ID}")
        cursor.execute("update prepared.t set v = 1 where id = 1")
        cursor.execute(f"xa end {XA_ID}")
        cursor.execute(f"xa prepare {XA_ID}")
    yield server
    server.execute("drop database prepared")


@pytest.mark.parametrize("mode", ["consistent", "keyed"])
@pytest.mark.parametrize("server", ["mysql97", "mariadb"], indirect=True)
def test_what_is_prepared_is_waited_for(prepared: Server, mode: str) -> None:
    """Its rows are in the log already, before all that a snapshot's changes begin with."""
    ending = threading.Timer(0.5, prepared.execute, (f"xa commit {XA_ID}",))
    ending.start()
    [found] = rows_of(prepared, r"prepared\.t", mode=mode).values()
    ending.join()
    assert found == [{"id": 1, "v": 1}, {"id": 2, "v": 0}]


@FROM_80
@pytest.mark.parametrize("mode", ["consistent", "keyed"])
def test_who_may_not_see_what_is_prepared(prepared: Server, mode: str) -> None:
    prepared.execute(
        "create user nobody@'%' identified by ''",
        "grant replication slave, replication client, select on *.* to nobody@'%'",
    )
    try:
        config = config_of(prepared, username="nobody")
        with pytest.raises(PrivilegeMissing, match=r"run: GRANT XA_RECOVER_ADMIN ON \*\.\* TO"):
            read_snapshot(config, "snap", tables=r"prepared\.t", mode=mode)
    finally:
        prepared.execute("drop user nobody@'%'", f"xa rollback {XA_ID}")


class Last:
    """What a subscriber has last heard of each row, and in which kind of event."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[str, int]] = {}

    def take(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            self.rows[row["after"]["id"]] = row["event_type"], row["after"]["v"]


def read_by_a_function(server: Server, folder: Path) -> dict[int, tuple[str, int]]:
    found = Last()
    with read_snapshot(config_of(server), "snap", tables=r"meantime\.t", mode="keyed") as snapshot:
        for batch in snapshot:
            found.take(batch)
    return found.rows


def read_by_a_subscriber(server: Server, folder: Path) -> dict[int, tuple[str, int]]:
    found = Last()

    async def take() -> None:
        destination = destination_at(server, folder, snapshot={"readers": 1})
        await destination.wait_running(60)
        taker = Taker(destination)
        taker.judge = cast(Any, found)
        await destination.subscribe(CLIENT, r"meantime\.t", wishes=Subscription(snapshot="initial"))
        ended = await taker.until_ended()
        assert ended["state"] == "done", ended
        await destination.stop()

    run(take())
    return found.rows


READ = pytest.mark.parametrize("read", [read_by_a_function, read_by_a_subscriber])


class Window:
    """Does something on the server when rows are about to be read, for the first time."""

    def __init__(self, patch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
        self.times = 0
        really_read = ResultReader.pieces

        def pieces(reader: ResultReader, *args: Any) -> Any:
            self.times += 1
            if self.times == 1:
                act()
            return really_read(reader, *args)

        patch.setattr(ResultReader, "pieces", pieces)


@pytest.fixture
def window(server: Server) -> Iterator[Server]:
    server.execute(
        "drop database if exists meantime", "create database meantime",
        "create table meantime.t (id int primary key, v int)",
        "insert into meantime.t values (1, 0), (2, 0), (3, 0)",
    )  # fmt: skip
    yield server
    server.execute("drop database meantime")


@READ
@pytest.mark.parametrize("server", ["mysql97", "mariadb"], indirect=True)
def test_what_is_prepared_while_rows_are_read(
    window: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Any
) -> None:
    """A row is left out for a newer one in the log only if that one is committed."""
    ending = threading.Timer(0.5, window.execute, ("xa rollback '1'", "xa commit '2'"))

    def change() -> None:
        for number in "12":
            prepare(window, "meantime", number, f"update t set v = 7 where id = {number}")
        ending.start()

    Window(monkeypatch, change)
    found = read(window, tmp_path)
    ending.join()
    assert found == {1: ("READ", 0), 2: ("UPDATE", 7), 3: ("READ", 0)}


@READ
@pytest.mark.parametrize("server", ["mysql97", "mariadb"], indirect=True)
def test_one_that_stays_prepared_is_told(
    window: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Any
) -> None:
    """The rows have been read, and wait for it alone. A subscriber's snapshot tries again."""
    monkeypatch.setattr(commits, "LIMIT_S", 0.3)
    ending = threading.Timer(1.0, window.execute, ("xa rollback 'stays'",))
    told = list[str]()
    really_told = PreparedTransactions._late

    def late(mine: PreparedTransactions, left: frozenset[str] | None) -> str:
        told.append(really_told(mine, left))
        return told[-1]

    monkeypatch.setattr(PreparedTransactions, "_late", late)

    def change() -> None:
        prepare(window, "meantime", "stays", "update t set v = 7 where id = 1")
        ending.start()

    Window(monkeypatch, change)
    if read is read_by_a_subscriber:
        assert read(window, tmp_path) == dict.fromkeys((1, 2, 3), ("READ", 0))
    else:
        with pytest.raises(ConnectionLost, match="XA RECOVER"):
            read(window, tmp_path)
    ending.join()
    assert told[0].startswith(f"MySQL at {window.address}: 1 XA transactions have been prepared")


@READ
@pytest.mark.parametrize("server", ["mysql97"], indirect=True)
def test_rows_in_doubt_come_later_and_hold_up_no_others(
    window: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Any
) -> None:
    ending = threading.Timer(1.0, window.execute, ("xa rollback 'late'",))
    taken = list[int]()
    really_take = UnplacedRows.take

    def take(rows: UnplacedRows, *keys: Any) -> Any:
        found = really_take(rows, *keys)
        taken.extend(int(kept.sum()) for _, kept in found or ())
        return found

    monkeypatch.setattr(UnplacedRows, "take", take)

    def change() -> None:
        prepare(window, "meantime", "late", "update t set v = 7 where id = 1")
        ending.start()

    # As if others were prepared and committed all the time: it is not waited for.
    monkeypatch.setattr(PreparedTransactions, "wait", lambda mine: None)
    reading = Window(monkeypatch, change)
    assert read(window, tmp_path) == dict.fromkeys((1, 2, 3), ("READ", 0))
    ending.join()
    assert taken == [2, 1]
    assert reading.times == 1


@READ
@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_what_the_log_has_with_a_rollback_while_rows_are_read(
    window: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Any
) -> None:
    """It is undone, as the table has transactions."""

    def undo() -> None:
        with window.connect() as connection, connection.cursor() as cursor:
            cursor.execute("begin")
            cursor.execute("update meantime.t set v = 7 where id = 1")
            cursor.execute("create temporary table meantime.u (id int)")
            cursor.execute("rollback")

    reading = Window(monkeypatch, undo)
    assert read(window, tmp_path) == dict.fromkeys((1, 2, 3), ("READ", 0))
    assert reading.times == 1
