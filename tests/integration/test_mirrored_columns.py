"""Columns of a mirror: renamed, and filled in rows that are there, as at the source."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pymysql
import pytest

from ray_canal.sinks.port import SinkError
from tests.in_process_sink import running, until
from tests.integration.test_mysql_mirror import (
    Shop,
    any_shop,
    goes_on_behind,
    shop,
    shop_of,
)
from tests.integration.test_postgres_mirror import Shop as PostgresShop
from tests.integration.test_postgres_mirror import shop as postgres_shop
from tests.servers import Server

__all__ = ["any_shop", "postgres_shop", "shop"]
LAX = "SET SESSION sql_mode = ''"
WAITS = (
    "SELECT 1 FROM information_schema.processlist WHERE state LIKE '%metadata lock%'"
    " AND info LIKE 'ALTER%'"
)


def test_columns_are_renamed_and_filled_as_in_the_source(any_shop: Shop) -> None:
    shop = any_shop
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1)")
    text = "" if shop.server.kind == "mysql56" else ", ADD g TEXT NOT NULL"
    with shop.destination():
        with running(shop.mirror()):
            until(lambda: shop.is_mirrored("t"))
            shop.run(
                "ALTER TABLE t ADD a INT NOT NULL DEFAULT -7, ADD b CHAR(9) DEFAULT 'it''s \\\\é'"
                ", ADD c ENUM('x','y') NOT NULL, ADD d DECIMAL(9,2) DEFAULT 1.5, ADD e BIT(3)"
                f" DEFAULT b'101', ADD f DATE DEFAULT '2026-01-31'{text}",
                LAX,
                "INSERT INTO t (id, v, b) VALUES (2,2,NULL)",
            )
            until(lambda: shop.is_mirrored("t"))
            defaults = "SELECT COUNT(column_default) FROM information_schema.columns WHERE"
            where = f"table_schema = '{shop.copy}' AND column_default <> 'NULL'"
            assert shop.server.execute(f"{defaults} {where}") == ((0,),)
        shop.run("ALTER TABLE t CHANGE v w BIGINT FIRST", LAX, "INSERT INTO t (id, w) VALUES (3,3)")
        if shop.server.kind == "mysql56":
            goes_on_behind(shop, "no RENAME COLUMN", "CHANGE v w INT")
        with running(shop.mirror()):
            until(lambda: shop.is_mirrored("t"))
            assert shop.columns("t")[:2] == ["id", "w"]


def test_a_text_key_of_which_no_character_set_is_known_tells_letters_apart(any_shop: Shop) -> None:
    """Of a database that is older than what is read of the log."""
    shop = any_shop
    shop.server.execute(f"ALTER DATABASE {shop.source} CHARACTER SET utf8 COLLATE utf8_bin")
    shop.start = shop.server.position()
    shop.run("CREATE TABLE t (id VARCHAR(20) PRIMARY KEY)", "INSERT INTO t VALUES ('a'),('A')")
    with shop.destination(), running(shop.mirror()):
        until(lambda: shop.is_mirrored("t"))


def test_columns_that_swap_their_names_stop_the_sink(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v INT, w INT)", "INSERT INTO t VALUES (1,1,2)")
    with shop.destination():
        with running(shop.mirror()):
            until(lambda: shop.is_mirrored("t"))
        shop.run("ALTER TABLE t RENAME COLUMN v TO w, RENAME COLUMN w TO v")
        runner = shop.mirror()
        with pytest.raises(SinkError, match="has both"), running(runner):
            until(lambda: runner.status.state == "failed")


def test_in_postgres_too(postgres_shop: PostgresShop) -> None:
    shop = postgres_shop
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1)")
    with shop.destination(), running(shop.mirror()):
        until(lambda: shop.is_mirrored("t"))
        shop.run(
            "ALTER TABLE t ADD a INT NOT NULL DEFAULT -7, ADD b CHAR(9) DEFAULT 'it''s \\\\é\\n',"
            " ADD c ENUM('x','y') NOT NULL, ADD d DECIMAL(9,2) DEFAULT 1.5,"
            " ADD e VARBINARY(9) DEFAULT x'00FF', ADD f DATE DEFAULT '2026-01-31',"
            " ADD g TIME(2) DEFAULT '-100:02:03.5', ADD h TIME DEFAULT '00:00:00'",
            "ALTER TABLE t CHANGE v w INT",
            "INSERT INTO t (id, w, b, c) VALUES (2,2,NULL,'y')",
        )
        until(lambda: shop.is_mirrored("t"))
    assert list(shop.columns("t")) == ["id", "w", "a", "b", "c", "d", "e", "f", "g", "h"]


ELSEWHERE = [
    (
        "mariadb",
        "mysql97",
        "id UUID, six INET6, four INET4, d DECIMAL(65,38), x INT, PRIMARY KEY (id, d)",
        "'00000000-0000-0000-0000-00000000000{id}', '::{id}', '10.0.0.{id}', {id}e-38, 1",
        "n UUID NOT NULL DEFAULT '00000000-0000-0000-0000-00000000000f',"
        " ADD z DECIMAL(38,38) NOT NULL DEFAULT 0, ADD w DECIMAL(60,31) DEFAULT -1.5",
        "CAST(id AS CHAR), CAST(six AS CHAR), CAST(four AS CHAR), CAST(n AS CHAR), x,"
        " CAST(d AS CHAR), CAST(z AS CHAR), CAST(w AS CHAR)",
    ),
    (
        "mysql97",
        "mariadb",
        "id VARCHAR(9) CHARACTER SET gb18030 PRIMARY KEY, g GEOMETRYCOLLECTION, v VECTOR(3), x INT",
        "'é{id}', ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 {id}))'), TO_VECTOR('[1,2,{id}]'), 1",
        "n VECTOR, ADD e ENUM('ü') CHARACTER SET gb18030 NOT NULL",
        "id, ST_AsText(g), HEX(v), n, x, e",
    ),
    (
        "mysql97",
        "mysql56",
        "id INT PRIMARY KEY, j JSON, v VECTOR(3), x INT",
        """{id}, '{{"ä": [{id}]}}', TO_VECTOR('[1, {id}]'), 1""",
        "n JSON",
        "id, CAST(j AS CHAR), HEX(v), n, x",
    ),
]


@pytest.mark.parametrize(("source", "target", "columns", "row", "more", "shown"), ELSEWHERE)
def test_types_that_the_target_does_not_know(
    source: str, target: str, columns: str, row: str, more: str, shown: str,
    request: pytest.FixtureRequest, tmp_path: Path,
) -> None:  # fmt: skip
    """Another kind of server, or an older one, has the nearest type."""
    other: Server = request.getfixturevalue(target)
    with contextlib.contextmanager(shop_of)(request.getfixturevalue(source), tmp_path) as here:
        select = f"SELECT {shown} FROM {{}}.t ORDER BY 1"

        def is_mirrored() -> bool:
            with contextlib.suppress(pymysql.MySQLError):  # it is not there yet
                copy = other.execute(select.format(here.copy))
                return bool(here.server.execute(select.format(here.source)) == copy)
            return False

        here.run(f"CREATE TABLE t ({columns})")
        with here.destination(), running(here.mirror(address=other.address)):
            for number in (1, 2, 3):
                here.run(f"INSERT INTO t VALUES ({row.format(id=number)})")
            here.run(f"ALTER TABLE t ADD {more}", "UPDATE t SET x = 2 ORDER BY id LIMIT 2")
            here.run("DELETE FROM t ORDER BY id LIMIT 1")
            until(is_mirrored)
        assert len(other.execute(f"SELECT * FROM {here.copy}.t")) == 2
        other.execute(f"DROP DATABASE {here.copy}", f"DROP DATABASE {here.copy}_canal")


def test_an_alter_that_waits_is_done_once(shop: Shop) -> None:
    """The server went on with a statement that was given up: the next run's was refused, which had
    ended the sink. A lock is given up by the server now."""
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1)")
    runner = shop.mirror(timeout_s=2)
    with shop.destination(), running(runner):
        until(lambda: shop.is_mirrored("t"))
        with contextlib.closing(shop.server.connect()) as other, other.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {shop.copy}.t WRITE")
            shop.run("ALTER TABLE t ADD w INT", "INSERT INTO t VALUES (2,2,2)")
            until(lambda: "1205" in runner.status.error)
            until(lambda: shop.server.execute(WAITS))
            cursor.execute(f"ALTER TABLE {shop.copy}.t ADD w INT")
        until(lambda: shop.is_mirrored("t"))


def test_a_key_that_the_target_gives_a_table_without_one(shop: Shop) -> None:
    shop.run("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1),(1)")
    made = shop.server.with_global("sql_generate_invisible_primary_key", "ON")
    with made, shop.destination(), running(
        shop.mirror(without_key="rows", schema_change="evolve")
    ):
        until(lambda: shop.is_mirrored("t"))
        shop.run("DELETE FROM t LIMIT 1", "ALTER TABLE t ADD b INT", "UPDATE t SET b = 1")
        until(lambda: shop.is_mirrored("t"))
    assert "my_row_id" in shop.server.execute(f"SHOW CREATE TABLE {shop.copy}.t")[0][1]


def test_rows_with_vectors_are_found_without_a_key(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE points (v VECTOR(2) NOT NULL, w VECTOR, n INT)",
        "INSERT INTO points VALUES (TO_VECTOR('[1,2]'), NULL, 1), (TO_VECTOR('[3,4]'), NULL, 2)",
        "UPDATE points SET w = TO_VECTOR('[5]') WHERE n = 1",
        "DELETE FROM points WHERE n = 2",
    )

    def hexed(database: str) -> Any:
        with contextlib.suppress(pymysql.MySQLError):  # it is not there yet
            return shop.server.execute(f"SELECT HEX(v), HEX(w), n FROM {database}.points")

    with shop.destination(), running(shop.mirror(without_key="rows")):
        until(lambda: hexed(shop.copy) == hexed(shop.source))
