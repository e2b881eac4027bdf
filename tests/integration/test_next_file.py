"""A dump goes from one binlog file to the next one, on real servers: is it the same log's?"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from ray_canal.client.connector import Connector
from ray_canal.client.transport import RayTransport
from ray_canal.errors import PositionNotFound
from tests.dumps import read_until
from tests.in_process_sink import destination
from tests.integration.test_log_identity import (
    GTIDS_OFF,
    SERVERS_IN_SHORT,
    read_to_an_error,
    reading,
    reset,
    serving,
    write,
)
from tests.servers import Server


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("mysql97", 5), ("mysql56", 5), ("mariadb", 5), ("mysql97", 0),
        pytest.param("mysql56", 0, marks=pytest.mark.soak),
        pytest.param("mariadb", 0, marks=pytest.mark.soak),
    ],
)  # fmt: skip
def test_a_reset_under_a_dump_that_goes_on_with_the_next_file(
    kind: str, written: int, tmp_path: Path
) -> None:
    """A1: at the end of the file that it still has open the server goes on with the next one, and
    would leave out what the new log has before it."""
    with serving(kind, tmp_path) as server:
        with reading(server, heartbeat_s=0.3) as source:
            source.resume(())
            write(server, 10, 10, files=2)
            write(server, 20, 10)
            assert read_until(source, *server.position())
            server.restart()
        reset(server)
        with reading(server, heartbeat_s=0.3) as source:
            source.resume(())
            write(server, 30, 10)
            read_until(source, *server.position())
            reset(server)
            write(server, 100, written)
            time.sleep(1.5)
            write(server, 200, 5, files=1)
            with pytest.raises(PositionNotFound, match=r"after mysql-bin|another file"):
                read_to_an_error(source)


@pytest.mark.parametrize(("kind", "gtids"), SERVERS_IN_SHORT)
def test_a_file_that_ended_in_a_crash_is_left_for_the_next(
    kind: str, gtids: bool, tmp_path: Path
) -> None:
    """A1: no ROTATE event stands at its end, and it is the server's file all the same."""
    with serving(kind, tmp_path, **({} if gtids else GTIDS_OFF)) as server:
        for end in (server.kill, server.stop, server.kill):
            write(server, 10 * int(server.position()[0][-6:]), 5, files=1)
            end()
            time.sleep(2.5)
            server.start()
        with reading(server, start="earliest") as source:
            source.resume(())
            chunks = read_until(source, *server.position())
        assert {chunk.head.journal_name for chunk in chunks} == {p.name for p in server.binlogs()}


@pytest.fixture
def xa_server(mysql97: Server) -> Iterator[Server]:
    """With an empty table; no XA transaction stays prepared, which would hold it."""
    mysql97.execute("CREATE DATABASE xa_files", "CREATE TABLE xa_files.t (id INT PRIMARY KEY)")
    yield mysql97
    for name in ("one", "two"):
        with contextlib.suppress(pymysql.err.MySQLError):
            mysql97.execute(f"XA ROLLBACK '{name}'")
    mysql97.execute("DROP DATABASE xa_files")


def xa_outcomes(row: int, *, ack: bool) -> list[tuple[Any, ...]]:
    """(outcome, XA id, number of rows) of the transactions that come until this row has."""
    found: list[tuple[Any, ...]] = []
    ids: list[int] = []
    deadline = time.monotonic() + 60
    with Connector(RayTransport("x"), 7) as connector:
        connector.subscribe(r"xa_files\.t")
        while row not in ids:
            assert time.monotonic() < deadline, found
            message = connector.get_without_ack(100, 1.0)
            if not message:
                continue
            ids += [each["after"]["id"] for some in message.batches for each in some.to_pylist()]
            ended = message.transactions.to_pylist()
            found += [(one["outcome"], one["xa_id"], one["rows"]) for one in ended]
            if ack:
                connector.ack(message.id)
    return found


def test_xa_transactions_end_in_later_files_and_lives_of_the_destination(
    xa_server: Server, tmp_path: Path
) -> None:
    """What was prepared before a restart ends behind it. What the first life did not acknowledge
    comes again, what the second one did does not."""
    source = {"address": xa_server.address, "username": "root"}

    def life(row: int, *statements: str) -> list[tuple[Any, ...]]:
        with destination(tmp_path, source=source):
            with Connector(RayTransport("x"), 7) as connector:
                connector.subscribe(r"xa_files\.t")
            with xa_server.connect() as connection, connection.cursor() as cursor:
                for each in statements:
                    cursor.execute(each)
            xa_server.execute("FLUSH BINARY LOGS", f"INSERT INTO xa_files.t VALUES ({row})")
            return xa_outcomes(row, ack=row > 10)

    insert = "INSERT INTO xa_files.t VALUES"
    first = life(
        10,
        "XA START 'one'", f"{insert} (1)", "XA END 'one'", "XA PREPARE 'one'", "XA COMMIT 'one'",
        "XA START 'one'", f"{insert} (2)", "XA END 'one'", "XA PREPARE 'one'",
    )  # fmt: skip
    second = life(
        11, "XA COMMIT 'one'",
        "XA START 'two'", f"{insert} (3)", "XA END 'two'", "XA PREPARE 'two'",
    )  # fmt: skip
    third = life(12, "XA ROLLBACK 'two'")
    row, one, two = ("committed", None, 1), "X'6f6e65',X'',1", "X'74776f',X'',1"
    prepared = ("prepared", one, 1)
    assert first == [prepared, ("commit_prepared", one, 0), prepared, row]
    assert second == [*first, ("commit_prepared", one, 0), ("prepared", two, 1), row]
    assert third == [("rollback_prepared", two, 0), row]
