"""What is changed in a mirror's tables by hand, since the sink cannot or must not."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pymysql
import pytest

from ray_canal.sinks.port import SinkError
from tests.in_process_sink import runner_of, running, sink_config, until
from tests.integration.test_mysql_mirror import Shop, shop_of
from tests.servers import Server


@pytest.fixture
def shop(mysql97: Server, tmp_path: Path) -> Iterator[Shop]:
    yield from shop_of(mysql97, tmp_path)


def test_a_primary_key_that_is_dropped_is_dropped_in_the_mirror_by_hand(shop: Shop) -> None:
    """Before a row is refused that equals another one there."""
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1)")
    with shop.destination():
        with running(shop.mirror()):
            until(lambda: shop.is_mirrored("t"))
        shop.run("ALTER TABLE t DROP PRIMARY KEY", "INSERT INTO t VALUES (1,1),(1,2)")
        runner = shop.mirror(without_key="rows")
        with pytest.raises(SinkError, match="drop that of"), running(runner):
            until(lambda: runner.status.state == "failed")
        shop.server.execute(f"ALTER TABLE {shop.copy}.t DROP PRIMARY KEY")
        with running(shop.mirror(without_key="rows")):
            until(lambda: shop.is_mirrored("t"))
            shop.run("UPDATE t SET v = 3 WHERE v = 1 LIMIT 1", "DELETE FROM t WHERE v = 2")
            until(lambda: shop.is_mirrored("t"))


def test_a_key_on_a_part_of_a_text_is_made_by_hand(shop: Shop) -> None:
    """Of two rows that have the same part, one after the other, each is in its own place: several
    connections would meet there."""
    shop.run(
        "CREATE TABLE t (k TEXT, v INT, PRIMARY KEY (k(4)))",
        "INSERT INTO t VALUES ('abcd',1),('abce',2)",
        "CREATE TABLE long_one (k VARCHAR(1000), PRIMARY KEY (k(9)))",
        "INSERT INTO long_one VALUES ('a')",
    )
    with shop.destination():
        for table in ("t", "long_one"):
            with pytest.raises(SinkError, match="on the same parts of columns"):
                shop.mirror("(t|long_one)").run(threading.Event())
            shop.server.execute(f"CREATE TABLE {shop.copy}.{table} LIKE {shop.source}.{table}")
        with running(shop.mirror("(t|long_one)", order="key", senders=4)):
            until(lambda: shop.is_mirrored("t", "long_one"))
            for number in range(20):
                shop.run(
                    f"UPDATE t SET k = 'abcd{number}' WHERE v = 1",
                    "DELETE FROM t WHERE v = 2",
                    f"INSERT INTO t VALUES ('abce{number}',2)",
                )
            until(lambda: shop.is_mirrored("t"))


@pytest.mark.parametrize("kind", ["mysql97", "mariadb"])
def test_a_column_that_a_check_of_the_target_needs_is_dropped_by_hand(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """MariaDB says that the column is not there: the whole sink began again, without end."""
    with contextlib.contextmanager(shop_of)(request.getfixturevalue(kind), tmp_path) as shop:
        shop.server.execute(
            f"CREATE DATABASE {shop.copy}", f"USE {shop.copy}",
            "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, CONSTRAINT few CHECK (a < b))",
        )  # fmt: skip
        shop.run(
            "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)",
            "INSERT INTO t VALUES (1,1,2)",
            "ALTER TABLE t DROP COLUMN b",
            "INSERT INTO t VALUES (2,2)",
        )
        with shop.destination():
            with pytest.raises(SinkError, match=r"(?i)check"):
                shop.mirror(schema_change="evolve").run(threading.Event())
            shop.server.execute(f"ALTER TABLE {shop.copy}.t DROP CONSTRAINT few")
            with running(shop.mirror(schema_change="evolve")):
                until(lambda: shop.is_mirrored("t"))


@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
def test_a_type_that_no_value_becomes_is_taken_by_a_table_without_rows(
    kind: str, shop: Shop, request: pytest.FixtureRequest
) -> None:
    """MariaDB refuses to make a GEOMETRY a DATETIME, PostgreSQL bytes a time: the sink ended, also
    where a snapshot had just emptied the table for its rows."""
    target = request.getfixturevalue(kind)
    shop.run(
        "CREATE TABLE t (id INT PRIMARY KEY, k GEOMETRY)",
        "INSERT INTO t VALUES (1, POINT(1, 2))",
        "DELETE FROM t",
        "ALTER TABLE t MODIFY k DATETIME",
        "INSERT INTO t VALUES (2, '2026-01-02 03:04:05')",
    )
    mirror = {
        "address": target.address, "username": "postgres" if kind == "postgres" else "root",
        "database": shop.copy, "cursor_database": f"{shop.copy}_canal", "schema_change": "evolve",
    }  # fmt: skip
    kind = "mysql" if kind == "mariadb" else kind
    sink = sink_config(kind, mirror=mirror, tables=rf"{shop.source}\..*")
    select = f"SELECT id, CAST(k AS CHAR(10)) FROM {shop.copy}.t"

    def mirrored() -> object:
        with contextlib.suppress(pymysql.MySQLError, psycopg.Error):  # it is not there yet
            return list(target.execute(select))
        return None

    with shop.destination(), running(runner_of(sink)):
        until(lambda: mirrored() == [(2, "2026-01-02")])
