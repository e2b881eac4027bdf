"""Readers of a snapshot as actors of a cluster: what they read is what threads of the destination's
process read."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from ray._private.state import actors

import ray_canal as canal
from ray_canal.actors.row_readers import MomentRows, RangeRows
from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.client.connector import Connector
from ray_canal.model.table_event import TRUNCATE
from ray_canal.snapshot.chunks import Origin
from ray_canal.snapshot.log_chunks import LogPlace
from ray_canal.snapshot.moment_reader import MomentReader, Part
from ray_canal.snapshot.row_reader import RangeOrder, RowReader
from ray_canal.snapshot.tables import SnapshotTable, one_table
from ray_canal.source.catalog import Catalog
from ray_canal.source.catalog_tables import CatalogTables
from tests.integration.test_snapshot import config_of
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
    found = one_table(catalog, described, "spread", "t")
    catalog.close()
    described.close()
    assert found is not None
    return found


def values_of(chunk: DecodedChunk) -> list[bytes]:
    """Events and columns, without when they were read."""
    events = chunk.events.copy()
    events["timestamp"] = 0
    return [events.tobytes(), chunk.arena[events.nbytes :].tobytes()]


def test_a_range_read_elsewhere_is_the_same(spread: Server) -> None:
    config = config_of(spread).destination("snap")
    order = RangeOrder(5, table_of(config), "`id` < 20000")
    own, actor = RowReader(config), RangeRows(config.model_dump_json())
    expected = own.read(order)
    read, count = sent(actor.read(sent(order)))
    assert (read.rows, read.size_bytes) == (expected.rows, expected.size_bytes)
    assert count > 1
    key = (7).to_bytes(4, "little")
    placed = own.place(5, frozenset({key}), PLACE)
    by_value, *large = sent(actor.place(5, sent(frozenset({key})), sent(PLACE), count))
    assert placed is not None
    assert len(by_value) == len(placed) == len(large)
    for (info, chunk), one, besides in zip(placed, by_value, large, strict=True):
        assert (one.chunk is None) != (besides is None)
        assert values_of(one.chunk or besides) == values_of(chunk)
        assert one.info.arena_bytes == info.arena_bytes
    assert sum(int(one.info.entries["rows"].sum()) for one in by_value) == 19_999
    own.close()


def test_a_moment_read_elsewhere_is_the_same(spread: Server) -> None:
    config = config_of(spread).destination("snap")
    part, origin = Part(3, table_of(config), "id < 20000"), Origin("mysql-bin.000001", 4)
    own, actor = MomentReader(config, framed=True), MomentRows(config.model_dump_json())
    own.open()
    actor.open()
    assert actor.query("SELECT 1 AS one") == own.query("SELECT 1 AS one") == [{"one": 1}]
    actor.begin(sent(part), sent(origin))
    rows = 0
    for read in own.read(part, origin):
        announced = actor.next()
        assert announced is not None
        info, chunk = read.at(PLACE)
        placed, besides = sent(actor.place(announced.number, sent(PLACE)))
        assert announced.rows == read.rows
        assert (placed.chunk is None) != (besides is None)
        assert values_of(placed.chunk or besides) == values_of(chunk)
        assert placed.info.arena_bytes == info.arena_bytes
        rows += read.rows
    assert (actor.next(), rows) == (None, 20_000)
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
    try:
        with canal.connect(NAME, CLIENT) as connector:
            connector.subscribe(r"spread\..*", snapshot="initial")
            while not bag.ended:
                bag.take(connector)
            assert actors_of("MomentRows") == 2
            canal.subscriber(NAME, CLIENT).snapshot.start(r"spread\.t", mode="keyed")
            while not keyed.ended:
                keyed.take(connector)
            assert actors_of("RangeRows") == 2
    finally:
        canal.stop(NAME)
    assert {name: sorted(rows, key=str) for name, rows in bag.rows.items()} == held
    assert sorted(keyed.rows["t"], key=str) == held["t"]


def actors_of(kind: str) -> int:
    """How many actors of a class there were, of this cluster's."""
    return sum(one["ActorClassName"].endswith(kind) for one in actors().values())
