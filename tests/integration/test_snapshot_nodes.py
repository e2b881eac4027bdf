"""Readers of a snapshot as actors of a cluster: what they read is what threads of the destination's
process read."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest
from ray._private.state import actors

import ray_canal as canal
from ray_canal.actors.row_readers import MomentRows, RangeRows
from ray_canal.actors.row_reading import MomentReaderProcess, RowReaderProcess
from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.client.connector import Connector
from ray_canal.errors import InstanceNotRunning
from ray_canal.model.table_event import TRUNCATE
from ray_canal.snapshot import result
from ray_canal.snapshot.chunks import Origin
from ray_canal.snapshot.log_chunks import LogPlace
from ray_canal.snapshot.moment_reader import MomentReader, Part
from ray_canal.snapshot.result import ResultReader
from ray_canal.snapshot.row_reader import RangeOrder, RowReader
from ray_canal.snapshot.tables import SnapshotTable, tables_now
from ray_canal.source.catalog import Catalog
from ray_canal.source.catalog_tables import CatalogTables
from ray_canal.views.arrow import batches
from tests.integration.test_snapshot import config_of
from tests.processes import stopped
from tests.servers import Server
from tests.snapshot_runs import take_from

NAME, CLIENT, ROWS = "spread", 7, 30_000
PLACE = LogPlace("mysql-bin.000001", 4, 1 << 40)
T = TypeVar("T")


@pytest.fixture
def spread(mysql97: Server) -> Iterator[Server]:
    values = ", ".join(f"({number}, 'row {number}')" for number in range(ROWS))
    mysql97.execute(
        "drop database if exists spread", "create database spread",
        "create table spread.t (id int primary key, name varchar(30))",
        "create table spread.bag (v int)", "insert into spread.bag values (1), (1), (null)",
        f"insert into spread.t values {values}",
    )  # fmt: skip
    yield mysql97
    mysql97.execute("set session lock_wait_timeout=20", "drop database spread")


def sent(what: T) -> T:
    """As it arrives in another process."""
    found: T = pickle.loads(pickle.dumps(what, protocol=5))
    return found


def table_of(config: Any) -> SnapshotTable:
    catalog, described = Catalog(config.source), CatalogTables(config.source)
    [found] = tables_now(catalog, described, [("spread", "t")]).values()
    catalog.close()
    described.close()
    return found


def rows_in(chunks: Iterable[DecodedChunk | None]) -> pa.Array:
    """All rows, however they were cut: that depends on how the bytes came."""
    return pa.chunked_array(
        batch.column("after")
        for chunk in chunks
        if chunk is not None
        for batch in batches(chunk, 0, chunk.layout.event_count)
    ).combine_chunks()


@pytest.fixture
def several_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read is more than the buffer takes, which is full before rows are looked at."""
    monkeypatch.setattr(ResultReader.__init__, "__defaults__", (1 << 18,))
    monkeypatch.setattr(result, "_PAUSE_S", 10.0)


@pytest.mark.usefixtures("several_pieces")
def test_a_range_read_elsewhere_is_the_same(spread: Server) -> None:
    config = config_of(spread).destination("snap")
    order = RangeOrder(5, table_of(config), "`id` < 20000")
    own, actor = RowReader(config), RangeRows(config.model_dump_json())
    read, count = sent(actor.read(sent(order)))
    assert read.rows == own.read(order).rows == 20_000
    assert count > 1
    touched = (np.array([[7]], np.uint32),)
    doubted = (np.array([[8]], np.uint32),)
    placed = own.place(5, touched, doubted, PLACE)
    by_value, *large = sent(actor.place(5, sent(touched), sent(doubted), sent(PLACE), count))
    (by_value, is_whole) = by_value
    assert not is_whole
    assert len(by_value) == len(large) == count
    assert any(chunk is not None for chunk in large)
    for one, besides in zip(by_value, large, strict=True):
        assert (one.chunk is None) != (besides is None)
        assert one.info.arena_bytes == (one.chunk or besides).arena.size
    found = rows_in(one.chunk or besides for one, besides in zip(by_value, large, strict=True))
    assert found.equals(rows_in(chunk for _, chunk in placed.pieces))
    assert len(found) == 19_998
    first, *_ = sent(actor.place(5, (), (), sent(PLACE), count))
    assert first[1]
    assert len(rows_in(one.chunk for one in first[0])) == 1
    own.close()


