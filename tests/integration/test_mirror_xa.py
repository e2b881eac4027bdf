"""A mirror next to transactions whose rows the log has before it tells whether they count."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pymysql
import pytest

from ray_canal.sinks.databases.port import OTHERS
from ray_canal.sinks.databases.sender import Sender
from ray_canal.sinks.port import SinkError
from tests.in_process_sink import runner_of, running, sink_config, until
from tests.integration.test_mysql_mirror import Shop, shop_of
from tests.integration.test_postgres_mirror import Shop as PgShop
from tests.integration.test_postgres_mirror import shop_of as pg_shop_of
from tests.servers import Server
from tests.servers.postgres import PostgresServer

TABLES = ("a", "b")


@pytest.fixture(params=["mysql97", "mariadb"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    for shop in shop_of(request.getfixturevalue(request.param), tmp_path):
        shop.run(
            *(f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(20))" for name in TABLES),
            "INSERT INTO a VALUES (1, 'one'), (2, 'two'), (3, 'three')",
            "INSERT INTO b VALUES (1, 'one')",
        )
        yield shop
        end_all(shop.server)


def end_all(server: Server) -> None:
    """Roll back what a test that failed has left prepared: it would keep its tables locked."""
    for _, _, _, name in server.execute("XA RECOVER"):
        server.execute(f"XA ROLLBACK '{name if isinstance(name, str) else name.decode()}'")


def prepare(server: Server, source: str, name: str, *statements: str) -> None:
    """Leave an XA transaction prepared."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"USE {source}")
        for each in (f"XA START '{name}'", *statements, f"XA END '{name}'", f"XA PREPARE '{name}'"):
            cursor.execute(each)


def is_equal(shop: Shop) -> bool:
    return shop.is_mirrored(*TABLES)


@pytest.mark.parametrize(
    "mirror", [{}, {"senders": 3, "order": "key"}, {"senders": 2, "order": "table"}]
)
def test_rows_of_a_prepared_transaction_come_at_xa_commit(
    shop: Shop, mirror: dict[str, Any]
) -> None:
    """Those of one that is rolled back never come; also where the sink ends in between."""
    with shop.destination():
        with running(shop.mirror(**mirror)):
            until(lambda: is_equal(shop))
            prepare(
                shop.server, shop.source, "yes", "INSERT INTO a VALUES (4, 'four'), (5, 'five')",
                "UPDATE a SET v = 'TWO' WHERE id = 2", "DELETE FROM b WHERE id = 1",
            )  # fmt: skip
            prepare(
                shop.server, shop.source, "no", "INSERT INTO a VALUES (6, 'six')",
                "UPDATE a SET v = 'ONE' WHERE id = 1", "DELETE FROM a WHERE id = 3",
            )  # fmt: skip
            shop.run("INSERT INTO b VALUES (2, 'two')")
            until(lambda: (2, "two") in shop.rows(shop.copy, "b"))
            assert is_equal(shop)
        another = shop.mirror(sink={"transactions": False}, **mirror)
        with pytest.raises(SinkError, match=r"2 XA transactions that are prepared \(xid "):
            another.run(threading.Event())
        with running(shop.mirror(**mirror)):
            shop.run("XA COMMIT 'yes'", "UPDATE a SET v = 'again' WHERE id = 2")
            until(lambda: is_equal(shop))
            shop.run("XA ROLLBACK 'no'", "UPDATE a SET v = 'again' WHERE id = 3")
            until(lambda: is_equal(shop))
            assert len(shop.rows(shop.copy, "a")) == 5
        kept = f"SELECT count(*) FROM {shop.copy}_canal.canal_prepared"
        assert shop.server.execute(kept)[0][0] == 0


@pytest.mark.parametrize("is_late", [lambda row: OTHERS in row, lambda row: OTHERS not in row])
def test_senders_write_an_xa_transaction_however_messages_are_cut(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, is_late: Callable[[str], bool]
) -> None:
    """One of them had committed a message with the whole of it; to the other one, which had not, it
    came in two, and its rows were kept by nobody."""
    commit, ways = Sender.commit, {"senders": 2, "order": "table"}

    def fails(sender: Sender, *what: Any) -> None:
        if is_late(sender.row):
            raise SinkError("the connection was lost", "retry")
        commit(sender, *what)

    tables = "a", "d"  # of one sender each
    shop.run("CREATE TABLE d (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO d VALUES (1, '')")
    with shop.destination():
        with running(shop.mirror(**ways)):
            until(lambda: shop.is_mirrored(*tables))
        insert = [f"INSERT INTO {name} VALUES (4, 'four')" for name in tables]
        prepare(shop.server, shop.source, "both", *insert)
        shop.run("XA COMMIT 'both'", *(f"INSERT INTO {name} VALUES (5, '')" for name in tables))
        with monkeypatch.context() as patch:
            patch.setattr(Sender, "commit", fails)
            with running(runner := shop.mirror(**ways)):
                until(lambda: runner.status.retries > 1)
        with running(shop.mirror(sink={"batch_size": 1}, **ways)):
            until(lambda: shop.is_mirrored(*tables))
        kept = f"SELECT count(*) FROM {shop.copy}_canal.canal_prepared"
        with contextlib.suppress(pymysql.err.ProgrammingError):  # none were kept
            assert shop.server.execute(kept)[0][0] == 0


