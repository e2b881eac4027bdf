"""Tables of engines without transactions, and one whose rows are those of other tables."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ray_canal.errors import ConfigError
from ray_canal.filter import TableFilter
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.snapshot.plan import SnapshotPlan
from ray_canal.snapshot.read import read_snapshot
from ray_canal.snapshot.read_views import gtid_at
from ray_canal.snapshot.row_reader import RangeOrder, RowReader
from ray_canal.source.catalog import Catalog
from tests.integration.test_snapshot import config_of
from tests.servers import Server

READINGS = 40


@pytest.fixture
def engines(server: Server) -> Iterator[Server]:
    server.execute("drop database if exists engines", "create database engines")
    yield server
    server.execute("drop database engines")


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_rows_that_were_executed_before_are_read(engines: Server) -> None:
    """Aria shows a row once its own log has it on disk, which is after the binlog has it."""
    engines.execute(
        "create table engines.t (id int auto_increment primary key) engine = Aria",
        "insert into engines.t values (1)",
    )
    config, stopped = config_of(engines).destination("snap"), threading.Event()
    first = _sequence(engines.execute("select @@gtid_binlog_pos")[0][0])
    plan, reader, catalog = SnapshotPlan(config, TableFilter()), RowReader(config), Catalog(
        config.source
    )

    def append() -> None:
        with engines.connect() as connection:
            while not stopped.is_set():
                connection.cursor().execute("insert into engines.t values (null)")

    def rows_at(low: Any) -> int:
        gtid = gtid_at(catalog, low.place.journal_name, low.place.position)
        return 1 + _sequence(gtid) - first

    writers = [threading.Thread(target=append) for _ in range(2)]
    try:
        [wanted] = plan.wanted((SnapshotWish(r"engines\.t"),))
        [table] = plan.find({0: wanted}).values()
        for writer in writers:
            writer.start()
        for number in range(READINGS):
            shown = rows_at(plan.low())
            end = plan.begin(0, wanted).end
            read = reader.read(RangeOrder(number, table, "true"))
            assert end is not None
            assert int(end[0]) >= shown
            assert read.rows >= rows_at(read.low)
    finally:
        stopped.set()
        for writer in writers:
            writer.join()
        for one in (plan, reader, catalog):
            one.close()


def _sequence(gtid: str) -> int:
    return int(gtid.split("-")[2])


def test_a_merge_table_shows_rows_of_others(engines: Server) -> None:
    """A change by its name, or by a member's, is in the log under that one alone."""
    engines.execute(
        "create table engines.a (id int primary key) engine = MyISAM",
        "create table engines.m (id int primary key) engine = MERGE union = (engines.a)",
    )
    config = config_of(engines)
    for mode in ("keyed", "consistent"):
        with pytest.raises(ConfigError, match=r"engines\.m is a MERGE table: read the tables"):
            read_snapshot(config, "snap", tables=r"engines\.m", mode=mode)
    with read_snapshot(config, "snap", tables=r"engines\..*", mode="keyed") as snapshot:
        assert snapshot.tables == ("engines.a",)
        assert [name for name, _ in snapshot.left_out] == ["engines.m"]
