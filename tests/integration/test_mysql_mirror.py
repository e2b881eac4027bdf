"""A mirror in MySQL: from a real server into a real server, equal to SELECT."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ray_canal.config import MirrorConfig
from ray_canal.sinks.databases.mirror import Mirror
from ray_canal.sinks.databases.mysql import MySqlDatabase
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.runner import Runner
from tests.in_process_sink import destination, runner_of, running, sink_config, until
from tests.servers import Server

numbers = itertools.count(1)


class Shop:
    """A source database of its own, its mirror, and the sink between them."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        number = next(numbers)
        self.source, self.copy = f"src{number}_{server.kind}", f"copy{number}_{server.kind}"
        self.folder = folder
        server.execute(f"CREATE DATABASE {self.source}")
        self.start = server.position()

    def run(self, *statements: str) -> None:
        self.server.execute(f"USE {self.source}", *statements)

    def mirror(
        self, tables: str = ".*", sink: Mapping[str, Any] | None = None, **mirror: Any
    ) -> Runner:
        """`tables`: which of the source database's, as a pattern; `sink`: more of its settings."""
        settings = {
            "address": self.server.address,
            "username": "root",
            "database": self.copy,
            "cursor_database": f"{self.copy}_canal",
            **mirror,
        }
        tables = rf"{self.source}\.{tables}"
        return runner_of(sink_config("mysql", mirror=settings, tables=tables, **(sink or {})))

    def destination(self, tables: str = "") -> Any:
        source = {
            "address": self.server.address,
            "username": "root",
            "start": "position",
            "journal_name": self.start[0],
            "position": self.start[1],
        }
        return destination(
            self.folder,
            source=source,
            filter={"tables": tables or rf"{self.source}\..*"},
            tsdb={},
        )

    def rows(self, where: str, table: str) -> Any:
        return sorted(self.server.execute(f"SELECT * FROM {where}.{table}"), key=repr)

    def is_mirrored(self, *tables: str) -> bool:
        try:
            return all(self.rows(self.source, t) == self.rows(self.copy, t) for t in tables)
        except Exception:  # the copy is not there yet
            return False

    def columns(self, table: str) -> list[str]:
        return [row[0] for row in self.server.execute(f"SHOW COLUMNS FROM {self.copy}.{table}")]


def shop_of(server: Server, folder: Path) -> Iterator[Shop]:
    shop = Shop(server, folder)
    yield shop
    server.execute(
        f"DROP DATABASE {shop.source}",
        *(f"DROP DATABASE IF EXISTS {each}" for each in (shop.copy, f"{shop.copy}_canal")),
    )


@pytest.fixture
def shop(mysql97: Server, tmp_path: Path) -> Iterator[Shop]:
    yield from shop_of(mysql97, tmp_path)


@pytest.fixture(params=["mysql97", "mysql56", "mariadb"])
def any_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """A shop and its mirror on each kind of server in turn."""
    yield from shop_of(request.getfixturevalue(request.param), tmp_path)


ALL_TYPES = """
CREATE TABLE kinds (id BIGINT UNSIGNED PRIMARY KEY, t TINYINT, u INT UNSIGNED, d DECIMAL(30,10),
 f FLOAT, g DOUBLE, s VARCHAR(200), c CHAR(3), e ENUM('a','it''s'), st SET('x','y'), b VARBINARY(9),
 bl BLOB, tx TEXT, dt DATE, ts TIMESTAMP(6) NULL, dm DATETIME(3), ti TIME(2), y YEAR, bi BIT(12),
 j JSON, po POINT)"""
VALUES = [
    "(1,-5,4000000000,'-12345678901234567890.0123456789',1.5,-2.25e-200,'it''s \\\\ \"x\"','é€',"
    "'it''s','x,y',x'00FF27',x'00',' \n','2026-01-31','2026-03-01 02:03:04.000005',"
    "'1999-12-31 23:59:59.123','-838:59:59',2026,b'101','{\"a\": [1, \"ü\"]}',POINT(1,2))",
    "(18446744073709551615,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,"
    "NULL,NULL,NULL,NULL,NULL,NULL)",
    "(0,0,0,0.0000000001,0,0,'','','a','','','','','1000-01-01','1970-01-01 00:00:01',"
    "'1000-01-01','00:00:00.01',1901,0,'null',POINT(0,0))",
]

NO_PAD = {"mysql97": "utf8mb4_0900_ai_ci", "mariadb": "utf8mb4_nopad_bin"}