@pytest.mark.usefixtures("several_pieces")
def test_a_moment_read_elsewhere_is_the_same(spread: Server) -> None:
    config = config_of(spread).destination("snap")
    part, origin = Part(3, table_of(config), "id < 20000"), Origin("mysql-bin.000001", 4)
    own, actor = MomentReader(config, framed=True), MomentRows(config.model_dump_json())
    own.open()
    actor.open()
    assert actor.query("SELECT 1 AS one") == own.query("SELECT 1 AS one") == [{"one": 1}]
    actor.begin(sent(part), sent(origin))
    found, large = list[DecodedChunk | None](), 0
    while (announced := actor.next()) is not None:
        placed, besides = sent(actor.place(announced.number, sent(PLACE)))
        assert (placed.chunk is None) != (besides is None)
        assert announced.rows == int(placed.info.entries["rows"].sum())
        found += [placed.chunk, besides]
        large += besides is not None
    assert large
    rows = rows_in(found)
    assert rows.equals(rows_in(read.at(PLACE)[1] for read in own.read(part, origin)))
    assert len(rows) == 20_000
    own.close()


class Bag:
    """Rows as they come, of tables with and without a key."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[Any, ...]]] = {"t": [], "bag": []}
        self.ended = 0

    def take(self, connector: Connector) -> None:
        self.ended += take_from(connector, self._apply)

    def _apply(self, batch: pa.RecordBatch) -> None:
        held = self.rows[batch.schema.metadata[b"canal.table"].decode()]
        for row in batch.to_pylist():
            if row["event_type"] == TRUNCATE:
                held.clear()
            if row["after"] is not None:
                held.append(tuple(row["after"].values()))


@pytest.mark.soak
@pytest.mark.usefixtures("local_ray")
def test_a_reader_that_sleeps_is_lost(spread: Server) -> None:
    config = config_of(spread, read_timeout_s=5.0).destination("snap")
    asyncio.run(range_reader_sleeps(config))
    part, origin = Part(3, table_of(config), "id < 20000"), Origin("mysql-bin.000001", 4)
    reader = MomentReaderProcess(config)
    reader.open()
    reading = reader.read(part, origin)
    rows = next(reading)
    with stopped(pid_of("MomentRows")), ThreadPoolExecutor() as threads:
        asked = (
            threads.submit(list, reading),
            threads.submit(reader.query, "SELECT 1"),
            threads.submit(rows.at, PLACE),
        )
        assert [type(each.exception()) for each in asked] == [InstanceNotRunning] * 3
    reader.close()


async def range_reader_sleeps(config: Any) -> None:
    reader, table = RowReaderProcess(config), table_of(config)
    read = await reader.read(RangeOrder(5, table, "`id` < 3 AND sleep(1.0) = 0"))
    assert read.rows == 3  # it was asked meanwhile whether it runs
    with stopped(pid_of("RangeRows")):
        asked = (
            reader.place(5, (), (), PLACE),
            reader.read(RangeOrder(6, table, "`id` < 20000")),
        )
        failures = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in failures] == [InstanceNotRunning] * 2
    await reader.close()


def pid_of(kind: str) -> int:
    """The process of the actor of a class that there is."""
    [found] = [
        one["Pid"]
        for one in actors().values()
        if one["ActorClassName"].endswith(kind) and one["State"] == "ALIVE"
    ]
    return int(found)


@pytest.mark.soak
@pytest.mark.usefixtures("local_ray")
def test_on_a_cluster_actors_read(spread: Server, tmp_path: Path) -> None:
    """All rows of one moment, by two actors; then those of one table by key."""
    canal.start({
        "meta": {"path": str(tmp_path / "meta.db")},
        "instance": [{
            "destination": NAME,
            "source": {"address": spread.address, "username": "root"},
            "decoders": 0,
            "snapshot": {"chunk_bytes": 65536, "mode": "consistent", "node": "any",
                         "may_lock": True},
        }],
    })  # fmt: skip
    held = {name: sorted(spread.execute(f"select * from spread.{name}"), key=str)
            for name in ("t", "bag")}  # fmt: skip
    bag, keyed = Bag(), Bag()
    before = {kind: actors_of(kind) for kind in ("MomentRows", "RangeRows")}
    try:
        with canal.connect(NAME, CLIENT) as connector:
            connector.subscribe(r"spread\..*", snapshot="initial")
            while not bag.ended:
                bag.take(connector)
            assert actors_of("MomentRows") == before["MomentRows"] + 2
            canal.subscriber(NAME, CLIENT).snapshot.start(r"spread\.t", mode="keyed")
            while not keyed.ended:
                keyed.take(connector)
            assert actors_of("RangeRows") == before["RangeRows"] + 2
    finally:
        canal.stop(NAME)
    assert {name: sorted(rows, key=str) for name, rows in bag.rows.items()} == held
    assert sorted(keyed.rows["t"], key=str) == held["t"]


def actors_of(kind: str) -> int:
    """How many actors of a class there were, of this cluster's."""
    return sum(one["ActorClassName"].endswith(kind) for one in actors().values())
