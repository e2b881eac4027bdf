"""The driver against real servers: what a dump gives is, byte for byte, the server's binlog
files.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from ray_canal.binlog.chunk import RawChunk
from ray_canal.config import InstanceConfig
from ray_canal.errors import (
    AuthenticationFailed,
    CanalError,
    ConnectionLost,
    PositionNotFound,
    PositionPurged,
    PrivilegeMissing,
)
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import EntryPosition
from ray_canal.source.catalog import Catalog
from ray_canal.source.catalog_tables import CatalogTables
from ray_canal.source.checks import check_source
from ray_canal.source.live import LiveSource
from ray_canal.source.open_source import open_source
from ray_canal.source.port import Source
from tests.servers import Server

KINDS = ["mysql97", "mysql56", "mariadb"]


def instance(server: Server, chunk_bytes: int = 1 << 20, **source: Any) -> InstanceConfig:
    settings = {"address": server.address, "username": "root", "start": "latest", **source}
    return InstanceConfig.model_validate(
        {"destination": "d", "source": settings, "chunk_bytes": chunk_bytes}
    )


@pytest.fixture
def schema(server: Server) -> Iterator[str]:
    name = f"t{uuid.uuid4().hex[:8]}"
    server.execute(f"CREATE DATABASE {name}")
    yield name
    server.execute(f"DROP DATABASE {name}")


@contextlib.contextmanager
def opened(config: InstanceConfig, position: EntryPosition | None = None) -> Iterator[Source]:
    source = open_source(config)
    try:
        source.open(position)
        yield source
    finally:
        source.close()


def read_until(source: Source, name: str, offset: int, timeout_s: float = 180) -> list[RawChunk]:
    chunks: list[RawChunk] = []
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        chunk = source.read(0.005, 0.2)
        if chunk is not None:
            chunks.append(chunk)
            if chunk.head.journal_name == name and chunk.head.end_position >= offset:
                return chunks
    raise AssertionError(f"{name}:{offset} not reached: {source.status()}")


def closed(position: int, data: bytes) -> bytes:
    """`data` without the flag, in a file's first event, that the file is being written."""
    if position != 4:
        return data
    return data[:17] + bytes([data[17] & ~1]) + data[18:]


def new_bytes(chunk: RawChunk) -> bytes:
    return closed(chunk.head.position, chunk.data[chunk.head.carried_bytes :].tobytes())


def assert_equals_files(server: Server, chunks: list[RawChunk]) -> None:
    """New bytes of the chunks are the binlog files' bytes, with no gap and no repeat."""
    files = {path.name: path.read_bytes() for path in server.binlogs()}
    at: tuple[str, int] | None = None
    for number, chunk in enumerate(chunks):
        head = chunk.head
        assert head.sequence == number
        if at is not None and at[0] == head.journal_name:
            assert head.position == at[1]
        elif at is not None:
            assert at[1] == len(files[at[0]])
            assert head.position == 4
        expected = files[head.journal_name][head.position : head.end_position]
        assert new_bytes(chunk) == closed(head.position, expected)
        at = (head.journal_name, head.end_position)


def write(server: Server, schema: str, table: str, transactions: int) -> None:
    with contextlib.closing(server.connect(autocommit=False)) as connection:
        cursor = connection.cursor()
        cursor.execute(f"CREATE TABLE {schema}.{table} (id INT PRIMARY KEY, v VARCHAR(500))")
        for number in range(transactions):
            rows = [(number * 10 + k, "x" * (number % 400)) for k in range(10)]
            cursor.executemany(f"INSERT INTO {schema}.{table} VALUES (%s, %s)", rows)
            cursor.execute(
                f"UPDATE {schema}.{table} SET v = 'é' WHERE id %% 3 = 0 AND id > %s", [number]
            )
            connection.commit()
    server.execute("FLUSH LOGS")


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
    write(server, schema, "t", 20)
    first = server.binlogs()[0].name
    name, offset = server.position()
    with opened(instance(server, 8192), EntryPosition(first)) as source:
        dumped = read_until(source, name, offset)
    files = [str(path) for path in server.binlogs()]
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


def dump_threads(server: Server) -> list[int]:
    rows = server.execute("SHOW PROCESSLIST")
    return [int(row[0]) for row in rows if str(row[4]).startswith("Binlog Dump")]


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


def test_read_and_interrupt(server: Server) -> None:
    with opened(instance(server)) as source:
        started = time.monotonic()
        assert source.read(0.0, 0.2) is None
        assert time.monotonic() - started < 20
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


# ---- what is wrong gets one clear error


