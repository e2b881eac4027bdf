"""What a mirror's tables refuse, and tables that were made by hand: nothing is lost in silence."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from deltalake import DeltaTable

from ray_canal.config import CanalConfig, MetaConfig, SinkConfig
from ray_canal.destination.api import ClientRequest
from ray_canal.meta.subscribers import forget_subscriber
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.runner import Runner
from tests.in_process_sink import runner_of, running, sink_config, take_snapshot, until
from tests.integration.test_mysql_mirror import Shop, shop_of
from tests.local_destination import NAME, instance
from tests.lossy_calls import LossyCalls
from tests.servers import Server
from tests.servers.postgres import PostgresServer


@pytest.fixture
def shop(mysql97: Server, tmp_path: Path) -> Iterator[Shop]:
    yield from shop_of(mysql97, tmp_path)


def test_what_a_table_refuses_is_among_the_dead_letters(shop: Shop) -> None:
    """A value of another row's in the target's own unique key, a row beyond max_allowed_packet, a
    column that has to have a value: the first had taken the other row's place."""
    shop.server.execute(
        f"CREATE DATABASE {shop.copy}", f"USE {shop.copy}",
        "CREATE TABLE one (id INT PRIMARY KEY, mail VARCHAR(9) COLLATE utf8mb4_general_ci UNIQUE)",
        "CREATE TABLE needs (id INT PRIMARY KEY, must INT NOT NULL)",
    )  # fmt: skip
    dead = shop.folder / "dead.jsonl"
    with shop.server.with_global("max_allowed_packet", str(4 << 20)):
        runner = shop.mirror(sink={"dead_letters": str(dead)})
        shop.run(
            "CREATE TABLE one (id INT PRIMARY KEY, mail VARCHAR(9))",
            "INSERT INTO one VALUES (1,'a'),(3,'c')",
            "INSERT INTO one VALUES (2,'A')",
            "CREATE TABLE needs (id INT PRIMARY KEY)",
            "INSERT INTO needs VALUES (1)",
            "CREATE TABLE large (id INT PRIMARY KEY, b LONGBLOB)",
            "INSERT INTO large VALUES (1, REPEAT('x', 2200000))",  # its digits are twice as many
            "INSERT INTO large VALUES (2, 'y')",
        )
        with shop.destination(), running(runner):
            until(lambda: shop.rows(shop.copy, "large") == [(2, b"y")] if ready(shop) else False)
    assert shop.rows(shop.copy, "one") == [(1, "a"), (3, "c")]
    letters = [json.loads(line) for line in dead.read_text().splitlines()]
    assert {letter["table"] for letter in letters} == {"one", "needs", "large"}
    assert [row["after"]["id"] for letter in letters for row in letter["rows"]].count(2) == 1
    assert any("max_allowed_packet" in letter["error"] for letter in letters)
    aside = json.loads((shop.folder / "dead.jsonl.tables.json").read_text())
    assert list(aside) == [f"{shop.source}.needs"]


def ready(shop: Shop) -> bool:
    return bool(shop.server.execute(f"SHOW TABLES FROM {shop.copy} LIKE 'large'"))


def test_a_statement_whose_rows_are_not_in_the_log_stops_the_sink(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY RANGE (id)"
        " (PARTITION few VALUES LESS THAN (10), PARTITION rest VALUES LESS THAN MAXVALUE)",
        "INSERT INTO t VALUES (1),(20)",
    )
    with shop.destination():
        with running(shop.mirror()):
            until(lambda: shop.is_mirrored("t"))
        shop.run("ALTER TABLE t TRUNCATE PARTITION few", "INSERT INTO t VALUES (3)")
        runner = shop.mirror()
        said = "cannot follow: ALTER TABLE t TRUNCATE PARTITION few.* mirror.schema_change = "
        with pytest.raises(SinkError, match=said), running(runner):
            until(lambda: runner.status.state == "failed")
        with running(shop.mirror(schema_change="ignore")):
            until(lambda: (3,) in shop.rows(shop.copy, "t"))
    assert shop.rows(shop.copy, "t") == [(1,), (20,), (3,)]


