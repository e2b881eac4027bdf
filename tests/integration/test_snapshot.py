"""Rows that are read are the rows that the log has: types, edges, and moments, on real servers."""

from __future__ import annotations

import json
import random
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from typer.testing import CliRunner

import ray_canal as canal
from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.cli import app
from ray_canal.config import load
from ray_canal.errors import ConfigError, PrivilegeMissing, SourceError, TableMetaMismatch
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.offline import decode_chunks
from ray_canal.snapshot.commits import PendingCommits
from ray_canal.snapshot.consistent import ConsistentSnapshot, moment_readers
from ray_canal.snapshot.moment_reader import MomentReader, Read
from ray_canal.snapshot.read import Snapshot, read_snapshot
from ray_canal.snapshot.read_views import open_views
from ray_canal.source.catalog import Catalog
from ray_canal.views.arrow import batches
from ray_canal.views.entries import iter_entries
from tests.integration.test_differential import RandomTable
from tests.servers import Server

SEEDS = 6
VIEWS = 150
ROWS = 8


def config_of(server: Server, **source: Any) -> Any:
    address = {"address": server.address, "username": "root", **source}
    return load({"instance": [{"destination": "snap", "source": address}]})


def snapshot_of(server: Server, tables: str, **options: Any) -> Snapshot:
    return read_snapshot(config_of(server), "snap", tables=tables, **options)


def rows_of(server: Server, tables: str, **options: Any) -> dict[str, list[dict[str, Any]]]:
    """What a snapshot reads: table -> rows."""
    found: dict[str, list[dict[str, Any]]] = {}
    with snapshot_of(server, tables, **options) as snapshot:
        for batch in snapshot:
            assert set(batch.column("event_type").to_pylist()) == {"READ"}
            assert batch.column("before").null_count == batch.num_rows
            name = batch.schema.metadata[b"canal.table"].decode()
            found.setdefault(name, []).extend(batch.column("after").to_pylist())
        assert snapshot.rows == sum(map(len, found.values()))
    return found


@pytest.fixture
def database(server: Server) -> Iterator[None]:
    with server.with_database("snap"):
        yield


def images(chunk: DecodedChunk) -> dict[str, list[tuple[pa.StructScalar, list[tuple[str, bool]]]]]:
    """table -> rows of after images as Arrow has them and as entries do."""
    count = chunk.layout.event_count
    rows: dict[str, list[Any]] = {}
    for batch in batches(chunk, 0, count):
        name = batch.schema.metadata[b"canal.table"].decode()
        rows.setdefault(name, []).extend(batch.column("after"))
    texts: dict[str, list[Any]] = {}
    for entry in iter_entries(chunk, 0, count):
        if entry.entryType != pb.ROWDATA:
            continue
        for row in pb.RowChange.FromString(entry.storeValue).rowDatas:
            values = [(column.value, column.isNull) for column in row.afterColumns]
            texts.setdefault(entry.header.tableName, []).append(values)
    return {name: list(zip(rows[name], texts[name], strict=True)) for name in rows}


def images_of(server: Server, tables: str) -> dict[str, list[Any]]:
    """What a snapshot reads, as `images` has it."""
    config = config_of(server).destination("snap")
    source = ConsistentSnapshot(config, (SnapshotWish(tables),), moment_readers(config, 1))
    read: dict[str, list[Any]] = {}
    try:
        for found in source.chunks():
            assert isinstance(found, Read)
            for name, rows in images(found.chunk).items():
                read.setdefault(name, []).extend(rows)
    finally:
        source.close()
    return read


def write_random(server: Server, seed: int) -> str:
    """A table of random columns with random rows."""
    table = RandomTable(seed, server)
    with server.connect() as connection, connection.cursor() as cursor:
        mode = "'allow_invalid_dates,no_engine_substitution'"
        cursor.execute(f"set names utf8mb4, time_zone='+00:00', sql_mode={mode}")
        cursor.execute(table.ddl.replace("d.", "snap.", 1))
        for key in range(ROWS):
            values = ",".join([str(key), *(table._value(kind) for kind in table.kinds)])
            cursor.execute(f"insert into snap.{table.name} values ({values})")
    return table.name


def test_a_row_that_is_read_is_the_row_that_was_streamed(server: Server, database: None) -> None:
    server.execute("flush binary logs")
    first = len(server.binlogs()) - 1
    names = [write_random(server, seed) for seed in range(SEEDS)]
    server.execute("flush binary logs")
    streamed: dict[str, list[Any]] = {}
    for _, chunk in decode_chunks(server.binlogs()[first:-1]):
        for name, rows in images(chunk).items():
            streamed.setdefault(name, []).extend(rows)
    read = images_of(server, r"snap\..*")
    assert sorted(read) == sorted(names)
    for name in names:
        for mine, theirs in zip(read[name], streamed[name], strict=True):
            assert mine[0].type == theirs[0].type, name
            assert mine[0] == theirs[0], name
            assert mine[1] == theirs[1], name


