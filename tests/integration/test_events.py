"""Events that only real servers write, through the decoder: compressed transactions, XA, statement
format, LOAD DATA, tagged GTIDs, row events version 1, no checksums. What comes out equals SELECT.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.binlog.events import event_name
from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.config import InstanceConfig
from ray_canal.model.position import EntryPosition
from ray_canal.schema.event_parser import EventParser
from ray_canal.schema.registry import SchemaRegistry
from ray_canal.source.open_source import open_source
from ray_canal.views.arrow import batches
from ray_canal.views.entries import iter_entries
from tests.servers import Server

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, n BIGINT, v VARCHAR(300), b MEDIUMBLOB)"


class Log:
    """A database of its own, and what the server's log says of it from the test's start on."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.schema = f"e{uuid.uuid4().hex[:8]}"
        server.execute(f"CREATE DATABASE {self.schema}")
        self.connection = server.connect(database=self.schema, local_infile=True, autocommit=True)
        self.run(TABLE)
        self.start = server.position()

    def run(self, *statements: str, values: Any = None) -> None:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement, values)

    def close(self) -> None:
        self.connection.close()
        self.server.execute(f"DROP DATABASE {self.schema}")

    def table(self) -> dict[int, tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT id, n, v, b FROM t")
            return {row[0]: row for row in cursor.fetchall()}

    def decoded(
        self, chunk_bytes: int = 1 << 20, start: tuple[str, int] | None = None
    ) -> list[tuple[ChunkInfo, DecodedChunk]]:
        """Chunks from the start to where the server is now, through a real dump."""
        name, end = self.server.position()
        config = InstanceConfig.model_validate(
            {
                "destination": "d",
                "chunk_bytes": chunk_bytes,
                "source": {"address": self.server.address, "username": "root"},
            }
        )
        sql = f"USE {self.schema}; {TABLE};"
        parser = EventParser(SchemaRegistry(create_table_sql=sql, catalog=None))
        source = open_source(config)
        found = []
        try:
            source.open(EntryPosition(*(start or self.start)))
            while True:
                raw = source.read(0.005, 5.0)
                assert raw is not None, "the dump does not reach the end"
                info, chunk = parser.decode_chunk(raw)
                assert info.failure is None, info.failure
                found.append((info, chunk))
                if (raw.head.journal_name, raw.head.end_position) >= (name, end):
                    return found
        finally:
            source.close()

    def replayed(self, chunks: list[tuple[ChunkInfo, DecodedChunk]]) -> dict[int, tuple[Any, ...]]:
        """The table as the row events make it; each place is seen once, in order."""
        table: dict[int, tuple[Any, ...]] = {}
        changes = []
        for info, chunk in chunks:
            for batch in batches(chunk, 0, chunk.layout.event_count):
                changes += [(info.head.journal_name, row) for row in batch.to_pylist()]
        places = [(name, row["position"], row["row"]) for name, row in changes]
        assert len(set(places)) == len(places)
        for _, row in changes:
            if row["before"] is not None:
                del table[row["before"]["id"]]
            if row["after"] is not None:
                after = row["after"]
                table[after["id"]] = (after["id"], after["n"], after["v"], after["b"])
        return table


def kinds(chunks: list[tuple[ChunkInfo, DecodedChunk]]) -> set[str]:
    return {
        event_name(int(code))
        for _, chunk in chunks
        for code in np.unique(chunk.events["type_code"])
    }


def entries(chunks: list[tuple[ChunkInfo, DecodedChunk]]) -> list[pb.Entry]:
    return [
        entry for _, chunk in chunks for entry in iter_entries(chunk, 0, chunk.layout.event_count)
    ]


def statements(chunks: list[tuple[ChunkInfo, DecodedChunk]]) -> list[str]:
    rows = [e for e in entries(chunks) if e.entryType == pb.ROWDATA]
    return [pb.RowChange.FromString(e.storeValue).sql for e in rows]


@pytest.fixture
def log97(mysql97: Server) -> Iterator[Log]:
    log = Log(mysql97)
    yield log
    log.close()


@pytest.fixture
def log56(mysql56: Server) -> Iterator[Log]:
    log = Log(mysql56)
    yield log
    log.close()


@pytest.fixture
def log_mariadb(mariadb: Server) -> Iterator[Log]:
    log = Log(mariadb)
    yield log
    log.close()


def write(log: Log, seed: int, transactions: int, rows_max: int) -> None:
    """Random inserts, updates and deletes; several rows to a statement and to a transaction."""
    rng = random.Random(seed)
    keys: list[int] = []
    for number in range(transactions):
        log.run("BEGIN")
        for _ in range(rng.randint(1, 4)):
            made = [
                number * 100_000 + rng.randrange(100_000) for _ in range(rng.randint(1, rows_max))
            ]
            made = sorted(set(made) - set(keys))
            if made:
                keys += made
                with log.connection.cursor() as cursor:
                    cursor.executemany(
                        "INSERT INTO t VALUES (%s, %s, %s, %s)",
                        [(k, rng.getrandbits(60), "ä" * rng.randint(0, 150), rng.randbytes(40))
                         for k in made],
                    )  # fmt: skip
            log.run(
                "UPDATE t SET n = n - 1, v = REVERSE(v) WHERE id %% 7 = %s", values=[number % 7]
            )
            log.run("DELETE FROM t WHERE id %% 31 = %s", values=[rng.randrange(31)])
        log.run("COMMIT")


@pytest.mark.parametrize("chunk_bytes", [1 << 12, 1 << 20])
def test_compressed_transactions_of_mysql(log97: Log, chunk_bytes: int) -> None:
    log97.run("SET SESSION binlog_transaction_compression = ON")
    write(log97, 1, 12, 40)
    write(log97, 2, 1, 3000)  # one payload larger than a chunk
    log97.run("SET SESSION binlog_transaction_compression = OFF")
    log97.run("INSERT INTO t (id) VALUES (-1)")
    chunks = log97.decoded(chunk_bytes)
    assert log97.replayed(chunks) == log97.table()
    inner = [int(chunk.events["inner"].max(initial=0)) for _, chunk in chunks]
    assert max(inner) > 100_000
    assert len(chunks) > (50 if chunk_bytes < 1 << 20 else 0)


@pytest.mark.parametrize("chunk_bytes", [1 << 12, 1 << 20])
def test_compressed_events_of_mariadb(log_mariadb: Log, chunk_bytes: int) -> None:
    log_mariadb.run("SET GLOBAL log_bin_compress_min_len = 10", "SET GLOBAL log_bin_compress = ON")
    try:
        write(log_mariadb, 3, 12, 40)
        log_mariadb.run("CREATE TABLE longer_than_ten_bytes (id INT PRIMARY KEY)")
        log_mariadb.run("DROP TABLE longer_than_ten_bytes")
    finally:
        log_mariadb.run("SET GLOBAL log_bin_compress = OFF")
    log_mariadb.run("INSERT INTO t (id) VALUES (-1)")
    chunks = log_mariadb.decoded(chunk_bytes)
    assert log_mariadb.replayed(chunks) == log_mariadb.table()
    assert max(int(chunk.events["length"].max(initial=0)) for _, chunk in chunks) > 0
    texts = " ".join(statements(chunks))
    assert "CREATE TABLE longer_than_ten_bytes" in texts
    assert "DROP TABLE" in texts


def test_row_events_version_1_and_no_checksums(log56: Log) -> None:
    before = log56.server.execute("SELECT @@GLOBAL.binlog_checksum")[0][0]
    log56.run("SET GLOBAL log_bin_use_v1_row_events = ON", "SET GLOBAL binlog_checksum = NONE")
    try:
        log56.start = log56.server.position()
        write(log56, 4, 5, 20)
        chunks = log56.decoded()
    finally:
        log56.run(f"SET GLOBAL binlog_checksum = {before}")
        log56.run("SET GLOBAL log_bin_use_v1_row_events = OFF")
    assert log56.replayed(chunks) == log56.table()
    assert {"WRITE_ROWS_V1 (23)", "UPDATE_ROWS_V1 (24)", "DELETE_ROWS_V1 (25)"} <= kinds(chunks)
    assert not any(info.head.has_checksum for info, _ in chunks)


def test_xa_transactions(log97: Log) -> None:
    log97.run("XA START 'one', 'b', 7", "INSERT INTO t (id) VALUES (1)", "XA END 'one', 'b', 7")
    log97.run("XA PREPARE 'one', 'b', 7", "INSERT INTO t (id) VALUES (2)")
    log97.run("XA COMMIT 'one', 'b', 7")
    log97.run("XA START 'two'", "INSERT INTO t (id) VALUES (3)", "XA END 'two'")
    log97.run("XA PREPARE 'two'", "XA ROLLBACK 'two'")
    chunks = log97.decoded()
    found = [
        (e.entryType, pb.EventType.Name(e.header.eventType) if e.entryType == pb.ROWDATA else "")
        for e in entries(chunks)
    ]
    begin, end = (pb.TRANSACTIONBEGIN, ""), (pb.TRANSACTIONEND, "")
    insert = (pb.ROWDATA, "INSERT")
    assert found == [
        begin, insert, end, begin, insert, end, (pb.ROWDATA, "XACOMMIT"),
        begin, insert, end, (pb.ROWDATA, "XAROLLBACK"),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["mysql97", "mysql56", "mariadb"])
def test_statement_format_and_load_data(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path
) -> None:
    log = Log(request.getfixturevalue(kind))
    file = tmp_path / "rows.csv"
    file.write_text("".join(f"{k},{k * 3},text {k},\n" for k in range(100, 5000)))
    allowed = log.server.execute("SELECT @@GLOBAL.local_infile")[0][0]
    log.run("SET GLOBAL local_infile = 1", "SET SESSION binlog_format = STATEMENT")
    try:
        log.run("SET @name = 'größe'", "INSERT INTO t VALUES (1, RAND() * 100, @name, NULL)")
        log.run(f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE t FIELDS TERMINATED BY ','")
        log.run("UPDATE t SET n = 5 WHERE id = 1")
        log.run("SET SESSION binlog_format = ROW", "INSERT INTO t (id) VALUES (2)")
        chunks = log.decoded()
        texts = statements(chunks)
    finally:
        log.run(f"SET GLOBAL local_infile = {allowed}")
        log.close()
    wanted = [
        "SET SESSION rand_seed1",
        "SET @name := 'größe'",
        "INSERT INTO t VALUES (1",
        "LOAD DATA",
        "UPDATE t",
    ]
    places = [next(k for k, text in enumerate(texts) if part in text) for part in wanted]
    assert places == sorted(places)
    assert texts[-1] == ""  # the row event


def test_tagged_gtids(log97: Log) -> None:
    log97.run("SET gtid_next = 'AUTOMATIC:nightly'", "INSERT INTO t (id) VALUES (1)")
    log97.run("INSERT INTO t (id) VALUES (2)", "SET gtid_next = 'AUTOMATIC'")
    log97.run("INSERT INTO t (id) VALUES (3)")
    server_uuid = log97.server.execute("SELECT @@GLOBAL.server_uuid")[0][0]
    gtids = [
        row["gtid"]
        for _, chunk in log97.decoded()
        for batch in batches(chunk, 0, chunk.layout.event_count)
        for row in batch.to_pylist()
    ]
    assert gtids[:2] == [f"{server_uuid}:nightly:1", f"{server_uuid}:nightly:2"]
    assert gtids[2].startswith(f"{server_uuid}:")
    assert "nightly" not in gtids[2]
    executed = log97.server.execute("SELECT @@GLOBAL.gtid_executed")[0][0]
    assert "nightly:1-2" in executed
