"""Tables that take the name of another one: a mirror has the rows of the one that has it now.

RENAME out of a sink's filter or into it, DROP and CREATE, names that are swapped; on real servers.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from ray_canal.sinks.port import SinkError
from tests.in_process_sink import destination, runner_of, running, sink_config, until
from tests.integration.test_mysql_mirror import Shop, any_shop, shop
from tests.servers import Server
from tests.servers.postgres import PostgresServer
from tests.sink_runs import killed
from tests.unit.sinks.lakes.test_lake import options, reader

__all__ = ["any_shop", "shop"]


def test_a_name_that_is_used_again_has_the_new_table_s_rows(any_shop: Shop) -> None:
    shop = any_shop
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1),(2,2)",
             "CREATE TABLE d (id INT PRIMARY KEY, v INT)", "INSERT INTO d VALUES (1,1),(2,2)",
             "CREATE TABLE r (id INT PRIMARY KEY)", "INSERT INTO r VALUES (1)",
             "CREATE TABLE fresh (id INT PRIMARY KEY)", "INSERT INTO fresh VALUES (9)")  # fmt: skip
    tables = "(t|d|r|fresh)"
    with shop.destination(), running(shop.mirror(tables)):
        until(lambda: shop.is_mirrored("t", "d", "r", "fresh"))
        shop.run("RENAME TABLE t TO _gone", "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
                 "INSERT INTO t VALUES (7,7)")  # fmt: skip
        until(lambda: shop.is_mirrored("t"))
        shop.run("DROP TABLE d", "CREATE TABLE IF NOT EXISTS d (k VARCHAR(9) PRIMARY KEY, w INT)",
                 "INSERT INTO d VALUES ('x',7)",
                 "CREATE TABLE IF NOT EXISTS d (other INT)")  # fmt: skip
        until(lambda: shop.is_mirrored("d"))
        shop.run("DROP TABLE r", "RENAME TABLE fresh TO r", "INSERT INTO r VALUES (10)")
        until(lambda: shop.is_mirrored("r"))


def test_swapped_names_have_each_other_s_rows(any_shop: Shop) -> None:
    shop = any_shop
    shop.run("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1,1)",
             "CREATE TABLE b (id INT PRIMARY KEY)", "INSERT INTO b VALUES (2),(3)",
             "CREATE TABLE c (id INT PRIMARY KEY)", "INSERT INTO c VALUES (4)")  # fmt: skip
    runner = shop.mirror("(a|b|c)")
    with shop.destination(), running(runner):
        until(lambda: shop.is_mirrored("a", "b", "c"))
        shop.run("RENAME TABLE a TO _x, b TO a, _x TO b", "INSERT INTO a VALUES (5)",
                 "INSERT INTO b VALUES (6,6)")  # fmt: skip
        until(lambda: shop.is_mirrored("a", "b"))
        shop.run("RENAME TABLE c TO _y, a TO c, b TO a, _y TO b", "INSERT INTO a VALUES (7,7)")
        until(lambda: shop.is_mirrored("a", "b", "c"))
        shop.run("RENAME TABLE a TO d", "RENAME TABLE b TO a", "RENAME TABLE d TO b")
    assert runner.status.retries == 0


def test_a_target_that_takes_no_table_without_key_takes_renames(
    mysql97: Server, shop: Shop
) -> None:
    """As managed servers have it; the table by which a rename is known to be done has a key."""
    mysql97.execute("SET GLOBAL sql_require_primary_key = ON")
    try:
        shop.run("CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)")
        runner = shop.mirror("(a|b)")
        with shop.destination(), running(runner):
            until(lambda: shop.is_mirrored("a"))
            shop.run("RENAME TABLE a TO b", "INSERT INTO b VALUES (2)")
            until(lambda: shop.is_mirrored("b"))
        assert runner.status.retries == 0
    finally:
        mysql97.execute("SET GLOBAL sql_require_primary_key = OFF")


def test_a_table_that_comes_into_the_filter_with_rows_stops_the_sink(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1)",
             "CREATE TABLE _new (id INT PRIMARY KEY, v INT)",
             "INSERT INTO _new VALUES (2,2)")  # fmt: skip
    runner = shop.mirror("t")
    with shop.destination():
        with running(runner):
            until(lambda: shop.is_mirrored("t"))
        shop.run("RENAME TABLE t TO _old, _new TO t", "INSERT INTO t VALUES (3,3)")
        runner = shop.mirror("t")
        with pytest.raises(SinkError, match=r"_new.*not in this sink's tables") as caught:  # noqa: SIM117
            with running(runner):
                until(lambda: runner.status.state == "failed")
    [place] = re.findall(r"sink seek NAME (\S+:\d+)", str(caught.value))
    shop.server.execute(f"REPLACE INTO {shop.copy}.t VALUES (2,2)",
                        f"DELETE FROM {shop.copy}.t WHERE id = 1")  # fmt: skip
    with shop.destination() as calls:
        calls.ask(calls.destination.api.operate(7, "seek", place))
        with running(shop.mirror("t")):
            until(lambda: shop.is_mirrored("t"))


STATEMENTS = (
    "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
    "INSERT INTO t VALUES (1,1),(2,2)",
    "RENAME TABLE t TO _gone",
    "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
    "INSERT INTO t VALUES (7,7)",
    "CREATE TABLE d (id INT PRIMARY KEY, v INT)",
    "INSERT INTO d VALUES (1,1),(2,2)",
    "DROP TABLE d",
    "CREATE TABLE d (k VARCHAR(9) PRIMARY KEY, v DATE)",
    "INSERT INTO d VALUES ('x','2026-01-01')",
    "CREATE TABLE r (id INT PRIMARY KEY)",
    "INSERT INTO r VALUES (1)",
    "DROP TABLE r",
    "CREATE TABLE fresh (id INT PRIMARY KEY, v INT)",
    "INSERT INTO fresh VALUES (9,9)",
    "RENAME TABLE fresh TO r",
    "INSERT INTO r VALUES (10,10)",
    "CREATE TABLE a (id INT PRIMARY KEY)",
    "INSERT INTO a VALUES (1)",
    "CREATE TABLE b (id INT PRIMARY KEY)",
    "INSERT INTO b VALUES (2)",
    "RENAME TABLE a TO old, b TO a",
    "INSERT INTO a VALUES (3)",
)
SWAP = ("RENAME TABLE a TO _x, r TO a, _x TO r", "INSERT INTO a VALUES (5,5)")
FOLLOWED = "(t|d|r|fresh|a|b|old)"


def sink_into(kind: str, folder: Path, client_id: int, postgres: PostgresServer) -> Any:
    shared: dict[str, Any] = {"tables": rf"generations\.{FOLLOWED}", "client_id": client_id}
    mirror = {"database": "shop", "cursor_database": "shop_canal"}
    if kind in ("delta", "iceberg"):
        lake = {**options(kind, folder), "database": "shop"}
        return sink_config(kind, lake=lake, **shared)
    if kind == "postgres":
        mirror |= {"address": postgres.address, "username": "postgres"}
        return sink_config(kind, mirror=mirror, **shared)
    return sink_config(kind, mirror=mirror, path=str(folder / "shop.duckdb"), **shared)


@pytest.mark.parametrize("kind", ["postgres", "duckdb", "delta", "iceberg"])
def test_each_target_has_the_rows_of_the_table_that_has_the_name(
    kind: str, mysql97: Server, postgres: PostgresServer, tmp_path: Path
) -> None:
    """From the same log twice, and the same."""
    swaps = kind in ("postgres", "duckdb")
    mysql97.execute("DROP DATABASE IF EXISTS generations", "FLUSH BINARY LOGS")
    postgres.execute(*(f"DROP SCHEMA IF EXISTS {name} CASCADE" for name in ("shop", "shop_canal")))
    mysql97.execute("CREATE DATABASE generations", "USE generations", *STATEMENTS,
                    *(SWAP if swaps else ()))  # fmt: skip
    log = {"files": [str(mysql97.binlogs()[-1])]}
    for client_id in (1, 2):
        runner = runner_of(sink_into(kind, tmp_path, client_id, postgres))
        with destination(tmp_path, source=log, tsdb={}):
            runner.run(threading.Event())
        for table in ("t", "d", "r", "a", "old"):
            theirs = mysql97.execute(f"SELECT * FROM generations.{table}")
            if kind == "postgres":
                ours = postgres.execute(f"SELECT * FROM shop.{table}")
            else:
                ours = [tuple(row.values()) for row in reader(kind, tmp_path)(table)]
            assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), table
    if not swaps:
        mysql97.execute("USE generations", *SWAP)
        runner = runner_of(sink_into(kind, tmp_path, 3, postgres))
        with destination(tmp_path, source=log, tsdb={}), pytest.raises(SinkError, match="swaps"):
            runner.run(threading.Event())


def test_a_sink_that_dies_behind_a_rename_does_not_rename_once_more(
    mysql97: Server, tmp_path: Path
) -> None:
    """MySQL commits DDL by itself: the rows' place is from before it then."""
    copies = ("generations", "generations_copy", "generations_canal")
    mysql97.execute(*(f"DROP DATABASE IF EXISTS {name}" for name in copies), "FLUSH BINARY LOGS")
    mysql97.execute("CREATE DATABASE generations", "USE generations", *STATEMENTS, *SWAP)
    mirror = {"address": mysql97.address, "username": "root", "database": copies[1],
              "cursor_database": copies[2]}  # fmt: skip
    config = sink_config("mysql", mirror=mirror, tables=rf"generations\.{FOLLOWED}")
    steps = ["rename:1:after", "rename:1:after", "rename:1:before", "rename:1:after"]
    ends = killed(tmp_path, config, {"files": [str(mysql97.binlogs()[-1])]}, steps)
    assert ends == ["-9"] * len(steps) + ["0"]
    for table in ("t", "d", "r", "a", "old"):
        rows = [sorted(mysql97.execute(f"SELECT * FROM {each}.{table}")) for each in copies[:2]]
        assert rows[0] == rows[1], table
    own = [name for (name,) in mysql97.execute(f"SHOW TABLES FROM {copies[2]}")]
    assert own == ["canal_cursor", "canal_table"]
    mysql97.execute(*(f"DROP DATABASE {name}" for name in copies))


def test_two_tables_for_one_name_stop_the_sink(shop: Shop) -> None:
    """Also where the second one comes in another run, and the first is not in its log."""
    other = f"{shop.source}_b"
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1)")
    shop.server.execute(f"CREATE DATABASE {other}", f"CREATE TABLE {other}.T2 (id INT PRIMARY KEY)")
    mirror = shop.mirror()._config.mirror
    tables = rf"{shop.source}(_b)?\..*"
    runner = runner_of(sink_config("mysql", mirror=mirror.model_dump(), tables=tables))
    with shop.destination(tables=tables):
        with running(runner):
            until(lambda: shop.is_mirrored("t"))
        shop.server.execute(f"CREATE TABLE {other}.t (id INT PRIMARY KEY, v INT)",
                            f"INSERT INTO {other}.t VALUES (1,9)")  # fmt: skip
        runner = runner_of(sink_config("mysql", mirror=mirror.model_dump(), tables=tables))
        with pytest.raises(SinkError, match="mixed with those of"), running(runner):
            until(lambda: runner.status.state == "failed")
    assert shop.rows(shop.copy, "t") == [(1, 1)]
    shop.server.execute(f"DROP DATABASE {other}")
