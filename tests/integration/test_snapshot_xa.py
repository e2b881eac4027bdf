"""Rows that an XA transaction has changed, prepared and not committed yet when they are read."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ray_canal.errors import PrivilegeMissing
from ray_canal.snapshot.read import read_snapshot
from tests.integration.test_snapshot import config_of, rows_of
from tests.servers import Server

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
