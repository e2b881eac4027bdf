"""A live source: what a dump gives is, byte for byte, the server's binlog files."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from ray_canal.binlog.chunk import RawChunk
from ray_canal.config import InstanceConfig
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import EntryPosition
from ray_canal.offline import decode_raw, new_parser
from ray_canal.source.catalog import Catalog
from ray_canal.source.catalog_tables import CatalogTables
from ray_canal.source.live import LiveSource
from ray_canal.source.open_source import open_source
from ray_canal.views.arrow import batches
from tests.dumps import (
    KINDS,
    assert_equals_files,
    dump_threads,
    instance,
    kinds_of,
    new_bytes,
    opened,
    read_until,
    write,
)
from tests.servers import Server


@pytest.mark.parametrize("chunk_bytes", [4096, 1 << 20])
def test_dump_with_writers_equals_the_files(server: Server, schema: str, chunk_bytes: int) -> None:
    with opened(instance(server, chunk_bytes)) as source:
        writers = [
            threading.Thread(target=write, args=(server, schema, f"w{n}", 40)) for n in range(3)
        ]
        for writer in writers:
            writer.start()
        time.sleep(0.3)
        early = source.read(0.005, 5.0)
        assert early is not None
        for writer in writers:
            writer.join()
        chunks = [early, *read_until(source, *server.position())]
    assert_equals_files(server, chunks)
    assert len({chunk.head.journal_name for chunk in chunks}) >= 4
    assert max(chunk.size_bytes for chunk in chunks) < chunk_bytes + 100_000


def test_files_give_what_the_dump_gave(server: Server, schema: str) -> None:
    server.execute("FLUSH LOGS")  # files with compressed events are of another test
    first = server.position()[0]
    write(server, schema, "t", 20)
    name, offset = server.position()
    assert name != first
    with opened(instance(server, 8192), EntryPosition(first)) as source:
        dumped = read_until(source, name, offset)
    files = [str(path) for path in server.binlogs() if path.name >= first]
    config = InstanceConfig.model_validate(
        {"destination": "f", "source": {"files": files}, "chunk_bytes": 8192}
    )
    replayed = []
    with opened(config) as source:
        while not source.finished:
            chunk = source.read(0, 0)
            if chunk is not None:
                replayed.append(chunk)

    def joined(chunks: list[RawChunk]) -> bytes:
        return b"".join(new_bytes(chunk) for chunk in chunks)

    assert joined(replayed)[: len(joined(dumped))] == joined(dumped)
    with opened(instance(server, 8192, start="earliest")) as source:
        assert source.read(0.01, 5.0) is not None
    assert_equals_files(server, dumped)


def test_events_over_many_packets(server: Server, schema: str) -> None:
    server.execute(f"CREATE TABLE {schema}.big (id INT PRIMARY KEY, v LONGBLOB) ENGINE=MyISAM")
    with opened(instance(server)) as source:
        for number, size in enumerate([(16 << 20) - 60, (16 << 20) - 1, 20 << 20, 34 << 20]):
            server.execute(f"INSERT INTO {schema}.big VALUES ({number}, REPEAT('ab', {size // 2}))")
        server.execute(f"INSERT INTO {schema}.big VALUES (99, 'small')")
        chunks = read_until(source, *server.position())
    assert_equals_files(server, chunks)
    assert max(chunk.size_bytes for chunk in chunks) > 34 << 20


def test_a_killed_dump_goes_on_without_gap_or_repeat(server: Server, schema: str) -> None:
    with opened(instance(server, 4096)) as source:
        writer = threading.Thread(target=write, args=(server, schema, "t", 150))
        writer.start()
        chunks: list[RawChunk] = []
        killed = 0
        while writer.is_alive() or source.status().reconnects < 3:
            chunk = source.read(0.005, 0.05)
            if chunk is not None:
                chunks.append(chunk)
            if source.status().connected and killed < 12:
                for thread in dump_threads(server):
                    with contextlib.suppress(Exception):
                        server.execute(f"KILL {thread}")
                        killed += 1
        writer.join()
        name, offset = server.position()
        last = chunks[-1].head if chunks else None
        if last is None or (last.journal_name, last.end_position) != (name, offset):
            chunks += read_until(source, name, offset)
        assert source.status().reconnects >= 3
    assert_equals_files(server, chunks)


@pytest.mark.timed
def test_semi_synchronous_acknowledgement(mariadb: Server) -> None:
    mariadb.execute(
        "SET GLOBAL rpl_semi_sync_master_timeout = 20000",
        "SET GLOBAL rpl_semi_sync_master_enabled = ON",
    )
    try:
        with opened(instance(mariadb, semi_sync=True)) as source:
            chunks: list[RawChunk] = []
            stop = threading.Event()

            def read() -> None:
                while not stop.is_set():
                    chunk = source.read(0.001, 0.1)
                    if chunk is not None:
                        chunks.append(chunk)

            reader = threading.Thread(target=read)
            reader.start()
            started = time.monotonic()
            for number in range(20):
                mariadb.execute(f"CREATE DATABASE semi{number}", f"DROP DATABASE semi{number}")
            elapsed_s = time.monotonic() - started
            status = dict(mariadb.execute("SHOW STATUS LIKE 'Rpl_semi_sync_master_%'"))
            stop.set()
            reader.join()
            assert status["Rpl_semi_sync_master_clients"] == "1"
            assert int(status["Rpl_semi_sync_master_yes_tx"]) >= 40
            assert elapsed_s < 30
            assert_equals_files(mariadb, chunks)
    finally:
        mariadb.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")


@pytest.mark.timed
def test_read_and_interrupt(server: Server) -> None:
    with opened(instance(server)) as source:
        started = time.monotonic()
        assert source.read(0.0, 0.2) is None
        assert 0.15 < source.waited_s <= time.monotonic() - started < 20
        threading.Timer(0.2, source.interrupt).start()
        assert source.read(0.0, 30.0) is None
        assert time.monotonic() - started < 25


def test_heartbeats(server: Server) -> None:
    with opened(instance(server, heartbeat_s=0.2, read_timeout_s=2.0)) as source:
        assert source.read(0.0, 3.0) is None
        status = source.status()
        assert status.reconnects == 0
        assert status.last_heartbeat_time > 0
        assert status.master_position == server.position()[1]


def test_silence_is_a_lost_connection(server: Server) -> None:
    with opened(instance(server, heartbeat_s=60, read_timeout_s=0.5)) as source:
        source.read(0.0, 1.5)
        assert "heartbeats" in source.status().last_error


def test_catalog(server: Server, schema: str) -> None:
    server.execute(
        f"CREATE TABLE {schema}.t (id INT UNSIGNED PRIMARY KEY, n VARCHAR(20) CHARACTER SET latin1,"
        " e ENUM('a','it''s'), d DECIMAL(10,2) NOT NULL, b VARBINARY(5), t DATETIME(3), x BIT(9))"
    )
    tables = CatalogTables(instance(server).source)
    (state,) = tables.table_now(schema, "t").tables
    meta = state.meta
    columns = {column.name: column for column in meta.columns}
    assert list(columns) == ["id", "n", "e", "d", "b", "t", "x"]
    assert columns["id"].unsigned
    assert columns["id"].is_key
    assert not columns["id"].nullable
    assert (columns["n"].charset, columns["n"].length, columns["n"].type_code) == ("latin1", 20, 15)
    assert columns["e"].labels == ("a", "it's")
    assert (columns["d"].precision, columns["d"].scale) == (10, 2)
    assert columns["b"].charset == "binary"
    assert columns["t"].fraction == 3
    assert columns["x"].length == 9
    assert tables.table_now(schema, "nothing").tables == ()
    tables.close()
    catalog = Catalog(instance(server).source)
    assert catalog.position().journal_name == server.position()[0]
    assert catalog.server_uuid()
    catalog.close()


@pytest.mark.parametrize("mode", ["disabled", "preferred", "required", "verify_ca"])
def test_tls(mysql97: Server, mode: str) -> None:
    ca = str(mysql97.datadir / "ca.pem") if mode == "verify_ca" else ""
    source = LiveSource(instance(mysql97, tls={"mode": mode, "ca": ca}))
    try:
        source.open(None)
        assert source.encrypted == (mode != "disabled")
        mysql97.execute(
            "CREATE DATABASE IF NOT EXISTS tls", "CREATE TABLE tls.t (v LONGBLOB)",
            "INSERT INTO tls.t VALUES (REPEAT('z', 20000000))", "DROP DATABASE tls",
        )  # fmt: skip
        assert_equals_files(mysql97, read_until(source, *mysql97.position()))
    finally:
        source.close()


def test_caching_sha2_without_tls(mysql97: Server) -> None:
    mysql97.execute("CREATE USER sha@'%' IDENTIFIED BY 'secret'", "GRANT ALL ON *.* TO sha@'%'")
    config = instance(mysql97, username="sha", password="secret", tls={"mode": "disabled"})
    with opened(config) as source:
        assert isinstance(source, LiveSource)
        assert not source.encrypted
    mysql97.execute("DROP USER sha@'%'")


@pytest.mark.parametrize("kind", KINDS)
def test_gtid_dump(request: pytest.FixtureRequest, kind: str) -> None:
    server: Server = request.getfixturevalue(kind)
    server.execute("CREATE DATABASE IF NOT EXISTS g", "CREATE TABLE g.t (id INT PRIMARY KEY)")
    server.execute("INSERT INTO g.t VALUES (1)")
    catalog = Catalog(instance(server).source)
    before = catalog.position()
    assert before.gtid
    server.execute("FLUSH LOGS", "INSERT INTO g.t VALUES (2)", "INSERT INTO g.t VALUES (3)")
    config = instance(server, gtid=True, start="gtid", gtid_set=before.gtid)
    source = open_source(config)
    try:
        source.open(None)
        chunks = read_until(source, *server.position())
    finally:
        source.close()
        catalog.close()
        server.execute("DROP DATABASE g")
    rows = [kind for chunk in chunks for kind in kinds_of(chunk) if kind in (23, 30)]
    assert len(rows) == 2  # the first INSERT is in the set
    with opened(config, before) as again:
        more = read_until(again, chunks[-1].head.journal_name, chunks[-1].head.end_position)
    assert len([k for chunk in more for k in kinds_of(chunk) if k in (23, 30)]) == 2


def test_tagged_gtids(mysql97: Server) -> None:
    mysql97.execute(
        "CREATE DATABASE tagged", "SET GTID_NEXT = 'AUTOMATIC:blue'",
        "CREATE TABLE tagged.t (i INT)",
        "SET GTID_NEXT = 'AUTOMATIC'", "FLUSH LOGS",
    )  # fmt: skip
    with contextlib.closing(mysql97.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("SET GTID_NEXT = 'AUTOMATIC:blue'")
        cursor.execute("INSERT INTO tagged.t VALUES (1)")
        cursor.execute("SET GTID_NEXT = 'AUTOMATIC'")
    mysql97.execute("FLUSH LOGS")
    catalog = Catalog(instance(mysql97).source)
    executed = catalog.gtid_executed()
    assert ":blue:" in executed
    assert str(GtidSet.parse(executed)) == executed.lower()
    data = mysql97.binlogs()[-1].read_bytes()
    first = 4 + int.from_bytes(data[13:17], "little")
    length = int.from_bytes(data[first + 9 : first + 13], "little")
    assert data[first + 4] == 35
    body = data[first + 19 : first + length - 4]
    assert str(GtidSet.decode(body)) == executed
    assert GtidSet.parse(executed).encode() == body
    with opened(instance(mysql97, gtid=True, start="gtid", gtid_set=executed)) as source:
        mysql97.execute("DROP DATABASE tagged")
        chunks = read_until(source, *mysql97.position())
    assert sum(kinds_of(chunk).count(2) for chunk in chunks) == 1
    catalog.close()


def test_checksums_that_are_switched_under_a_dump(server: Server, schema: str) -> None:
    """Each switch begins a file, whose events have four bytes more or less than the dump asked."""
    with opened(instance(server)) as source:
        server.execute(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
        for number, kind in enumerate(("NONE", "CRC32", "NONE")):
            with server.with_global("binlog_checksum", kind):
                server.execute(f"INSERT INTO {schema}.t VALUES ({2 * number})")
            server.execute(f"INSERT INTO {schema}.t VALUES ({2 * number + 1})")
        chunks = read_until(source, *server.position())
    found = []
    for _, decoded in decode_raw(chunks, new_parser()):
        for batch in batches(decoded, 0, decoded.layout.event_count):
            found += [row["after"]["id"] for row in batch.to_pylist()]
    assert found == list(range(6))
