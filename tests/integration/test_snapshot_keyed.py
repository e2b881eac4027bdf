"""Rows that are read between the changes of the log, beside writers, on real servers.

The judge applies what comes in its order. A row that is read is what the log has made of its key,
or the key is new; the before image of each change is what is held; and at the end, with the changes
from the snapshot's place on, the tables are what SELECT shows.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest

import ray_canal as canal
from ray_canal.errors import ConfigError, ServerSettingRefused, TableMetaMismatch
from ray_canal.model.table_event import ERASE, RENAME, TRUNCATE
from ray_canal.snapshot.keyed import KeyedSnapshot
from ray_canal.snapshot.read import Snapshot, read_snapshot
from tests.integration.test_snapshot import config_of
from tests.servers import Server

CREATE = (
    "create table keyed.n (id int primary key, v int)",
    "create table keyed.c (a varchar(20) character set utf8mb4, b smallint, v int, "
    "primary key (a, b desc))",
    "create table keyed.u (v int, k varbinary(9) not null, t varchar(9) character set latin1 "
    "not null, unique key by_both (k, t))",
)
KEYS = {"n": ("id",), "c": ("a", "b"), "u": ("k", "t")}
NAMES = ("a", "A", "b", "ba ", "é", "日本", "", "zz")


def literal(r: random.Random, table: str) -> tuple[str, str]:
    """(condition, values) of a random key."""
    if table == "n":
        number = r.randrange(-150, 150)
        return f"id = {number}", f"({number}, {{}})"
    if table == "c":
        name, number = r.choice(NAMES), r.randrange(20)
        return f"a = '{name}' and b = {number}", f"('{name}', {number}, {{}})"
    key, text = r.randbytes(1).hex(), r.choice(("x", "é", "y"))
    return f"k = X'{key}' and t = '{text}'", f"({{}}, X'{key}', '{text}')"


def _of_three(r: random.Random) -> str:
    return statement(r)


class Writers:
    """Clients that insert, change, delete and rename keys until they are stopped."""

    def __init__(
        self, server: Server, count: int, seed: int, say: Callable[[random.Random], str] = _of_three
    ) -> None:
        """`say`: makes a statement."""
        self._server = server
        self._say = say
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(seed + number,), daemon=True)
            for number in range(count)
        ]

    def _write(self, seed: int) -> None:
        r = random.Random(seed)
        while not self._stopped.is_set():
            # A connection may be killed, by those who disturb a snapshot. A limit: a test that has
            # failed in the midst of DDL waits for this, too.
            with (
                contextlib.suppress(pymysql.err.MySQLError),
                self._server.connect(read_timeout=60) as connection,
            ):
                self._change(connection.cursor(), r)

    def _change(self, cursor: Any, r: random.Random) -> None:
        while not self._stopped.is_set():
            try:
                cursor.execute("begin")
                for _ in range(r.choice((1, 1, 3))):
                    cursor.execute(self._say(r))
                cursor.execute(r.choice(("commit", "commit", "commit", "rollback")))
            except pymysql.err.MySQLError:
                cursor.execute("rollback")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            for thread in self._threads:
                thread.join()


def statement(r: random.Random) -> str:
    table = r.choice(tuple(KEYS))
    condition, values = literal(r, table)
    value = r.randrange(1 << 30)
    if table == "n" and r.random() < 0.2:
        return f"update keyed.n set id = {r.randrange(-150, 150)} where {condition}"
    if table == "c" and r.random() < 0.2:
        return f"update keyed.c set a = upper(a), v = {value} where {condition}"
    return r.choice((
        f"insert into keyed.{table} values {values.format(value)} "
        f"on duplicate key update v = {value}",
        f"replace into keyed.{table} values {values.format(value)}",
        f"delete from keyed.{table} where {condition}",
    ))


class Judge:
    """Holds what comes."""

    def __init__(self, keys: Mapping[str, tuple[str, ...]] = KEYS) -> None:
        self.keys = keys
        self.rows: dict[str, dict[tuple[Any, ...], int]] = {name: {} for name in keys}
        self.read = 0
        self.repeats = False
        """Something may come again: what is held may be newer."""

    def take(self, batch: pa.RecordBatch) -> None:
        name = batch.schema.metadata[b"canal.table"].decode()
        if name in self.keys:
            for row in batch.to_pylist():
                self._row(name, row)

    def _row(self, name: str, row: dict[str, Any]) -> None:
        held, kind = self.rows[name], row["event_type"]
        if kind in (TRUNCATE, ERASE, RENAME):
            held.clear()
            return
        if self.repeats:
            self._again(name, row)
            return
        before, after = row["before"], row["after"]
        if kind == "READ":
            self.read += 1
            key = self._key(name, after)
            assert held.get(key, after["v"]) == after["v"], (name, row)
        if before is not None:
            key = self._key(name, before)
            assert held.pop(key, before["v"]) == before["v"], (name, row)
        if after is not None:
            key = self._key(name, after)
            assert kind == "READ" or key not in held, (name, row)
            held[key] = after["v"]

    def _again(self, name: str, row: dict[str, Any]) -> None:
        for image in (row["before"], row["after"]):
            if image is not None:
                self.rows[name].pop(self._key(name, image), None)
        if row["after"] is not None:
            self.rows[name][self._key(name, row["after"])] = row["after"]["v"]
        self.read += row["event_type"] == "READ"

    def _key(self, name: str, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[column] for column in self.keys[name])


def judged(server: Server, chunk_bytes: int) -> tuple[Judge, Snapshot]:
    instance = config_of(server).destination("snap")
    judge = Judge()
    with Snapshot(KeyedSnapshot(instance, r"keyed\..*", chunk_bytes), "null") as snapshot:
        for batch in snapshot:
            judge.take(batch)
    return judge, snapshot


def go_on(server: Server, judge: Judge, snapshot: Snapshot, schema_sql: Path) -> None:
    """Apply the log from the snapshot's place on."""
    place = snapshot.position
    paths = [path for path in server.binlogs() if path.name >= place.journal_name]
    for batch in canal.decode_files(paths, tables=r"keyed\..*", schema_sql=schema_sql):
        name, offsets = batch.column("journal_name").to_pylist(), batch.column("position")
        keep = [
            (journal, position) >= (place.journal_name, place.position)
            for journal, position in zip(name, offsets.to_pylist(), strict=True)
        ]
        judge.take(batch.filter(pa.array(keep, pa.bool_())))


