"""Mirrors that several connections write at once: whatever happens, each change is there once."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_canal.config import SinkConfig
from ray_canal.sinks.databases.mirror import Mirror
from ray_canal.sinks.databases.port import RENAMES
from ray_canal.sinks.open import make_sink
from ray_canal.sinks.port import Cursor, SinkError
from tests.in_process_sink import destination, runner_of, sink_config
from tests.servers import Server
from tests.servers.postgres import PostgresServer
from tests.sink_runs import killed

TABLES = ("keyed", "texts", "pairs", "uniques", "keyless", "renamed")
STEPS = (
    "take_over:2:after", "commit:4:after", "upsert:3:before", "delete_like:2:after",
    "add:1:after", "commit:9:before", "empty:1:after", "commit:8:after",
)  # fmt: skip
"""Counted over all connections: some have committed, others not."""


def workload(server: Server, name: str) -> None:
    """Keys that change, come again and swap a unique value; DDL between them."""
    server.execute(
        "FLUSH BINARY LOGS", f"CREATE DATABASE {name}", f"USE {name}",
        "CREATE TABLE keyed (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE texts (id VARCHAR(20) PRIMARY KEY, v INT) COLLATE utf8mb4_0900_as_cs",
        "CREATE TABLE pairs (a INT, b BINARY(2), v INT, PRIMARY KEY (a, b))",
        "CREATE TABLE uniques (id INT PRIMARY KEY, u INT, UNIQUE (u))",
        "CREATE TABLE keyless (v INT, w VARCHAR(9))",
        "CREATE TABLE emptied (id INT PRIMARY KEY)",
    )  # fmt: skip
    draw = random.Random(5)
    with server.connect(database=name, autocommit=False) as connection:
        cursor = connection.cursor()
        for number in range(240):
            key = draw.randrange(30)
            cursor.execute(f"REPLACE INTO keyed (id, v) VALUES ({key}, {number})")
            cursor.execute(f"REPLACE INTO texts VALUES ('{key}é', {number})")
            cursor.execute(f"REPLACE INTO pairs VALUES ({key % 5}, '{key % 7}', {number})")
            cursor.execute(f"INSERT INTO keyless VALUES ({number % 4}, 'x')")
            cursor.execute(f"INSERT IGNORE INTO uniques VALUES ({key}, {number})")
            cursor.execute(f"REPLACE INTO emptied VALUES ({key})")
            if number % 3 == 0:
                new = draw.randrange(30)
                cursor.execute(f"UPDATE IGNORE keyed SET id = {new} WHERE id = {key}")
                cursor.execute(f"UPDATE IGNORE texts SET id = '{new}é' WHERE id = '{key}é'")
                cursor.execute(f"DELETE FROM keyless WHERE v = {number % 4} LIMIT 1")
                cursor.execute(f"DELETE FROM uniques WHERE id = {new}")
                cursor.execute(f"UPDATE IGNORE uniques SET u = {number} WHERE id = {key}")
            connection.commit()
            if number == 80:
                cursor.execute("ALTER TABLE keyed ADD COLUMN more INT")
            if number == 120:
                cursor.execute("TRUNCATE TABLE emptied")
            if number == 160:
                cursor.execute("RENAME TABLE emptied TO renamed")
                cursor.execute("CREATE TABLE emptied (id INT PRIMARY KEY)")


@pytest.fixture(scope="module")
def source(mysql97: Server) -> Iterator[tuple[str, Path]]:
    name = "shared_out"
    workload(mysql97, name)
    log = mysql97.binlogs()[-1]
    yield name, log
    mysql97.execute(f"DROP DATABASE {name}")


class Target:
    """Where the mirror is, with a unique key of its own, whose values move between rows."""

    def __init__(self, kind: str, server: Any, source: tuple[str, Path], mysql: Server) -> None:
        self.kind, self.server, self._mysql = kind, server, mysql
        self.source, self.log = source
        self.copy, self.cursors = f"{self.source}_copy", f"{self.source}_canal"
        self.clear()
        make = "CREATE SCHEMA" if kind == "postgres" else "CREATE DATABASE"
        server.execute(
            f"{make} {self.copy}",
            f"CREATE TABLE {self.copy}.uniques (id INT PRIMARY KEY, u INT UNIQUE)",
        )

    def clear(self) -> None:
        postgres = self.kind == "postgres"
        drop, end = ("SCHEMA", " CASCADE") if postgres else ("DATABASE", "")
        names = (self.copy, self.cursors)
        self.server.execute(*(f"DROP {drop} IF EXISTS {name}{end}" for name in names))

    def config(self, senders: int, order: str, size: int) -> SinkConfig:
        mirror = {
            "address": self.server.address, "username": "postgres", "database": self.copy,
            "cursor_database": self.cursors, "without_key": "rows", "order": order,
            "senders": senders,
        }  # fmt: skip
        if self.kind != "postgres":
            mirror["username"] = "root"
        return sink_config(
            self.kind, mirror=mirror, tables=rf"{self.source}\..*", batch_size=size
        )

    def is_mirrored(self) -> None:
        for table in TABLES:
            theirs = self._mysql.execute(f"SELECT * FROM {self.source}.{table}")
            ours = self.server.execute(f"SELECT * FROM {self.copy}.{table}")
            assert sorted(ours, key=repr) == sorted(theirs, key=repr), table

    def rows_of_cursors(self) -> list[str]:
        found = self.server.execute(f"SELECT sink FROM {self.cursors}.canal_cursor ORDER BY 1")
        return [row[0] for row in found if not row[0].endswith(RENAMES)]


@pytest.fixture(params=["postgres", "mysql"])
def target(
    mysql97: Server, postgres: PostgresServer, source: tuple[str, Path],
    request: pytest.FixtureRequest,
) -> Iterator[Target]:  # fmt: skip
    server = postgres if request.param == "postgres" else mysql97
    found = Target(request.param, server, source, mysql97)
    yield found
    found.clear()


@pytest.mark.parametrize(
    ("target", "order"),
    [pytest.param("postgres", "key", marks=pytest.mark.soak), ("mysql", "table")],
    indirect=["target"],
)
def test_killed_while_some_have_committed_and_others_not(
    target: Target, order: str, tmp_path: Path
) -> None:
    ends = killed(tmp_path, target.config(3, order, 4), {"files": [str(target.log)]}, STEPS)
    assert ends == ["-9"] * len(STEPS) + ["0"]
    target.is_mirrored()
    assert target.rows_of_cursors() == ["s", f"s#{order}/3/1", f"s#{order}/3/2"]


def test_other_senders_begin_where_all_have_come_to_one_place(
    target: Target, tmp_path: Path
) -> None:
    """A run ends between the commits of its senders; the next one has others, or a single one."""
    layouts = [(3, "key"), (2, "table"), (1, "transaction"), (4, "key"), (2, "key")]
    with destination(tmp_path, source={"files": [str(target.log)]}, tsdb={}):
        for number, (senders, order) in enumerate(layouts):
            config = target.config(senders, order, 4)
            sink = make_sink(config)
            assert isinstance(sink, Mirror)
            if number < len(layouts) - 1:
                fail_at(sink, 6 + 2 * number)
                with pytest.raises(SinkError, match="here it ends"):
                    runner_of(config, sink).run(threading.Event())
            else:
                runner_of(config, sink).run(threading.Event())
    target.is_mirrored()
    assert target.rows_of_cursors() == ["s", "s#key/2/1"]


def test_a_unique_key_that_comes_or_goes_while_senders_are_apart(
    target: Target, tmp_path: Path
) -> None:
    """A table with one is a single sender's: whoever has to write what one of them missed, it is
    written."""
    add = f"ALTER TABLE {target.copy}.keyed ADD CONSTRAINT one UNIQUE (v)"
    drop = f"ALTER TABLE {target.copy}.keyed DROP " + (
        "CONSTRAINT one" if target.kind == "postgres" else "INDEX one"
    )
    config = target.config(3, "key", 4)
    with destination(tmp_path, source={"files": [str(target.log)]}, tsdb={}):
        for number, change in enumerate((add, drop, add, drop, add, drop)):
            sink = make_sink(config)
            assert isinstance(sink, Mirror)
            fail_at(sink, 6, sender=number % 3)
            with pytest.raises(SinkError, match="here it ends"):
                runner_of(config, sink).run(threading.Event())
            target.server.execute(change)
        runner_of(config).run(threading.Event())
    target.is_mirrored()


def fail_at(sink: Mirror, commits: int, sender: int = -1) -> None:
    """Let one of a mirror's senders fail in its commit, once the mirror has made some."""
    commit, count = sink.commit, itertools.count(1)

    def counted(upto: Cursor) -> None:
        if next(count) == commits:
            sink._senders[sender].database.commit = refused  # type: ignore[method-assign]
        commit(upto)

    def refused(sink: str, place: str) -> None:
        raise SinkError("here it ends")

    sink.commit = counted  # type: ignore[method-assign]


def test_a_second_run_shuts_all_senders_out(target: Target, tmp_path: Path) -> None:
    config = target.config(3, "key", 4)
    first, second = make_sink(config), make_sink(config)
    assert isinstance(first, Mirror)
    first.open()
    second.open()
    for sender in first._senders:
        with pytest.raises(SinkError, match="another runner has taken over") as raised:
            sender.begin()
        assert raised.value.kind == "fenced"
    first.close()
    second.close()