def test_rows_that_rollback_undoes_and_the_log_has_do_not_come(shop: Shop) -> None:
    """MariaDB logs them where the transaction has made a temporary table."""
    with shop.destination(), running(shop.mirror()):
        until(lambda: is_equal(shop))
        with shop.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"USE {shop.source}")
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO a VALUES (7, 'seven')")
            with contextlib.suppress(pymysql.err.Error):  # MySQL 9.7 refuses it there
                cursor.execute("CREATE TEMPORARY TABLE gone (id INT)")
            cursor.execute("ROLLBACK")
        shop.run("INSERT INTO b VALUES (2, 'two')")
        until(lambda: (2, "two") in shop.rows(shop.copy, "b"))
        assert is_equal(shop)


def test_rows_that_a_savepoint_undoes_and_the_log_has_do_not_come(shop: Shop) -> None:
    """MariaDB logs them where the transaction has changed a table without transactions since; of an
    XA transaction they do not come at XA COMMIT either."""
    shop.run("CREATE TABLE log (id INT PRIMARY KEY) ENGINE=MyISAM")
    with shop.destination(), running(shop.mirror()):
        until(lambda: is_equal(shop))
        for number, (begin, *end) in enumerate(
            [("BEGIN", "COMMIT"), ("XA START 'x'", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")]
        ):
            with shop.server.connect() as connection, connection.cursor() as cursor:
                for sql in (
                    f"USE {shop.source}",
                    begin,
                    f"INSERT INTO a VALUES ({10 + number}, 'kept')",
                    "SAVEPOINT s",
                    "DELETE FROM a WHERE id = 1",
                    f"INSERT INTO a VALUES ({20 + number}, 'gone')",
                    f"INSERT INTO log VALUES ({number})",
                    "ROLLBACK TO s",
                    f"INSERT INTO a VALUES ({30 + number}, 'kept')",
                    *end,
                ):
                    with contextlib.suppress(pymysql.err.OperationalError):  # MySQL 9.7: no `log`
                        cursor.execute(sql)
        shop.run("INSERT INTO b VALUES (2, 'two')")
        until(lambda: (2, "two") in shop.rows(shop.copy, "b"))
        until(lambda: is_equal(shop))
        assert len(shop.rows(shop.copy, "a")) == 7


@pytest.fixture
def pg_shop(mysql97: Server, postgres: PostgresServer, tmp_path: Path) -> Iterator[PgShop]:
    for shop in pg_shop_of(mysql97, postgres, tmp_path):
        yield shop
        end_all(mysql97)


def test_postgres_and_duckdb_keep_them_too(pg_shop: PgShop, tmp_path: Path) -> None:
    shop = pg_shop
    shop.run("CREATE TABLE k (id INT PRIMARY KEY, e ENUM('x', 'y'), b BLOB)")
    file = str(tmp_path / "mirror.duckdb")
    duck = sink_config(
        "duckdb", path=file, mirror={"database": "m"}, tables=rf"{shop.source}\.k", client_id=8
    )

    def rows() -> list[Any]:
        try:
            with duckdb.connect(file) as connection:
                return sorted(connection.execute("SELECT * FROM m.k").fetchall())
        except duckdb.Error:  # the sink has it, or has not made it
            return []

    def both(statement: str) -> None:
        """Run the sinks until they have what a statement brings."""
        with running(shop.mirror()), running(runner_of(duck)):
            shop.run(statement)
            wanted = shop.source_rows("k")
            until(lambda: shop.is_mirrored("k") and rows() == wanted)

    with shop.destination(held=True):  # one sink may subscribe behind what the other has acked
        both("INSERT INTO k VALUES (3, 'x', NULL)")
        prepare(
            shop.server, shop.source, "pg", "INSERT INTO k VALUES (1, 'x', x'00FF'), (2, 'y', 'b')"
        )
        both("INSERT INTO k VALUES (4, 'x', NULL)")
        both("XA COMMIT 'pg'")
        assert len(rows()) == 4