def held_now(
    server: Server, keys: Mapping[str, tuple[str, ...]] = KEYS
) -> dict[str, dict[tuple[Any, ...], int]]:
    found = {}
    for name, key in keys.items():
        rows = server.execute(f"select {', '.join(key)}, v from keyed.{name}")
        found[name] = {row[:-1]: row[-1] for row in rows}
    return found


@pytest.fixture
def keyed(server: Server, tmp_path: Path) -> Iterator[Path]:
    """The tables with some rows; a file with their statements."""
    server.execute("drop database if exists keyed", "create database keyed", *CREATE)
    r, statements = random.Random(1), []
    for _ in range(150):
        name = r.choice(tuple(KEYS))
        _, values = literal(r, name)
        statements.append(f"replace into keyed.{name} values {values.format(r.randrange(1 << 30))}")
    server.execute("begin", *statements, "commit", "flush binary logs")
    schema_sql = tmp_path / "schema.sql"
    schema_sql.write_text(";\n".join(CREATE))
    yield schema_sql
    server.execute("drop database keyed")


def beside_writers(server: Server, schema_sql: Path, seed: int, chunk_bytes: int) -> None:
    with server.with_global("sync_binlog", "1"), Writers(server, 4, seed).running():
        judge, snapshot = judged(server, chunk_bytes)
    assert judge.read > 20
    go_on(server, judge, snapshot, schema_sql)
    assert judge.rows == held_now(server)


def test_beside_writers_no_row_is_lost_or_goes_back(server: Server, keyed: Path) -> None:
    beside_writers(server, keyed, seed=10, chunk_bytes=1600)


@pytest.mark.soak
def test_many_snapshots_beside_writers(server: Server, keyed: Path) -> None:
    """`RAY_CANAL_SEEDS` of them, one after the other; a seed that fails is named."""
    for seed in range(100, 100 + 10 * int(os.environ.get("RAY_CANAL_SEEDS", "20")), 10):
        try:
            beside_writers(server, keyed, seed, chunk_bytes=800)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


def test_on_an_idle_server_it_ends(server: Server, keyed: Path) -> None:
    judge, snapshot = judged(server, chunk_bytes=1000)
    assert judge.rows == held_now(server)
    assert snapshot.rows == judge.read == sum(map(len, judge.rows.values()))
    assert snapshot.position.gtid
    go_on(server, judge, snapshot, keyed)  # the place has the snapshot's rows: nothing comes twice
    assert judge.rows == held_now(server)