def test_a_table_that_is_full_is_waited_for(shop: Shop) -> None:
    """As on a disk that is full: it had ended the sink."""
    shop.server.execute(
        f"CREATE DATABASE {shop.copy}", f"USE {shop.copy}", "SET max_heap_table_size = 16384",
        "CREATE TABLE t (id INT PRIMARY KEY, b CHAR(200)) ENGINE=MEMORY",
    )  # fmt: skip
    shop.run(
        "CREATE TABLE t (id INT PRIMARY KEY, b CHAR(200))", "SET cte_max_recursion_depth = 4000",
        "INSERT INTO t WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n"
        " WHERE n < 3000) SELECT n, 'x' FROM n",
    )  # fmt: skip
    runner = shop.mirror()
    with shop.destination(), running(runner):
        until(lambda: runner.status.retries)
        assert "full" in runner.status.error
        shop.server.execute(f"ALTER TABLE {shop.copy}.t ENGINE=InnoDB")
        until(lambda: shop.is_mirrored("t"))


def test_generated_columns_values_that_are_no_label_and_tables_that_come_again(shop: Shop) -> None:
    """A table that was made as the source's is computes them itself. An ENUM's value that is none
    of its labels is NULL, as a date that there is not. A table that comes again with another
    key and other columns, while it is empty, is made again."""
    body = "(id INT PRIMARY KEY, n INT, s INT AS (n + 1) STORED, v INT AS (n + 2))"
    shop.server.execute(f"CREATE DATABASE {shop.copy}", f"CREATE TABLE {shop.copy}.made {body}")
    shop.run(
        "SET SESSION sql_mode = ''",
        f"CREATE TABLE made {body}",
        "INSERT INTO made (id, n) VALUES (1, 1), (2, 2)",
        "UPDATE made SET n = 7 WHERE id = 2",
        "CREATE TABLE labels (id INT PRIMARY KEY, e ENUM('a','it''s'), f ENUM('','b'))",
        "INSERT INTO labels VALUES (1,'a',''),(2,'none','none'),(3,NULL,'b')",
        "CREATE TABLE t (id INT PRIMARY KEY, a INT)",
        "INSERT INTO t VALUES (1, 1)",
        "DELETE FROM t",
        "DROP TABLE t",
        "CREATE TABLE t (id INT, b INT PRIMARY KEY, c INT)",
        "INSERT INTO t VALUES (1, 2, 3)",
    )
    with shop.destination(), running(shop.mirror()):
        until(lambda: shop.is_mirrored("made", "t"))
        until(lambda: bool(shop.server.execute(f"SHOW TABLES FROM {shop.copy} LIKE 'labels'")))
        until(lambda: len(shop.rows(shop.copy, "labels")) == 3)
    assert shop.rows(shop.copy, "labels") == [(1, "a", ""), (2, None, ""), (3, None, "b")]


def test_generated_and_identity_columns_of_postgres(
    mysql97: Server, postgres: PostgresServer, shop: Shop
) -> None:
    postgres.execute(
        f"CREATE SCHEMA {shop.copy}",
        f"CREATE TABLE {shop.copy}.t (id INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n INT,"
        " s INT GENERATED ALWAYS AS (n + 1) STORED)",
    )
    shop.run(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, s INT AS (n + 1))",
        "INSERT INTO t (id, n) VALUES (1, 1), (5, 2)",
        "UPDATE t SET n = 7 WHERE id = 5",
    )
    with in_postgres(shop, postgres) as (config, rows), \
            shop.destination(), running(runner_of(config)):  # fmt: skip
        until(lambda: rows("t") == [(1, 1, 2), (5, 7, 8)])