def _read_all(source: Source, position: EntryPosition | None) -> None:
    source.open(position)
    for _ in range(20):
        source.read(0.0, 0.2)


def failure(config: InstanceConfig, position: EntryPosition | None = None) -> CanalError:
    source = open_source(config)
    try:
        with pytest.raises(CanalError) as caught:
            _read_all(source, position)
        return caught.value
    finally:
        source.close()


def test_wrong_password(server: Server) -> None:
    server.execute("CREATE USER pw@'%' IDENTIFIED BY 'right'")
    error = failure(instance(server, username="pw", password="wrong-secret"))
    server.execute("DROP USER pw@'%'")
    assert isinstance(error, AuthenticationFailed)
    assert "wrong-secret" not in str(error)
    assert "source.password" in str(error)


def test_missing_grant(server: Server) -> None:
    server.execute("CREATE USER poor@'%' IDENTIFIED BY 'p'")
    config = instance(server, username="poor", password="p")
    error = failure(config)
    position = failure(config, EntryPosition(*server.position()))
    results = {result.name: result for result in check_source(config)}
    server.execute("DROP USER poor@'%'")
    for each in (error, position):
        assert isinstance(each, PrivilegeMissing)
        assert "GRANT REPLICATION SLAVE" in str(each)
    assert not results["grant REPLICATION SLAVE"].ok
    assert "GRANT" in results["grant REPLICATION SLAVE"].mend


def test_unreachable() -> None:
    config = InstanceConfig.model_validate(
        {"destination": "d", "source": {"address": "127.0.0.1:1", "username": "u"}}
    )
    assert isinstance(failure(config), ConnectionLost)
    assert not check_source(config)[0].ok


def test_unknown_file(server: Server) -> None:
    assert isinstance(
        failure(instance(server), EntryPosition("mysql-bin.999999")), PositionNotFound
    )
    config = instance(server, start="position", journal_name="other.000001")
    error = failure(config)
    assert isinstance(error, PositionNotFound)
    assert "other.000001" in str(error)


def test_position_past_the_end(server: Server) -> None:
    name, offset = server.position()
    for position in (offset + 1000, 1 << 31):
        error = failure(instance(server), EntryPosition(name, position))
        assert isinstance(error, PositionNotFound)
        assert not error.retryable
    config = instance(server, start="position", journal_name=name, position=offset + 1000)
    assert isinstance(failure(config), PositionNotFound)


def purge_all(server: Server) -> None:
    """Purge all binlogs but a new one; a server keeps those that a dying dump still reads."""
    server.execute("FLUSH LOGS")
    deadline = time.monotonic() + 180
    while len(server.binlogs()) > 1 and time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            server.execute(f"PURGE BINARY LOGS TO '{server.position()[0]}'")
        time.sleep(0.2)
    assert len(server.binlogs()) == 1


def test_purged_file(server: Server, schema: str) -> None:
    old = server.position()[0]
    purge_all(server)
    config = instance(server, start="position", journal_name=old)
    assert isinstance(failure(config), PositionPurged)
    assert isinstance(failure(instance(server), EntryPosition(old)), PositionNotFound)


def test_check_of_a_good_server(server: Server) -> None:
    results = check_source(instance(server))
    assert all(result.ok for result in results if not result.advisory), results


# ---- one server's own ways


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


def test_tls_wanted_and_not_offered(mysql56: Server) -> None:
    error = failure(instance(mysql56, tls={"mode": "required"}))
    assert "TLS" in str(error) or "SSL" in str(error)


def test_caching_sha2_without_tls(mysql97: Server) -> None:
    mysql97.execute("CREATE USER sha@'%' IDENTIFIED BY 'secret'", "GRANT ALL ON *.* TO sha@'%'")
    config = instance(mysql97, username="sha", password="secret", tls={"mode": "disabled"})
    with opened(config) as source:
        assert source.read(0.0, 0.1) is None or True
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


def kinds_of(chunk: RawChunk) -> list[int]:
    data, at, found = chunk.data.tobytes(), chunk.head.carried_bytes, []
    while at < len(data):
        found.append(data[at + 4])
        at += int.from_bytes(data[at + 9 : at + 13], "little")
    return found


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


def test_gtids_purged(mysql97: Server) -> None:
    purge_all(mysql97)
    config = instance(mysql97, gtid=True, start="gtid", gtid_set=f"{uuid.uuid4()}:1")
    assert isinstance(failure(config), PositionPurged)
    empty = EntryPosition("", gtid=f"{uuid.uuid4()}:1")
    assert isinstance(failure(config, empty), PositionPurged)
