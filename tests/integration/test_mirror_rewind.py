"""A mirror that goes back: what it had done after the place is done again, and no row is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_canal.sinks.databases.mysql import MySqlDatabase
from ray_canal.sinks.port import SinkError
from ray_canal.sinks.runner import Runner
from tests.in_process_sink import destination, runner_of, running, sink_config, until
from tests.integration.test_mysql_mirror import Shop, shop_of
from tests.local_destination import drain
from tests.servers import Server
from tests.servers.postgres import PostgresServer


@pytest.fixture
def shop(mysql97: Server, tmp_path: Path) -> Iterator[Shop]:
    yield from shop_of(mysql97, tmp_path)


def test_a_rename_that_was_not_committed_is_done_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that ends behind RENAME TABLE notes that it was done. After a seek to a place before,
    that note had it left out, and rows stayed under the old name."""
    shop.run(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "INSERT INTO a VALUES (1)",
        "RENAME TABLE a TO b",
        "INSERT INTO b VALUES (2)",
    )
    with _log_of(shop):
        with monkeypatch.context() as patch:
            patch.setattr(MySqlDatabase, "commit", _ends_behind_a_rename)
            first = shop.mirror()
            with pytest.raises(SinkError, match="renamed"), running(first):
                until(lambda: first.status.state == "failed")
        again = shop.mirror(sink={"client_id": 8})
        again._sink.forget_place()  # type: ignore[attr-defined]
        shop.server.execute(f"DROP DATABASE {shop.copy}")
        with running(again):
            until(lambda: shop.is_mirrored("b"), 20)
    found = shop.server.execute(f"SHOW TABLES FROM {shop.copy}_canal")
    assert found == (("canal_cursor",), ("canal_table",))


def _ends_behind_a_rename(
    database: MySqlDatabase, sink: str, place: str, commit: Any = MySqlDatabase.commit
) -> None:
    if database._marks:
        raise SinkError("a table was renamed")
    commit(database, sink, place)


STATEMENTS = (
    "CREATE TABLE a (id INT PRIMARY KEY, v INT)",
    "INSERT INTO a VALUES (1,1),(2,2),(9,9)",
    "CREATE TABLE x (id INT PRIMARY KEY, v INT)",
    "INSERT INTO x VALUES (1,-1),(2,-2)",
    "CREATE TABLE y (id INT PRIMARY KEY, v INT)",
    "INSERT INTO y VALUES (1,10),(3,30)",
    "CREATE TABLE t (id INT PRIMARY KEY)",
    "INSERT INTO t VALUES (1),(2)",
    "UPDATE a SET v = 20 WHERE id = 2",
    "RENAME TABLE a TO b",
    "INSERT INTO b VALUES (3,3)",
    "CREATE TABLE a (id INT PRIMARY KEY, w CHAR(1))",
    "INSERT INTO a VALUES (1,'n')",
    "RENAME TABLE b TO c, a TO b",
    "DELETE FROM c WHERE id = 1",
    "UPDATE x SET v = -7 WHERE id = 1",
    "RENAME TABLE x TO z, y TO x, z TO y",
    "INSERT INTO x VALUES (4,40)",
    "CREATE TABLE _t_gho (id INT PRIMARY KEY, more INT)",
    "INSERT INTO _t_gho VALUES (1,NULL),(2,NULL)",
    "INSERT INTO t VALUES (3)",
    "INSERT INTO _t_gho VALUES (3,NULL)",
    "RENAME TABLE t TO _t_del, _t_gho TO t",
    "INSERT INTO t VALUES (4,4)",
    "DROP TABLE _t_del",
    "RENAME TABLE x TO z, y TO x, z TO y",
    "UPDATE y SET v = v + 1 WHERE id = 4",
)


@pytest.mark.parametrize(("kind", "number"), [("mysql", 20), ("postgres", 8)])
def test_moved_back_over_renames_tables_keep_their_rows(
    kind: str, number: int, shop: Shop, postgres: PostgresServer
) -> None:
    """A table that had another name at the place gets it again, with the rows that it has. Else the
    rename, done once more, left it only the rows from the place on."""
    places = []
    for statement in STATEMENTS:
        places.append(shop.server.position())
        shop.run(statement)
    server: Any = postgres if kind == "postgres" else shop.server
    mirror = {"address": server.address, "username": "postgres" if server is postgres else "root"}
    mirror |= {"database": shop.copy, "cursor_database": f"{shop.copy}_canal"}
    config = sink_config(kind, mirror=mirror, tables=rf"{shop.source}\..*")

    def rows(of: Any, database: str) -> dict[str, Any]:
        return {t: sorted(of.execute(f"SELECT * FROM {database}.{t}")) for t in "bctxy"}

    theirs = rows(shop.server, shop.source)
    with _log_of(shop) as calls:
        _run_until(runner_of(config), places[-1])
        to = ":".join(map(str, places[number]))
        calls.ask(calls.destination.api.operate(7, "seek", to))
        again = runner_of(config)
        again._sink.forget_place()  # type: ignore[attr-defined]
        _run_until(again, places[-1])
        assert rows(server, shop.copy) == theirs


def _run_until(runner: Runner, place: tuple[str, int]) -> None:
    def has_come() -> bool:
        file, _, position = runner.status.cursor.rpartition(":")
        return bool(file) and (file, int(position)) > place

    with running(runner):
        until(has_come, 20)


def _log_of(shop: Shop) -> Any:
    source: dict[str, Any] = {"address": shop.server.address, "username": "root"}
    source |= {"start": "position", "journal_name": shop.start[0], "position": shop.start[1]}
    tables = {"tables": rf"{shop.source}\..*"}
    return destination(shop.folder, held=True, source=source, filter=tables, tsdb={})


def test_a_subscriber_that_was_removed_goes_on_where_the_target_is(shop: Shop) -> None:
    """The log, which others have read, begins behind it: what lay between was lost."""
    shop.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with shop.destination() as destination:
        local = destination.destination
        destination.ask(local.subscribe(8, ".*"))
        with running(shop.mirror()):
            until(lambda: shop.is_mirrored("t"))
        destination.ask(local.unsubscribe(7))
        shop.run("INSERT INTO t VALUES (2)")
        destination.ask(drain(local, 8))
        with running(shop.mirror()):
            until(lambda: 7 in local.state.subscribers.known)
            shop.run("INSERT INTO t VALUES (3)")
            until(lambda: shop.is_mirrored("t"), 20.0)