@contextlib.contextmanager
def in_postgres(
    shop: Shop, postgres: PostgresServer, **more: Any
) -> Iterator[tuple[SinkConfig, Callable[[str], list[Any]]]]:
    """A sink into PostgreSQL, and what tables have there."""
    mirror = {
        "address": postgres.address,
        "username": "postgres",
        "database": shop.copy,
        "cursor_database": f"{shop.copy}_canal",
    }
    try:
        yield (
            sink_config("postgres", mirror=mirror, tables=rf"{shop.source}\..*", **more),
            lambda table: sorted(postgres.execute(f"SELECT * FROM {shop.copy}.{table}")),
        )
    finally:
        ours = (shop.copy, f"{shop.copy}_canal")
        postgres.execute(*(f"DROP SCHEMA IF EXISTS {each} CASCADE" for each in ours))


def test_what_was_refused_comes_by_a_snapshot_and_what_went_by_one_of_an_empty_table(
    postgres: PostgresServer, shop: Shop
) -> None:
    """As docs/how-to/sinks.md says. Nothing is written to the source between the two snapshots: the
    rows of the second one had the row ids of the first one's, and the sink left them out."""
    dead = shop.folder / "dead.jsonl"
    postgres.execute(
        f"CREATE SCHEMA {shop.copy}",
        f"CREATE TABLE {shop.copy}.t (id INT PRIMARY KEY, v INT, CONSTRAINT few CHECK (v < 100))",
        f"CREATE TABLE {shop.copy}.u (id INT PRIMARY KEY)",
        f"CREATE TABLE {shop.copy}.child (id INT CONSTRAINT fk REFERENCES {shop.copy}.u (id))",
    )
    shop.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 1), (3, 3), (4, 4)", "INSERT INTO u VALUES (1), (2)",
    )  # fmt: skip
    with in_postgres(shop, postgres, dead_letters=str(dead)) as (config, rows):
        runner = runner_of(config)
        with shop.destination() as destination, running(runner):
            until(lambda: len(rows("t")) == 3 and len(rows("u")) == 2)
            postgres.execute(f"INSERT INTO {shop.copy}.child VALUES (1)")
            shop.run(
                "INSERT INTO t VALUES (2, 200)", "UPDATE t SET v = 300 WHERE id = 3",
                "UPDATE t SET id = 5, v = 500 WHERE id = 4", "DELETE FROM u WHERE id = 1",
                "INSERT INTO t VALUES (6, 6)",
            )  # fmt: skip
            until(lambda: (6, 6) in rows("t"))
            assert (runner.status.dead_letters, len(dead.read_text().splitlines())) == (4, 4)
            postgres.execute(
                f"ALTER TABLE {shop.copy}.t DROP CONSTRAINT few",
                f"ALTER TABLE {shop.copy}.child DROP CONSTRAINT fk",
            )
            both = rf"{shop.source}\.[tu]"
            take_snapshot(destination, both)
            now = [(1, 1), (2, 200), (3, 300), (5, 500), (6, 6)]
            until(lambda: rows("t") == sorted([*now, (4, 4)]))  # it has another key now
            assert rows("u") == [(1,), (2,)]
            postgres.execute(f"TRUNCATE TABLE {shop.copy}.t, {shop.copy}.u")
            take_snapshot(destination, both)
            until(lambda: rows("t") == now and rows("u") == [(2,)])


def is_known(destination: LossyCalls, config: SinkConfig) -> bool:
    known = destination.ask(destination.destination.api.subscribers())
    return config.client_id in [subscriber["client_id"] for subscriber in known]


def test_a_subscriber_that_was_removed_and_comes_again_gets_its_snapshot(
    postgres: PostgresServer, shop: Shop
) -> None:
    """The target keeps the sink's place, and nothing is written to the source between the
    snapshots: attempts began at 1 again, so rows had the row ids of the first one's. It is removed
    while its destination runs, before a restart, too, and while it does not run."""
    shop.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    there = [(1,), (2,)]
    removals = [True, True], [False], [True]  # of each of its lives: while it runs, or behind it
    with in_postgres(shop, postgres) as (config, rows):
        for are_running in removals:
            with shop.destination() as destination:
                destination.ask(destination.destination.subscribe(0, ".*"))  # the timeline stays
                has_subscribed = functools.partial(is_known, destination, config)
                for is_running in are_running:
                    with running(runner_of(config)):
                        until(has_subscribed)
                        take_snapshot(destination, rf"{shop.source}\.t")
                        until(lambda: rows("t") == there, 20.0)
                    if is_running:
                        who = ClientRequest(client_id=config.client_id)
                        destination.ask(destination.destination.api.unsubscribe(who))
                    postgres.execute(f"TRUNCATE TABLE {shop.copy}.t")
            if not is_running:
                meta = MetaConfig(path=str(shop.folder / "meta.db"))
                canal = CanalConfig(instance=(instance(),), meta=meta)
                assert forget_subscriber(canal, NAME, config.client_id)


