"""Quarantine through the whole pipeline: one table is held back, the others go on, a fix gives the
rows back and later rows are decoded by themselves."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from ray_canal.errors import QuarantineFull, TableMetaMismatch
from ray_canal.redrive import redrive
from ray_canal.render import changes
from tests.servers import Server

DESTINATION = "held"


def deployment(server: Server, folder: Path, policy: str, decoders: int) -> dict[str, Any]:
    return {
        "meta": {"path": str(folder / "meta.db")},
        "instance": [
            {
                "destination": DESTINATION,
                "source": {"address": server.address, "username": "root"},
                "tsdb": {"on_ddl_error": policy},
                "decoders": decoders,
            }
        ],
    }


def received(count: int) -> list[dict[str, Any]]:
    """So many row changes, acked. (CREATE … SELECT in statement format is one without rows.)"""
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + 180
    with canal.connect(DESTINATION, client_id=7) as connector:
        connector.subscribe(r"q\..*")
        while len(found) < count:
            assert time.monotonic() < deadline, found
            message = connector.get_without_ack(batch_size=1000, timeout=0.5)
            rows = changes(message.batches)
            found += [row for row in rows if row["event_type"] != "STATEMENT"]
            connector.ack(message.id)
    return found


def unknown_table(server: Server) -> None:
    """A table whose columns the log does not say: a statement-format CREATE … SELECT. At its rows
    the catalog is ahead, so that it cannot be taken for what it was; at the last DDL it is not."""
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_format=STATEMENT")
        cursor.execute("CREATE TABLE q.dark AS SELECT 5 AS a, CAST('x' AS CHAR(3)) AS b")
        cursor.execute("SET SESSION binlog_format=ROW")
        cursor.execute("INSERT INTO q.dark VALUES (6, 'six')")
        cursor.execute("ALTER TABLE q.dark ADD COLUMN c int")
        cursor.execute("INSERT INTO q.dark VALUES (7, 'svn', 70)")
        cursor.execute("INSERT INTO q.light VALUES (1)")
        cursor.execute("ALTER TABLE q.dark ADD COLUMN d int")


def check_that_a_full_quarantine_stops(config: dict[str, Any]) -> None:
    tight = copy.deepcopy(config)
    tight["instance"][0]["tsdb"]["quarantine_bytes_max"] = 10

    def started_and_read() -> None:  # it may fail in either
        canal.start(tight)
        received(1)

    with pytest.raises(QuarantineFull, match=r"q\.dark .*quarantine_bytes_max is 10"):
        started_and_read()
    status = canal.status()[DESTINATION]
    assert (status["state"], status["quarantined"], status["quarantine_bytes"]) == ("failed", [], 0)
    canal.stop(DESTINATION)


@pytest.fixture
def no_row_metadata(mariadb: Server) -> Iterator[None]:
    with mariadb.without_row_metadata():
        yield


@pytest.mark.usefixtures("local_ray", "no_row_metadata")
@pytest.mark.parametrize("decoders", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_one_table_is_held_back_and_given_back(
    mariadb: Server, tmp_path: Path, decoders: int
) -> None:
    mariadb.execute("DROP DATABASE IF EXISTS q")
    mariadb.execute("CREATE DATABASE q", "CREATE TABLE q.light (n int)")
    config = deployment(mariadb, tmp_path, "quarantine", decoders)
    canal.start(config)
    try:
        with canal.connect(DESTINATION, client_id=7) as connector:
            connector.subscribe(r"q\..*")
        canal.stop(DESTINATION)
        unknown_table(mariadb)
        if decoders == 0:
            check_that_a_full_quarantine_stops(config)
        canal.start(config)
        (light,) = received(1)
        assert (light["table"], light["after"]) == ("light", {"n": 1})
        assert canal.status()[DESTINATION]["quarantined"] == ["q.dark"]
        assert canal.status()[DESTINATION]["quarantine_bytes"] > 100
    finally:
        canal.stop(DESTINATION)
    with pytest.raises(TableMetaMismatch, match=r"q\.dark"):
        list(redrive(config, DESTINATION))
    fix = tmp_path / "fix.sql"
    fix.write_text("CREATE TABLE q.dark (a int(1) NOT NULL, b varchar(3)) CHARSET=utf8mb4;")
    given = [c for p in redrive(config, DESTINATION, schema_sql=fix) for c in changes(p)]
    assert [c["after"] for c in given] == [
        {"a": 6, "b": "six"}, {"a": 7, "b": "svn", "c": 70},
    ]  # fmt: skip
    mariadb.execute("INSERT INTO q.dark VALUES (8, 'ate', NULL, 80)")
    canal.start(config)
    try:
        (later,) = received(1)
        assert later["after"] == {"a": 8, "b": "ate", "c": None, "d": 80}
        assert canal.status()[DESTINATION]["quarantined"] == []
    finally:
        canal.stop(DESTINATION)