def test_keys_of_every_type(server: Server, keyed: Path) -> None:
    """Each is cut into ranges of two rows; each row is in exactly one of them."""
    kinds = {
        "bigint unsigned": ("0", "18446744073709551615", "7", "8", "9"),
        "decimal(20,5)": ("-1.5", "0", "99999999999999.99999", "1.00001", "2"),
        "double": ("-1.5", "0.1", "1e300", "3", "4"),
        "double precision": ("-3", "-2.5", "-2", "-1.2345678901234567e-17"),
        "float": ("-3", "-2.5", "-2", "-1.1754943508222875e-38"),
        "date": ("'2020-01-01'", "'1999-12-31'", "'2020-02-29'", "'9999-12-31'", "'1000-01-01'"),
        "datetime(6)": ("'2020-01-01 00:00:00.000001'", "'2020-01-01'", "'2021-01-01'"),
        "timestamp(3)": ("'2020-01-01 00:00:00.5'", "'2020-01-01'", "'2021-01-01'"),
        "time(2)": ("'-800:00:00'", "'00:00:00.25'", "'838:00:00'"),
        "enum('z','a','m')": ("'z'", "'a'", "'m'"),
        "bit(40)": ("b'1'", "b'101'", "b'1111111111111111111111111111111111111111'"),
        "binary(3)": ("'a'", "'ab'", "X'00ff00'", "X'27'", "''"),
        "varchar(9) character set latin1": ("'é'", "'e1'", "'z'", "'\\''", "''"),
        "varchar(9) character set gbk": ("'中'", "'文'", "'a'"),
        "char(9) character set utf8mb4 collate utf8mb4_bin": ("'a'", "'A'", "'日'", "'\\\\'"),
        "varchar(9) character set utf16": ("'a'", "'é'", "'日'"),
    }
    server.execute("drop database if exists types_k", "create database types_k")
    for number, (kind, values) in enumerate(kinds.items()):
        rows = ",".join(f"({value})" for value in values)
        server.execute(
            f"create table types_k.t{number} (k {kind} not null primary key)",
            f"insert into types_k.t{number} values {rows}",
        )
    instance = config_of(server).destination("snap")
    counts: dict[str, int] = {}
    with Snapshot(KeyedSnapshot(instance, r"types_k\..*", 16), "null") as snapshot:
        for batch in snapshot:
            name = batch.schema.metadata[b"canal.table"].decode()
            counts[name] = counts.get(name, 0) + batch.num_rows
    server.execute("drop database types_k")
    assert counts == {f"t{number}": len(v) for number, v in enumerate(kinds.values())}


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("(t text, primary key (t(10)))", r"its key PRIMARY has only a prefix of t, t\(10\)"),
        ("(t varchar(99) not null, v int, unique key w (t(7)))", r"its key w has .* t\(7\)"),
        ("(t int unique)", "no primary key, and no unique one"),
    ],
)
def test_why_a_table_has_no_key_to_read_by(
    server: Server, keyed: Path, table: str, why: str
) -> None:
    """A key as the reason says to add one is read by."""
    server.execute(f"create table keyed.why {table}")
    with pytest.raises(ConfigError, match=rf"keyed\.why: {why}.*; read it with"):
        read_snapshot(config_of(server), "snap", tables=r"keyed\.why", mode="keyed")
    server.execute(
        "alter table keyed.why add column n int not null, add unique key (n) using btree"
    )
    read_snapshot(config_of(server), "snap", tables=r"keyed\.why", mode="keyed").close()


def test_what_no_mode_reads_as_its_engine_is(server: Server, keyed: Path) -> None:
    """The advice is not the other mode, which refuses it, too; what it says is read."""
    tables = {
        "(t int not null) engine = csv": "no primary key",
        "(t int primary key) engine = memory": "its key PRIMARY is a HASH index",
    }
    if not server.is_mariadb:
        tables["(t int auto_increment primary key) engine = archive"] = (
            "its engine cannot read ranges of its key PRIMARY"
        )
    config = config_of(server)
    for table, why in tables.items():
        server.execute("drop table if exists keyed.why", f"create table keyed.why {table}")
        advice = r'so mode "consistent" cannot .* make it an InnoDB table$'
        with pytest.raises(ConfigError, match=rf"keyed\.why: {why}.*; .*{advice}"):
            read_snapshot(config, "snap", tables=r"keyed\.why", mode="keyed")
        with pytest.raises(ConfigError, match=r"keyed\.why: .* leave the table out [^,]*$"):
            read_snapshot(config, "snap", tables=r"keyed\.why")
        server.execute("alter table keyed.why engine = InnoDB")
        read_snapshot(config, "snap", tables=r"keyed\.why").close()
    server.execute("alter table keyed.n engine = MyISAM")
    with pytest.raises(ConfigError, match=r'keyed\.n: .* read view, .* or read by mode "keyed"$'):
        read_snapshot(config, "snap", tables=r"keyed\.n")
    read_snapshot(config, "snap", tables=r"keyed\.n", mode="keyed").close()


def test_what_it_refuses(server: Server, keyed: Path) -> None:
    config = config_of(server)
    server.execute("create table keyed.bag (v int)", "insert into keyed.bag values (1)")
    with pytest.raises(ConfigError, match=r"keyed\.bag: no primary key"):
        read_snapshot(config, "snap", tables=r"keyed\..*", mode="keyed")
    with pytest.raises(ConfigError, match="expected"):
        read_snapshot(config, "snap", tables=r"keyed\.n", mode="quick")  # type: ignore[arg-type]
    with server.with_global("binlog_row_image", "MINIMAL"), pytest.raises(
        ServerSettingRefused, match="binlog_row_image"
    ):
        read_snapshot(config, "snap", tables=r"keyed\.n", mode="keyed")
    with read_snapshot(config, "snap", tables=r"keyed\.n", mode="keyed") as snapshot:
        server.execute("truncate table keyed.n", "insert into keyed.n values (1, 1)")
        with pytest.raises(TableMetaMismatch, match=r"keyed\.n was altered, emptied"):
            list(snapshot)