@pytest.mark.parametrize("kind", ["mysql", "postgres"])
def test_a_table_that_was_set_aside_comes_again_by_a_snapshot(
    kind: str, postgres: PostgresServer, shop: Shop
) -> None:
    """It is dropped in the target, and made as the source's is then: its type and a column's name
    have changed, and rows have gone."""
    dead = shop.folder / "dead.jsonl"
    aside = Path(f"{dead}.tables.json")
    shop.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id)"
        " (PARTITION few VALUES LESS THAN (4), PARTITION rest VALUES LESS THAN MAXVALUE)",
        "INSERT INTO t VALUES (1, 1), (2, 2), (4, 4)",
        "ALTER TABLE t TRUNCATE PARTITION rest",
        "DELETE FROM t WHERE id = 1",
        "ALTER TABLE t MODIFY v DOUBLE",
        "ALTER TABLE t RENAME COLUMN v TO w",
        "INSERT INTO t VALUES (5, 5.25)",
        "CREATE TABLE good (id INT PRIMARY KEY)",
        "INSERT INTO good VALUES (1)",
    )
    with in_postgres(shop, postgres, dead_letters=str(dead)) as (config, of_postgres), \
            shop.destination() as destination:  # fmt: skip
        is_mysql = kind == "mysql"
        if is_mysql:
            config = shop.mirror(sink={"dead_letters": str(dead)})._config

        def rows(table: str) -> Any:
            with contextlib.suppress(psycopg.Error, pymysql.Error):  # it is not there yet
                return shop.rows(shop.copy, table) if is_mysql else of_postgres(table)

        with running(runner_of(config)):
            until(lambda: rows("good") == [(1,)])
        assert rows("t") == [(1, 1), (2, 2), (4, 4)]
        assert list(json.loads(aside.read_text())) == [f"{shop.source}.t"]
        aside.unlink()
        (shop.server if is_mysql else postgres).execute(f"DROP TABLE {shop.copy}.t")
        with running(runner_of(config)):
            take_snapshot(destination, rf"{shop.source}\.t")
            until(lambda: rows("t") == [(2, 2.0), (5, 5.25)])
    assert not aside.exists()


def test_values_that_a_statement_changed_come_again_by_a_snapshot(
    postgres: PostgresServer, shop: Shop
) -> None:
    """Text in latin1 that became bytes, bytes that became text, a fraction that was rounded: the
    limits that docs/how-to/databases.md names, and what it says to do."""
    shop.run(
        "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET latin1, t DATETIME(6))",
        "INSERT INTO a VALUES (1, 'é', '2026-01-01 10:00:00.600001')",
        "CREATE TABLE b (id INT PRIMARY KEY, v VARBINARY(9))",
        "INSERT INTO b VALUES (1, x'E9')",
    )
    with in_postgres(shop, postgres) as (config, rows), shop.destination() as destination:
        tree = config.model_dump()
        tree["mirror"]["schema_change"] = "evolve"
        config = SinkConfig.model_validate(tree)

        def has(table: str, *wanted: Any) -> bool:
            with contextlib.suppress(psycopg.Error):  # it is not there yet
                return rows(table) == [wanted]
            return False

        runner = runner_of(config)
        with running(runner):
            until(lambda: has("b", 1, b"\xe9"))
            shop.run("ALTER TABLE a MODIFY v VARBINARY(9), MODIFY t DATETIME")
            until(lambda: rows("a")[0][1] == b"\xc3\xa9")
            take_snapshot(destination, rf"{shop.source}\.a")
            until(lambda: has("a", 1, b"\xe9", dt.datetime(2026, 1, 1, 10, 0, 1)))
        shop.run("ALTER TABLE b MODIFY v VARCHAR(9) CHARACTER SET latin1")
        runner = runner_of(config)
        said = rf"0xe9 .*drop {shop.copy}.b, start the sink again, and let `ray-canal snapshot"
        with pytest.raises(SinkError, match=said), running(runner):
            until(lambda: runner.status.state == "failed")
        postgres.execute(f"DROP TABLE {shop.copy}.b")
        with running(runner_of(config)):
            take_snapshot(destination, rf"{shop.source}\.b")
            until(lambda: has("b", 1, "é"))