def test_tables_of_every_shape(server: Server, database: None) -> None:
    server.execute(
        "create table snap.empty (id int primary key)",
        "create table snap.one (id int primary key, `a ``b` int)",
        "insert into snap.one values (1, 2)",
        "create table snap.keyless (v int)",
        "insert into snap.keyless values (1), (1), (null)",
        "create table snap.maybe (k int null, v int, unique (k))",
        "insert into snap.maybe values (null, 1), (null, 1), (3, 1)",
        "create table snap.parts (id int primary key, v int) "
        "partition by hash (id) partitions 3",
        "insert into snap.parts values (1, 1), (2, 2), (3, 3)",
        "create view snap.shown as select * from snap.one",
    )
    found = rows_of(server, r"snap\..*")
    assert sorted(found) == ["keyless", "maybe", "one", "parts"]
    assert found["one"] == [{"id": 1, "a `b": 2}]
    assert sorted(str(row["v"]) for row in found["keyless"]) == ["1", "1", "None"]
    assert sorted(str(row["k"]) for row in found["maybe"]) == ["3", "None", "None"]
    assert sorted(row["id"] for row in found["parts"]) == [1, 2, 3]
    with snapshot_of(server, r"snap\..*") as snapshot:
        assert snapshot.left_out == (
            ("snap.shown", "a view: read the tables that it shows"),
        )
        assert "snap.empty" in snapshot.tables
    with pytest.raises(ConfigError, match=r"snap\.shown is a view"):
        snapshot_of(server, r"snap\.shown")
    with pytest.raises(ConfigError, match="no table to read matches"):
        snapshot_of(server, r"snap\.nothing")


def test_hidden_and_generated_columns(mysql97: Server) -> None:
    mysql97.execute("drop database if exists hide", "create database hide")
    mysql97.execute(
        "set session sql_generate_invisible_primary_key=1",
        "create table hide.g (id int primary key, v int as (id * 2) virtual, h int invisible "
        "default 7)",
        "insert into hide.g (id) values (1), (2)",
    )
    with mysql97.connect() as connection, connection.cursor() as cursor:
        cursor.execute("set sql_generate_invisible_primary_key=1")
        cursor.execute("create table hide.k (v int)")
        cursor.execute("insert into hide.k values (5)")
    found = rows_of(mysql97, r"hide\..*")
    assert found["g"] == [{"id": 1, "v": 2, "h": 7}, {"id": 2, "v": 4, "h": 7}]
    assert found["k"] == [{"my_row_id": 1, "v": 5}]


def test_versioned_tables_and_sequences(mariadb: Server) -> None:
    mariadb.execute(
        "create or replace database ver",
        "create table ver.t (id int primary key, v int) with system versioning",
        "insert into ver.t values (1, 1)",
        "update ver.t set v = 2",
        "create sequence ver.s",
        "create table ver.flat (id int) engine=MyISAM",
    )
    with pytest.raises(ConfigError, match=r"ver\.flat: the engine has no read view"):
        snapshot_of(mariadb, r"ver\..*")
    mariadb.execute("drop table ver.flat")
    [row] = rows_of(mariadb, r"ver\..*")["t"]
    assert (row["v"], list(row)) == (2, ["id", "v", "row_start", "row_end"])


def test_years_of_two_digits(mariadb: Server) -> None:
    """The log has four, SELECT shows two."""
    mariadb.execute(
        "create or replace database years",
        "create table years.y (id int primary key, y year(2))",
        "insert into years.y values (1, '00'), (2, 69), (3, 70), (4, null), (5, 99)",
    )
    years = [row["y"] for row in rows_of(mariadb, r"years\..*")["y"]]
    assert years == [2000, 2069, 1970, None, 1999]