@pytest.mark.parametrize("kind", ["mysql97", "mariadb"])
def test_rows_of_all_types_are_those_of_the_source(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The same rows in a table without a key, too: of each, one of two that are alike goes."""
    with contextlib.contextmanager(shop_of)(request.getfixturevalue(kind), tmp_path) as shop:
        all_types(shop)


def all_types(shop: Shop) -> None:
    without_key = ALL_TYPES.replace("kinds", "keyless").replace(" PRIMARY KEY", "")
    shop.run(
        "SET SESSION time_zone='+00:00', sql_mode='NO_AUTO_VALUE_ON_ZERO'",
        ALL_TYPES,
        *(f"INSERT INTO kinds VALUES {row}" for row in VALUES),
        without_key,
        *(f"INSERT INTO keyless VALUES {row}" for row in (*VALUES, *VALUES)),
        "UPDATE keyless SET g = g * 2, tx = 'changed' WHERE id = 1",
        "DELETE FROM keyless LIMIT 2",
        "CREATE TABLE pairs (a VARCHAR(20), b INT, v INT, PRIMARY KEY (a, b))",
        "INSERT INTO pairs VALUES ('x',1,1),('X ',2,2),('y',1,3)",
        "UPDATE pairs SET b = b + 1 ORDER BY b DESC",
        "UPDATE pairs SET a = 'X' WHERE a = 'x'",
        "DELETE FROM pairs WHERE a = 'y'",
        "INSERT INTO pairs VALUES ('y',2,4)",
        f"CREATE TABLE spaces (k VARCHAR(9) COLLATE {NO_PAD[shop.server.kind]} PRIMARY KEY, v INT)",
        "INSERT INTO spaces VALUES ('a',1),('a ',2),('b ',3)",
        "INSERT INTO spaces VALUES ('b',4)",
        "CREATE TABLE bare (v VARCHAR(9))",
        "INSERT INTO bare VALUES ('a'),('a ')",
        "DELETE FROM bare WHERE LENGTH(v) = 2",
    )
    with shop.destination(), running(shop.mirror(without_key="rows")):
        until(lambda: shop.is_mirrored("kinds", "pairs", "keyless", "spaces", "bare"))


ODD_TYPES = r"""
CREATE TABLE odd (id INT PRIMARY KEY, e ENUM('a\\b','it''s'), st SET('x\\','y'), f FLOAT(53),
 n NVARCHAR(9), nc NATIONAL CHAR(3), b VARCHAR(9) CHARACTER SET binary, c CHAR(3) BYTE,
 tb TEXT CHARACTER SET binary, lv LONG VARCHAR, big FLOAT, zero DOUBLE, s SERIAL)"""


@pytest.mark.parametrize("kind", ["mysql97", "mysql56", "mariadb"])
def test_types_are_declared_as_the_target_takes_them(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Types that mean something else, or nothing, outside of the statement that they come from."""
    with contextlib.contextmanager(shop_of)(request.getfixturevalue(kind), tmp_path) as shop:
        shop.run(
            ODD_TYPES,
            r"INSERT INTO odd VALUES (1,'a\\b','x\\,y',1e300,'ü','é',x'FF00',x'FE',x'00FF','long',"
            "3.4028234663852886e38,-0e0,7)",
            "INSERT INTO odd (id, big) VALUES (2, -3.4028234663852886e38)",
        )
        with shop.destination(), running(shop.mirror()):
            until(lambda: shop.is_mirrored("odd"))
            assert repr(shop.rows(shop.copy, "odd")) == repr(shop.rows(shop.source, "odd")), "-0.0"
            shop.run("UPDATE odd SET lv = 'changed'")
            until(lambda: shop.is_mirrored("odd"))


def test_a_timestamp_in_the_key_stays_as_it_is(any_shop: Shop) -> None:
    """Servers before MySQL 8 set the first TIMESTAMP of a table to the time of each UPDATE that
    does not name it."""
    shop = any_shop
    shop.run(
        "CREATE TABLE clocks (k TIMESTAMP(2) DEFAULT '2001-01-01', v INT, PRIMARY KEY (k))",
        "INSERT INTO clocks VALUES ('2020-01-01 00:00:01.25', 1)",
    )
    with shop.destination(), running(shop.mirror()):
        until(lambda: shop.is_mirrored("clocks"))
        shop.run("UPDATE clocks SET v = 2", "CREATE TABLE last (id INT PRIMARY KEY)",
                 "INSERT INTO last VALUES (1)")  # fmt: skip
        until(lambda: shop.is_mirrored("last"))
        assert shop.is_mirrored("clocks")


KEYS = {
    "texts": ("VARCHAR(20) CHARACTER SET utf8mb4 COLLATE {nopad}", "'a'", "'a '", "'b'"),
    "padded": ("VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_general_ci", "'a'", "'b '", "'c'"),
    "decimals": ("DECIMAL(40,10)", "12345678901234567890.0000000001",
                 "12345678901234567890.0000000002", "0.0000000001"),
    "floats": ("FLOAT", "0.1", "16777217", "-3.4028234663852886e38"),
    "doubles": ("DOUBLE", "0.1", "1e300", "-1.7976931348623157e308"),
    "binaries": ("BINARY(4)", "x'01'", "x'0100FF'", "x''"),
    "times": ("TIME(3)", "'-12:00:00.5'", "'00:00:00.001'", "'800:00:00'"),
    "moments": ("DATETIME(6)", "'2026-01-01'", "'2026-01-01 00:00:00.000001'", "'1000-01-01'"),
    "stamps": ("TIMESTAMP(2)", "'2026-01-01'", "'2026-01-01 00:00:00.01'", "'1999-01-01'"),
    "bits": ("BIT(9)", "b'1'", "b'100000000'", "b'0'"),
    "enums": ("ENUM('x','y','z')", "'x'", "'y'", "'z'"),
    "sets": ("SET('x','y','z')", "'x'", "'x,z'", "''"),
    "years": ("YEAR", "1901", "2000", "2155"),
}  # fmt: skip


FOUND_IN_ALL_WAYS = ("texts", "decimals", "floats", "binaries")


@pytest.mark.parametrize("kind", ["mysql97", "mariadb"])
def test_keys_of_each_type_find_their_row(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Rows are found by key, one and several columns, and by all their values."""
    server = request.getfixturevalue(kind)
    nopad = "utf8mb4_0900_ai_ci" if kind == "mysql97" else "utf8mb4_general_nopad_ci"
    with contextlib.contextmanager(shop_of)(server, tmp_path) as shop:
        tables, statements = [], []
        for name, (declared, *values) in KEYS.items():
            column = f"k {declared.format(nopad=nopad)} NOT NULL"
            keys = {name: "k", f"{name}_two": "i, k", f"{name}_none": ""}
            for table, key in list(keys.items())[: 3 if name in FOUND_IN_ALL_WAYS else 1]:
                tables.append(table)
                end = f", PRIMARY KEY ({key})" if key else ""
                rows = "),(".join(f"{value},1" for value in values)
                statements += [f"CREATE TABLE {table} ({column}, i INT{end})",
                               f"INSERT INTO {table} VALUES ({rows})"]  # fmt: skip
        shop.run(*statements)
        with shop.destination(), running(shop.mirror(without_key="rows")):
            until(lambda: shop.is_mirrored(tables[-1]))  # as the log has them, the last one
            assert shop.is_mirrored(*tables)
            statements = []
            for table in tables:
                first, second, third = KEYS[table.split("_")[0]][1:]
                statements += [
                    f"DELETE FROM {table} WHERE k = {third}",
                    f"UPDATE {table} SET i = 2 WHERE k = {second}",
                    f"DELETE FROM {table} WHERE ABS(i) = 1",
                    f"UPDATE {table} SET k = {first} WHERE i = 2",
                ]
            shop.run(*statements)
            until(lambda: shop.is_mirrored(tables[-1]))
            assert shop.is_mirrored(*tables)


def test_tables_follow_the_source(any_shop: Shop) -> None:
    shop = any_shop
    json_type = "TEXT" if shop.server.kind == "mysql56" else "JSON"
    runner = shop.mirror(schema_change="evolve", without_key="rows")
    with shop.destination(), running(runner):
        shop.run(
            "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
            "INSERT INTO t VALUES (1,1),(2,2)",
            f"CREATE TABLE keyless (v INT, w FLOAT, j {json_type})",
            "INSERT INTO keyless VALUES (1,0.1,'{\"b\": [1, null]}'),(1,0.1,'{}'),(NULL,2,NULL)",
            "DELETE FROM keyless LIMIT 1",
            "UPDATE keyless SET w = 3 WHERE v IS NULL",
        )
        until(lambda: shop.is_mirrored("t", "keyless"))
        shop.run("ALTER TABLE t ADD c VARCHAR(9)", "UPDATE t SET c = 'new'")
        until(lambda: shop.is_mirrored("t"))
        shop.run("ALTER TABLE t MODIFY v BIGINT", f"UPDATE t SET v = {1 << 40}")
        until(lambda: shop.is_mirrored("t"))
        shop.run("TRUNCATE TABLE t", "INSERT INTO t VALUES (5,5,'five')")
        until(lambda: shop.is_mirrored("t"))
        shop.run("RENAME TABLE t TO moved", "UPDATE moved SET v = 6")
        until(lambda: shop.is_mirrored("moved"))
        nothing = ["DROP SEQUENCE IF EXISTS moved", "RENAME TABLE IF EXISTS nope TO moved"]
        passed = nothing if shop.server.kind == "mariadb" else []
        alter = "ALTER TABLE moved DROP COLUMN c, RENAME TO moved"
        shop.run(alter, *passed, "INSERT INTO moved VALUES (7,7)")
        until(lambda: shop.is_mirrored("moved"))
        assert shop.columns("moved") == ["id", "v"]
        shop.run("DROP TABLE moved")
        until(lambda: not shop.server.execute(f"SHOW TABLES FROM {shop.copy} LIKE 'moved'"))
    assert runner.status.retries == 0


def goes_on_behind(shop: Shop, why: str, change: str) -> None:
    """A sink stops at an ALTER of table t, and goes on when somebody has made it in the mirror."""
    runner = shop.mirror()
    with pytest.raises(SinkError, match=why), running(runner):
        until(lambda: runner.status.state == "failed")
    shop.server.execute(f"ALTER TABLE {shop.copy}.t {change}")
    with running(shop.mirror()):
        until(lambda: shop.is_mirrored("t"))


def test_a_type_that_would_round_values_stops_the_sink(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v INT, w VARCHAR(9))",
             "INSERT INTO t VALUES (1,1,'a')")  # fmt: skip
    with shop.destination():
        with running(shop.mirror()):
            until(lambda: shop.is_mirrored("t"))
            shop.run("ALTER TABLE t MODIFY w VARCHAR(90)", "INSERT INTO t VALUES (2,2,'b')")
            until(lambda: shop.is_mirrored("t"))
        shop.run("ALTER TABLE t MODIFY v DECIMAL(10,2)", "INSERT INTO t VALUES (3,1.25,'c')")
        goes_on_behind(shop, "rounded", "MODIFY v DECIMAL(10,2)")


def test_a_second_runner_takes_over_and_the_first_one_stops(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1)")
    with shop.destination():
        first = shop.mirror()
        with running(first):
            until(lambda: shop.is_mirrored("t"))
        sink = first._sink
        sink.open()
        shop.mirror()._sink.open()
        assert isinstance(sink, Mirror)
        sender = sink._first
        with pytest.raises(SinkError, match="taken over") as caught:
            sender.commit((), None)
        assert caught.value.kind == "fenced"
        with pytest.raises(SinkError, match="taken over"):
            sender.begin_ddl()
        sink.close()


def test_values_of_other_unique_keys_may_be_swapped(shop: Shop) -> None:
    table = "(id INT PRIMARY KEY, u INT NOT NULL UNIQUE)"
    shop.server.execute(f"CREATE DATABASE {shop.copy}", f"CREATE TABLE {shop.copy}.t {table}")
    shop.run(f"CREATE TABLE t {table}", "INSERT INTO t VALUES (1,1),(2,2)")
    with shop.server.connect(database=shop.source, autocommit=False) as connection:
        for row in ("u=9 WHERE id=1", "u=1 WHERE id=2", "u=2 WHERE id=1"):
            connection.cursor().execute(f"UPDATE t SET {row}")
        connection.commit()
    with shop.destination(), running(shop.mirror()):
        until(lambda: shop.is_mirrored("t") and shop.rows(shop.copy, "t") == [(1, 2), (2, 1)])


# --- what users of Canal's RDB adapter report --------------------------------------------------


def test_a_deadlock_in_the_target_is_repeated_and_loses_nothing(shop: Shop) -> None:
    """Canal #4680, #4059: the adapter loses the rows of a batch that a deadlock rolled back."""
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)",
             "INSERT INTO t VALUES " + ",".join(f"({n},0)" for n in range(50)))  # fmt: skip
    runner = shop.mirror()
    server = shop.server
    waits = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"

    def waits_for_a_lock() -> bool:
        time.sleep(0.2)  # what is read again sooner may come from InnoDB's cache of 0.1 s
        return bool(server.execute(waits)[0][0] > 0)

    with shop.destination(), running(runner):
        until(lambda: shop.is_mirrored("t"))
        server.execute(f"CREATE TABLE {shop.copy}.busy (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
        with server.connect(database=shop.copy, autocommit=False) as connection:
            other = connection.cursor()
            # Whoever has changed more is not the one that is rolled back.
            other.execute("INSERT INTO busy (v) VALUES " + ",".join(["(1)"] * 1000))
            other.execute("UPDATE t SET v = v + 0 WHERE id = 40")
            other.execute("SELECT * FROM t WHERE id = 40 FOR UPDATE")
            shop.run("UPDATE t SET v = 7")
            until(waits_for_a_lock)
            other.execute("SELECT * FROM t WHERE id = 1 FOR UPDATE")  # a deadlock, or our rollback
            connection.rollback()
        shop.run("INSERT INTO t VALUES (100, 1)")
        until(lambda: shop.is_mirrored("t"))
    assert runner.status.retries > 0
    assert "Deadlock" in (runner.status.error or "Deadlock")


def test_ddl_comes_after_the_changes_before_it(shop: Shop) -> None:
    """Canal #3918: the adapter runs DDL before changes that stand in front of it in the log."""
    shop.run(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(9), v INT)",
        "INSERT INTO t VALUES (1,'a',1),(2,'b',2)",
        "UPDATE t SET v = LENGTH(a) * 10",
        "ALTER TABLE t DROP COLUMN a",
        "INSERT INTO t VALUES (3,3)",
        "ALTER TABLE t ADD COLUMN a INT",
        "INSERT INTO t VALUES (4,4,4)",
        "TRUNCATE TABLE t",
        "INSERT INTO t VALUES (5,5,5)",
        "RENAME TABLE t TO u",
        "CREATE TABLE t (id INT PRIMARY KEY, other INT)",
        "INSERT INTO t VALUES (1,1)",
        "UPDATE u SET v = 6",
        "DROP TABLE t",
        "CREATE TABLE t (id INT PRIMARY KEY, third INT)",
        "INSERT INTO t VALUES (9,9)",
    )  # all of it is in the log before the sink begins
    runner = shop.mirror(schema_change="evolve")
    with shop.destination(), running(runner):
        until(lambda: shop.is_mirrored("t", "u"))
    assert runner.status.retries == 0
    assert shop.columns("t") == ["id", "third"]