@pytest.mark.parametrize("kind", ["mysql", "delta"])
def test_a_deployment_stops_where_a_later_one_has_written(shop: Shop, kind: str) -> None:
    """With a sink of one name and destination: it had written its older rows over the other's, and
    to a lake nothing, without a word."""
    folders = shop.folder / "first", shop.folder / "second"
    lake = {"path": str(shop.folder / "lake"), "database": "copy"}

    def mirror() -> Runner:
        if kind == "mysql":
            return shop.mirror()
        return runner_of(sink_config("delta", lake=lake, tables=rf"{shop.source}\..*"))

    def has(count: int) -> bool:
        if kind == "mysql":
            return shop.is_mirrored("t")
        table = Path(lake["path"]) / "copy" / "t"
        return table.exists() and DeltaTable(str(table)).to_pyarrow_table().num_rows == count

    shop.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    for number, shop.folder in enumerate(folders, 2):
        shop.folder.mkdir()
        with shop.destination(), running(mirror()):
            until(lambda: has(number - 1))  # noqa: B023
        shop.run(f"INSERT INTO t VALUES ({number})")
        time.sleep(1.1)  # a timeline is the second in which it begins
    shop.folder = folders[0]
    runner = mirror()
    with shop.destination(), pytest.raises(SinkError, match="another deployment"), running(runner):
        until(lambda: runner.status.state == "failed")
    assert not has(3), "it wrote"


@pytest.mark.parametrize("policy", ["stop", "rows"])
def test_a_sequence_is_no_table_of_a_mirror(
    policy: str, mariadb: Server, tmp_path: Path
) -> None:
    """Its one row comes as one that is inserted, whenever values are taken from it."""
    with contextlib.contextmanager(shop_of)(mariadb, tmp_path) as shop:
        shop.run(
            "CREATE TABLE t (id INT PRIMARY KEY)",
            "CREATE SEQUENCE s CACHE 2",
            *["INSERT INTO t VALUES (NEXTVAL(s))"] * 5,
            "RENAME TABLE s TO u",
            "ALTER SEQUENCE u RESTART 100",
            "INSERT INTO t VALUES (NEXTVAL(u))",
            "DROP SEQUENCE u",
            "CREATE TABLE s (id INT PRIMARY KEY)",
            "INSERT INTO s VALUES (7)",
        )
        with shop.destination(), running(shop.mirror(without_key=policy)):
            until(lambda: shop.is_mirrored("t", "s"))
        assert shop.server.execute(f"SHOW TABLES FROM {shop.copy}") == (("s",), ("t",))


def test_statements_that_change_no_table_of_the_target_stop_no_sink(shop: Shop) -> None:
    shop.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1,1)")
    with shop.destination():
        with running(shop.mirror()):
            until(lambda: shop.is_mirrored("t"))
        shop.run(
            "ALTER TABLE t ADD INDEX (v), COMMENT 'x'",
            "ALTER TABLE t RENAME TO t",
            "OPTIMIZE TABLE t",
            "CREATE TABLE IF NOT EXISTS t (id INT)",
            "DROP TABLE IF EXISTS never",
            "INSERT INTO t VALUES (2,2)",
        )
        with running(shop.mirror(schema_change="stop")):
            until(lambda: shop.is_mirrored("t"))