def test_long_rows_and_many_packets(server: Server, database: None) -> None:
    """Rows larger than the buffer, and larger than a packet can be (which MySQL 5.6 takes in a
    larger redo log alone)."""
    most = 3 << 20 if server.kind == "mysql56" else (1 << 24) + 5
    big = server.with_global("max_allowed_packet", str(64 << 20))
    with big, server.connect(max_allowed_packet=64 << 20) as connection:
        cursor = connection.cursor()
        cursor.execute("create table snap.l (id int primary key, b longblob, t longtext)")
        for key, size in ((1, 10), (2, 2 << 20), (3, most), (4, 0)):
            cursor.execute(
                f"insert into snap.l values ({key}, repeat('x', {size}), repeat('é', {size // 2}))"
            )
        found = {row["id"]: row for row in rows_of(server, r"snap\.l")["l"]}
    assert {key: len(row["b"]) for key, row in found.items()} == {
        1: 10, 2: 2 << 20, 3: most, 4: 0
    }  # fmt: skip
    assert found[3]["t"] == "é" * (most // 2)


def test_several_readers_cut_a_table(
    server: Server, database: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray_canal.snapshot.consistent._PART_BYTES", 1 << 14)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("create table snap.n (id bigint unsigned primary key, v varchar(200))")
        keys = [*range(3000), *range((1 << 64) - 2000, 1 << 64)]
        cursor.executemany("insert into snap.n values (%s, 'x')", [[key] for key in keys])
        cursor.execute("analyze table snap.n")
    with snapshot_of(server, r"snap\.n", readers=3) as snapshot:
        found = [
            (ordinal >> 32, row["id"])
            for batch in snapshot
            for ordinal, row in zip(
                batch.column("row").to_pylist(), batch.column("after").to_pylist(), strict=True
            )
        ]
    assert sorted(key for _, key in found) == keys
    assert len({part for part, _ in found}) > 3


def test_what_it_refuses(server: Server, database: None) -> None:
    server.execute("create table snap.t (id int primary key)", "insert into snap.t values (1)")
    with pytest.raises(ConfigError, match="at least one reader"):
        snapshot_of(server, r"snap\.t", readers=0)
    files = load({"instance": [{"destination": "snap", "source": {"files": ["x"]}}]})
    with pytest.raises(ConfigError, match="read from a server"):
        read_snapshot(files, "snap")
    with snapshot_of(server, r"snap\.t") as snapshot:
        server.execute("alter table snap.t add v int")
        with pytest.raises((TableMetaMismatch, SourceError), match=r"alter|definition"):
            list(snapshot)
    server.execute(
        "create user blind@'%' identified by 'x'", "grant replication client on *.* to blind@'%'"
    )
    try:
        with pytest.raises((ConfigError, PrivilegeMissing)):
            read_snapshot(config_of(server, username="blind", password="x"), "snap")
    finally:
        server.execute("drop user blind@'%'")


class Writers:
    """Clients that change two tables until they are stopped: one with a key, one without."""

    def __init__(
        self, server: Server, count: int, pause_s: float = 0.0, only: str = ""
    ) -> None:
        """`only`: what all of them say, always."""
        self._server = server
        self._only = only
        self._pause_s = pause_s
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(seed,), daemon=True)
            for seed in range(count)
        ]

    def _write(self, seed: int) -> None:
        r = random.Random(seed)
        with self._server.connect() as connection, connection.cursor() as cursor:
            while not self._stopped.wait(self._pause_s):
                key, value = r.randrange(200), r.randrange(1 << 30)
                statement = r.choice([
                    f"insert into snap.k values ({key}, {value}) on duplicate key update "
                    f"v = {value}",
                    f"update snap.k set v = {value} where id = {key}",
                    f"update snap.k set id = {r.randrange(200)} where id = {key}",
                    f"delete from snap.k where id = {key}",
                    f"insert into snap.bag values ({r.randrange(5)})",
                ])  # fmt: skip
                try:
                    cursor.execute(self._only or statement)
                except pymysql.err.MySQLError:
                    continue

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            for thread in self._threads:
                thread.join()


BAG = "insert into snap.bag values (1)"
CREATE = ("create table snap.k (id int primary key, v int)", "create table snap.bag (v int)")


def replayed(
    server: Server, snapshot: Snapshot, rows: dict[str, list[dict[str, Any]]], schema_sql: Path
) -> Any:
    """The rows of a snapshot with all changes from its place on."""
    held = {row["id"]: row["v"] for row in rows.get("k", [])}
    bag = Counter(row["v"] for row in rows.get("bag", []))
    place = snapshot.position
    paths = [path for path in server.binlogs() if path.name >= place.journal_name]
    for batch in canal.decode_files(paths, schema_sql=schema_sql):
        name = batch.schema.metadata[b"canal.table"].decode()
        if batch.schema.metadata[b"canal.schema"] != b"snap" or not batch.num_rows:
            continue
        for row in batch.to_pylist():
            if (row["journal_name"], row["position"]) < (place.journal_name, place.position):
                continue
            if name == "bag":
                bag[row["after"]["v"]] += 1
                continue
            if row["before"]:
                assert held.pop(row["before"]["id"]) == row["before"]["v"]
            if row["after"]:
                assert row["after"]["id"] not in held
                held[row["after"]["id"]] = row["after"]["v"]
    return held, bag


