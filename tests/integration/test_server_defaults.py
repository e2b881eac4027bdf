"""Settings that a server has for every connection change nothing of what is read or written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa
import pytest

from ray_canal.config import MetaConfig, MirrorConfig
from ray_canal.errors import ConfigError
from ray_canal.filter import TableFilter
from ray_canal.meta.mysql_database import MetaDatabase
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.sinks.databases.mysql import MySqlDatabase
from ray_canal.sinks.schema_follower import TableName
from ray_canal.snapshot.keyed import KeyedSnapshot
from ray_canal.snapshot.plan import SnapshotPlan
from ray_canal.snapshot.read import Snapshot
from ray_canal.source.catalog import Catalog
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


@pytest.mark.parametrize("mode", ["consistent", "keyed"])
def test_rows_are_those_of_now(mariadb: Server, mode: str) -> None:
    """A server can show tables with system versioning to all as of another time."""
    with mariadb.with_database("versioned"):
        mariadb.execute(
            "create table versioned.t (id int primary key) with system versioning",
            "insert into versioned.t values (1)",
            "set global system_versioning_asof = '2020-01-01'",
        )  # fmt: skip
        try:
            found = rows_of(mariadb, r"versioned\.t", mode=mode)
        finally:
            mariadb.execute("set global system_versioning_asof = default")
    assert [row["id"] for row in found.get("t", [])] == [1]


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


def test_a_limit_of_time_ends_no_query(defaults: Server) -> None:
    limits = {"mysql97": ("max_execution_time", "20"), "mariadb": ("max_statement_time", "0.02")}
    name, value = limits.get(defaults.kind, ("wait_timeout", "28800"))  # 5.6 has none
    source = config_of(defaults).destination("snap").source
    with defaults.with_global(name, value), contextlib.closing(Catalog(source)) as catalog:
        [row] = catalog.rows("SELECT SLEEP(0.1) AS was_cut")
    assert row["was_cut"] == 0


def test_names_in_quotes_are_refused_where_they_would_be_texts(defaults: Server) -> None:
    config = config_of(defaults).destination("snap")
    plan = SnapshotPlan(config, TableFilter())
    wishes = (SnapshotWish(r"defaults\.t0", '"v" = 0'),)
    ((before,),) = defaults.execute("select @@global.sql_mode")
    defaults.execute("set global sql_mode = 'ANSI_QUOTES'")
    try:
        with contextlib.closing(plan), pytest.raises(ConfigError, match="backticks"):
            plan.wanted(wishes)
    finally:
        defaults.execute(f"set global sql_mode = '{before}'")


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


@pytest.mark.parametrize("mode", ["consistent", "keyed"])
def test_a_generated_primary_key_that_the_catalog_leaves_out(mysql97: Server, mode: str) -> None:
    """It is in the log, so it is read as any other column, and is the key to read by."""
    with mysql97.with_database("gipk"), mysql97.with_global(
        "show_gipk_in_create_table_and_information_schema", "OFF"
    ):
        mysql97.execute(
            "set session sql_generate_invisible_primary_key = on",
            "create table gipk.t (a int)", "insert into gipk.t values (7), (7)",
        )  # fmt: skip
        found = rows_of(mysql97, r"gipk\.t", mode=mode)
    assert found == {"t": [{"my_row_id": 1, "a": 7}, {"my_row_id": 2, "a": 7}]}


def test_limits_of_joins_keys_and_transactions(defaults: Server) -> None:
    """Reads of the catalog join, a mirror's transactions follow each other on one connection, and
    its deletes name many keys."""
    safe = "SET sql_safe_updates = 1"
    safe += "/*!50709 , range_optimizer_max_mem_size = 1500 */"
    mirror = MirrorConfig(address=defaults.address, username="plain", cursor_database="defaults")
    keys = pa.table({"a": [*range(1, 90)], "b": [0] * 89})
    name = TableName("defaults", "pairs")
    defaults.execute(
        "create table defaults.pairs (a int, b int, primary key (a, b))",
        f"insert into defaults.pairs values {', '.join(f'({k}, 0)' for k in range(90))}",
        f"set global init_connect = '{safe}'",
    )
    with (
        defaults.with_global("max_join_size", "1"),
        defaults.with_global("completion_type", "2"),
        contextlib.closing(MySqlDatabase(mirror)) as database,
    ):
        assert len(rows_of(defaults, r"defaults\.t0")["t0"]) == ROWS
        database.connect()
        epoch, _ = database.take_over("s")
        for place in ("1", "2"):
            assert database.begin("s") == epoch
            database.delete(name, keys)
            database.commit("s", place)
    assert defaults.execute("select * from defaults.pairs") == ((0, 0),)
