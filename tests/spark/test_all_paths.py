"""The same rows, with the same hash, by every way out of a destination and of files."""

from __future__ import annotations

import itertools
import random
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ray_canal as canal
from ray_canal import spark as canal_spark
from ray_canal.canal.generated import EntryProtocol_pb2 as pb
from ray_canal.demo import BINLOGS
from ray_canal.spark.frames import to_frames
from tests.integration.test_differential import RandomTable
from tests.random_columns import Kind, random_kind
from tests.servers import Server
from tests.servers.run import free_port
from tests.spark.standalone_app import HASH

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Paths:
    """Ways to the rows of one table in files: each gives what Spark's `HASH` makes of them."""

    def __init__(self, spark: Any, files: list[Path], table: str, folder: Path) -> None:
        self.spark, self.files, self.table, self.folder = spark, files, table, folder
        self.filter = table.replace(".", r"\.")
        self.name = f"paths_{uuid.uuid4().hex[:8]}"
        self.port = free_port()
        instance = {"destination": self.name, "source": {"files": [str(path) for path in files]}}
        self.tree: dict[str, Any] = {
            "meta": {"backend": "memory"},
            "instance": [instance],
            "server": {"port": self.port},
            "flight": {"host": "127.0.0.1", "port": 0},
        }
        self.clients = iter(range(100, 200))

    def __enter__(self) -> Paths:
        canal.start(self.tree)
        self.address = f"grpc://{canal.serve_flight(self.tree)}"
        # One that acks nothing: the log keeps all rows for whoever comes.
        self.first = canal.connect(self.name, client_id=1)
        self.first.subscribe()
        return self

    def __exit__(self, *_: object) -> None:
        self.first.close()
        canal.stop_flight()
        canal.stop_serving()
        canal.stop(self.name)

    # --- batches of Arrow ------------------------------------------------------------------------

    def hash_of_batches(self, batches: Iterable[pa.RecordBatch]) -> list[Any]:
        with to_frames(self.spark, list(batches)) as made:
            return self.hash_of(made.by_table[self.table])

    def hash_of(self, frame: Any) -> list[Any]:
        return list(frame.selectExpr(*HASH_COLUMNS).first())

    def messages(self, **where: Any) -> Iterator[Any]:
        with canal.connect(self.name, client_id=next(self.clients), **where) as connector:
            connector.subscribe(self.filter)
            yield from connector.messages(1000)

    def decoded(self) -> list[Any]:
        return self.hash_of_batches(canal.decode_files(self.files, tables=self.filter))

    def ray_handle(self) -> list[Any]:
        return self.hash_of_batches(b for m in self.messages() for b in m.batches)

    def flight(self) -> list[Any]:
        found = (b for m in self.messages(address=self.address) for b in m.batches)
        return self.hash_of_batches(found)

    # --- Ray Data ---------------------------------------------------------------------------------

    def read_binlogs(self) -> list[Any]:
        dataset = canal.read_binlogs(self.files, tables=self.filter, part_bytes=50_000)
        return self._hash_of_dataset(dataset)

    def changes(self) -> list[Any]:
        with canal.connect(self.name, client_id=next(self.clients)) as connector:
            connector.subscribe(self.filter)
            with canal.changes(connector) as dataset:
                return self._hash_of_dataset(dataset)

    def _hash_of_dataset(self, dataset: Any) -> list[Any]:
        schema, name = self.table.split(".")
        told = {b"canal.schema": schema.encode(), b"canal.table": name.encode()}
        batches: list[pa.RecordBatch] = []
        for table in dataset.iter_batches(batch_format="pyarrow", batch_size=None):
            rows = table.drop_columns(["table"]).replace_schema_metadata(told)
            batches += rows.to_batches()
        return self.hash_of_batches(batches)

    # --- Spark ------------------------------------------------------------------------------------

    def run(self) -> list[Any]:
        found: list[Any] = []
        with canal.connect(self.name, client_id=next(self.clients)) as connector:
            connector.subscribe(self.filter)
            canal_spark.run(
                connector,
                self.spark,
                lambda frames, _: found.append(self.hash_of(frames[self.table])),
                batch_size=200,
            )
        return summed(found)

    def read_files(self) -> list[Any]:
        reader = self.spark.read.format("ray_canal").option("table", self.table)
        frame = reader.option("part_bytes", "50k").load([str(path) for path in self.files])
        return self.hash_of(frame)

    def read_log(self, **where: str) -> list[Any]:
        reader = self.spark.read.format("ray_canal").option("table", self.table).options(**where)
        return self.hash_of(reader.option("destination", self.name).load())

    def read_log_over_flight(self) -> list[Any]:
        return self.read_log(address=self.address)

    def read_stream(self, **where: str) -> list[Any]:
        found: list[Any] = []
        reader = self.spark.readStream.format("ray_canal").options(**where)
        reader = reader.option("destination", self.name).option("table", self.table)
        query = (
            reader.option("client_id", next(self.clients))
            .option("maxBytesPerTrigger", "256k")
            .load()
            .writeStream.foreachBatch(lambda frame, _: found.append(self.hash_of(frame)))
            .option("checkpointLocation", str(self.folder / uuid.uuid4().hex))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
        return summed(found)

    def read_stream_over_flight(self) -> list[Any]:
        return self.read_stream(address=self.address)

    # --- Canal's entries --------------------------------------------------------------------------

    def entries_by_tcp(self, count: int) -> list[bytes]:
        """Canal's protocol does not tell that a source has ended: as many as there are."""
        messages = self.messages(address=f"127.0.0.1:{self.port}")
        return list(itertools.islice((e for m in messages for e in entries_in(m)), count))

    def entries_by_ray(self) -> list[bytes]:
        return [e for m in self.messages() for e in entries_in(m)]


COLUMNS = 14
"""So many of each table in `test_every_type`."""

HASH_COLUMNS = HASH.split(", CAST", 1)[0], "CAST" + HASH.split(", CAST", 1)[1]


def summed(found: list[list[Any]]) -> list[Any]:
    """What batches give together: hashes are sums."""
    return [sum(rows for rows, _ in found), str(sum(int(each) for _, each in found))]


def entries_in(message: Any) -> Iterator[bytes]:
    """Entries with rows. Which transactions are with them depends on where messages end."""
    for entry in message.entries:
        if entry.entryType == pb.ROWDATA:
            yield entry.SerializeToString(deterministic=True)


def judge(paths: Paths) -> None:
    expected = paths.decoded()
    assert expected[0] > 100
    ways: list[Callable[[], list[Any]]] = [
        paths.ray_handle,
        paths.flight,
        paths.read_binlogs,
        paths.changes,
        paths.run,
        paths.read_files,
        paths.read_log,
        paths.read_log_over_flight,
        paths.read_stream,
        paths.read_stream_over_flight,
    ]
    assert {way.__name__: way() for way in ways} == {way.__name__: expected for way in ways}
    entries = paths.entries_by_ray()
    assert sum(map(rows_in, entries)) == expected[0]
    assert paths.entries_by_tcp(len(entries)) == entries


def rows_in(entry: bytes) -> int:
    """An entry's rows in Arrow, where a statement that takes all rows of a table is one."""
    change = pb.RowChange.FromString(pb.Entry.FromString(entry).storeValue)
    takes_all = change.isDdl and change.eventType in (pb.TRUNCATE, pb.ERASE)
    return len(change.rowDatas) or int(takes_all)


def test_demo(spark: Any, tmp_path: Path) -> None:
    with Paths(spark, list(BINLOGS), "shop.orders", tmp_path) as paths:
        judge(paths)


def kinds_of_every_type(server: str, rng: random.Random) -> list[Kind]:
    """A column of each type that the server has, of its attributes one draw."""
    found: dict[tuple[str, ...], Kind] = {}
    for _ in range(2000):
        kind = random_kind(rng, server)
        words = re.findall(r"^\w+|\bunsigned\b|\bcompressed\b", kind.ddl)
        found.setdefault(tuple(words), kind)
    return list(found.values())


@pytest.mark.soak
@pytest.mark.parametrize("server", ["mysql97", "mysql56", "mariadb"], indirect=True)
def test_every_type(spark: Any, server: Server, tmp_path: Path) -> None:
    """Tables that together have each type of the server, in every row image."""
    server.execute("create database if not exists d")
    kinds = kinds_of_every_type(server.kind, random.Random(900))
    assert len(kinds) > 30
    for seed, begin in enumerate(range(0, len(kinds), COLUMNS), 900):
        server.execute("flush binary logs")
        first = len(server.binlogs()) - 1
        # In these files: MySQL 5.6 has no row metadata, so columns are named by DDL alone.
        server.execute("drop table if exists d.phase", "create table d.phase (t varchar(9), n int)")
        table = RandomTable(seed, server)
        table.kinds = kinds[begin : begin + COLUMNS]
        table.write()
        server.execute("flush binary logs")
        files = server.binlogs()[first:-1]
        with Paths(spark, files, f"d.{table.name}", tmp_path) as paths:
            judge(paths)