def test_one_bad_table_stops_only_itself(shop: Shop, tmp_path: Path) -> None:
    """Canal #5249: new tables, TINYINT(1), zero dates, and a table that does not fit."""
    shop.server.execute(f"CREATE DATABASE {shop.copy}",
                        f"CREATE TABLE {shop.copy}.bad (other INT PRIMARY KEY)")  # fmt: skip
    shop.run(
        "SET SESSION sql_mode=''",
        "CREATE TABLE bad (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE good (id INT PRIMARY KEY, flag TINYINT(1), day DATE, at DATETIME)",
        "INSERT INTO bad VALUES (1,1)",
        "INSERT INTO good VALUES (1,2,'2026-01-01','2026-01-01'),(2,-1,NULL,NULL)",
        "INSERT INTO good VALUES (3,0,'0000-00-00','0000-00-00')",
        "CREATE TABLE fresh (id INT PRIMARY KEY)",
        "INSERT INTO fresh VALUES (1)",
        "INSERT INTO bad VALUES (2,2)",
    )
    config = shop.mirror()._config.model_copy(update={"dead_letters": str(tmp_path / "dead.jsonl")})
    runner = runner_of(config)
    with shop.destination(), running(runner):
        until(lambda: shop.is_mirrored("fresh"))
        shop.run("UPDATE bad SET v = 3", "UPDATE good SET day = '2026-02-02' WHERE id = 3")
        until(lambda: len(shop.rows(shop.copy, "good")) == 3 and "2026, 2, 2" in
              repr(shop.rows(shop.copy, "good")[2]))  # fmt: skip
        shop.run("UPDATE good SET at = NULL WHERE id = 3")
        until(lambda: shop.is_mirrored("good", "fresh"))
        lines = [json.loads(line) for line in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert runner.status.tables_aside == [f"{shop.source}.bad"]
    assert {line["table"] for line in lines} == {"bad"}
    assert [row["after"]["v"] for line in lines for row in line["rows"]] == [1, 2, 3, 3]
    assert shop.server.execute(f"SELECT count(*) FROM {shop.copy}.bad") == ((0,),)


def test_runners_that_begin_at_once_have_different_epochs(shop: Shop) -> None:
    """Two runners that took the target over in the same moment read the same epoch, so both
    wrote."""
    config = MirrorConfig(
        address=shop.server.address, username="root", cursor_database=f"{shop.copy}_canal"
    )
    databases = [MySqlDatabase(config) for _ in range(4)]
    for each in databases:
        each.connect()
    databases[0].take_over("s")
    for _ in range(50):
        with ThreadPoolExecutor(len(databases)) as pool:
            epochs = [epoch for epoch, _ in pool.map(lambda each: each.take_over("s"), databases)]
        assert len(set(epochs)) == len(epochs)
    for each in databases:
        each.close()