def held_now(server: Server) -> Any:
    keyed = dict(server.execute("select id, v from snap.k"))
    return keyed, Counter(v for (v,) in server.execute("select v from snap.bag"))


@pytest.mark.parametrize("may_lock", [False, True])
def test_beside_writers_it_is_one_place_of_the_log(
    server: Server, database: None, may_lock: bool, tmp_path: Path
) -> None:
    """Rows and the changes from their place on make what the tables hold: none lacks, none comes
    twice, in the table without a key, too."""
    server.execute(*CREATE, "flush binary logs")
    schema_sql = tmp_path / "schema.sql"
    schema_sql.write_text(";\n".join(CREATE))
    found = []
    exact = may_lock or server.is_mariadb  # else the server has to stand still for a moment
    readers, writers = (2, Writers(server, 3)) if exact else (1, Writers(server, 2, pause_s=0.05))
    with server.with_global("sync_binlog", "1"), writers.running():
        for _ in range(2):
            with snapshot_of(
                server, r"snap\..*", may_lock=may_lock, readers=readers
            ) as snapshot:
                rows: dict[str, list[dict[str, Any]]] = {}
                for batch in snapshot:
                    name = batch.schema.metadata[b"canal.table"].decode()
                    rows.setdefault(name, []).extend(batch.column("after").to_pylist())
                found.append((snapshot, rows))
    for snapshot, rows in found:
        assert replayed(server, snapshot, rows, schema_sql) == held_now(server)


@pytest.mark.parametrize("server", ["mysql56"], indirect=True)
@pytest.mark.parametrize("waits", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_read_view_has_all_that_lies_before_its_place(
    server: Server, database: None, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what is in the log, but is not committed in InnoDB yet, when the view is opened: MySQL
    5.6 counts it as executed. Who does not wait for it is found out, sooner or later: that depends
    on the machine."""
    if waits:
        assert wrong_views(server) == 0
        return
    monkeypatch.setattr(PendingCommits, "wait", lambda self: None)
    assert any(wrong_views(server) for _ in range(200))


def wrong_views(server: Server) -> int:
    """Open so many read views beside writers; return how many have other rows than the log has
    before their places."""
    server.execute("drop table if exists snap.k, snap.bag", "flush binary logs", *CREATE)
    config = config_of(server).destination("snap")
    catalog, found = Catalog(config.source), []
    reader = MomentReader(config)
    reader.open()
    writers = Writers(server, 3, pause_s=0.004, only=BAG)
    with server.with_global("sync_binlog", "1"), writers.running():
        for _ in range(VIEWS):
            place = open_views(config, catalog, [reader])
            [row] = reader.query("SELECT COUNT(*) AS rows_now FROM snap.bag")
            reader.query("COMMIT")
            found.append((place.journal_name, place.position, int(row["rows_now"])))
    catalog.close()
    reader.close()
    last = server.binlogs()[-1]
    inserted = [
        at
        for batch in canal.decode_files([last], tables=r"snap\.bag")
        for at in batch.column("position").to_pylist()
    ]
    assert {name for name, _, _ in found} == {last.name}
    return sum(count != sum(at < place for at in inserted) for _, place, count in found)


def test_the_command_reads_and_says_where_to_go_on(
    server: Server, database: None, tmp_path: Path
) -> None:
    server.execute(
        "create table snap.t (id int primary key, v varchar(9))",
        "insert into snap.t values (1, 'a'), (2, null)",
    )
    config = tmp_path / "canal.toml"
    config.write_text(
        f'[[instance]]\ndestination = "snap"\nsource = {{address = "{server.address}", '
        'username = "root"}\n'
    )
    done = CliRunner().invoke(
        app, ["snapshot", "read", str(config), "snap", "--tables", r"snap\.t"]
    )
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["after"] for row in rows] == [{"id": 1, "v": "a"}, {"id": 2, "v": None}]
    assert {row["event_type"] for row in rows} == {"READ"}
    name, position = server.position()  # MariaDB may have written a checkpoint since
    said = re.search(rf"journal_name = '{name}'\nposition = (\d+)\n", done.stderr)
    assert said is not None, done.stderr
    assert int(said[1]) <= position
    folder = tmp_path / "out"
    arguments = ["snapshot", "read", str(config), "snap", "--tables", r"snap\.t"]
    done = CliRunner().invoke(app, [*arguments, "--format", "arrow", "-o", str(folder)])
    assert done.exit_code == 0, done.output
    with pa.ipc.open_stream(str(folder / "snap.t.arrow")) as stream:
        assert stream.read_all().num_rows == 2
