"""Settings that a server has for every connection change nothing of what is read or written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from ray_canal.config import MetaConfig
from ray_canal.meta.mysql_database import MetaDatabase
from ray_canal.snapshot.keyed import KeyedSnapshot
from ray_canal.snapshot.read import Snapshot
from tests.integration.test_snapshot import config_of, rows_of
from tests.servers import Server

ROWS = 300


@pytest.fixture
def defaults(server: Server) -> Iterator[Server]:
    values = ", ".join(f"({k}, 0)" for k in range(ROWS))
    server.execute(
        "drop database if exists defaults", "create database defaults",
        *(f"create table defaults.t{n} (id int primary key, v int)" for n in range(9)),
        *(f"insert into defaults.t{n} values {values}" for n in range(2)),
        "create user plain@'%' identified by ''",
        "grant replication slave, replication client, select, process on *.* to plain@'%'",
        "grant all on defaults.* to plain@'%'",  # not SUPER, for whom init_connect does not run
    )  # fmt: skip
    yield server
    server.execute(
        "set global init_connect = ''", "drop database defaults", "drop user plain@'%'"
    )


@pytest.mark.parametrize("mode", ["consistent", "keyed"])
def test_a_limit_of_select_cuts_nothing_off(defaults: Server, mode: str) -> None:
    with defaults.with_global("sql_select_limit", "5"):
        found = rows_of(defaults, r"defaults\..*", mode=mode)
    assert {name: len(rows) for name, rows in found.items()} == {"t0": ROWS, "t1": ROWS}


def test_init_connect_takes_no_autocommit(defaults: Server) -> None:
    """Each chunk is read as the table is then, and what is written of cursors is there."""
    defaults.execute("set global init_connect = 'SET autocommit = 0'")
    config = config_of(defaults, username="plain").destination("snap")
    reading = KeyedSnapshot(config, r"defaults\.t0", chunk_bytes=2048)
    with Snapshot(reading, "null") as snapshot:
        held = {row["after"]["id"]: row["after"]["v"] for row in next(snapshot).to_pylist()}
        assert len(held) < ROWS / 2
        defaults.execute("update defaults.t0 set v = 1")
        for batch in snapshot:
            held |= {row["after"]["id"]: row["after"]["v"] for row in batch.to_pylist()}
    assert held == dict.fromkeys(range(ROWS), 1)
    meta = MetaConfig(
        backend="mysql", address=defaults.address, username="plain", database="defaults"
    )
    with contextlib.closing(MetaDatabase(meta, {"kept": "id int primary key"})) as database:
        assert database.changed("insert into {d}.kept values (7)") == 1
        assert defaults.execute("select id from defaults.kept") == ((7,),)


@pytest.mark.parametrize("mode", ["consistent", "keyed"])
def test_no_mode_of_sql_hides_variables(defaults: Server, mode: str) -> None:
    """Without backslashes in texts no pattern of LIKE with one fits, and a log seemed to be off."""
    modes = "PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES,NO_BACKSLASH_ESCAPES"
    names = modes if defaults.kind != "mariadb" else f"{modes},EMPTY_STRING_IS_NULL"
    ((before,),) = defaults.execute("select @@global.sql_mode")
    defaults.execute(f"set global sql_mode = '{names}'")
    try:
        found = rows_of(defaults, r"defaults\..*", mode=mode)
    finally:
        defaults.execute(f"set global sql_mode = '{before}'")
    assert {name: len(rows) for name, rows in found.items()} == {"t0": ROWS, "t1": ROWS}
