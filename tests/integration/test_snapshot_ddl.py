"""Keys that not every statement may use, and tables that become others while they are read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ray_canal.errors import ConfigError, TableMetaMismatch
from ray_canal.filter import TableFilter
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.model.subscription import Subscription
from ray_canal.snapshot import consistent, tables
from ray_canal.snapshot.descriptions import Descriptions
from ray_canal.snapshot.marks import PlaceLow
from ray_canal.snapshot.plan import SnapshotPlan
from ray_canal.snapshot.row_reader import RangeOrder, RowReader
from tests.integration.test_snapshot import config_of, rows_of, snapshot_of
from tests.integration.test_snapshot_keyed import Judge
from tests.local_destination import run
from tests.servers import Server
from tests.snapshot_runs import CLIENT, Taker, destination_at


@pytest.fixture
def altered(server: Server) -> Iterator[Server]:
    with server.with_database("altered"):
        yield server


@pytest.mark.parametrize("server", ["mysql97"], indirect=True)
def test_a_table_that_gets_the_name_meanwhile_is_not_read_for_it(
    altered: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment's view shows the other one's rows, of which the name has none there. Who may not
    see what stores them (PROCESS) is told by when it was made, in whole seconds."""
    monkeypatch.setattr(consistent, "stored_now", lambda catalog: None)
    table = "(id int primary key, v int)"
    altered.execute(f"create table altered.t {table}", "insert into altered.t values (1, 1)")
    time.sleep(1.1)
    altered.execute(f"create table altered.next {table}", "insert into altered.next values (2, 2)")
    with snapshot_of(altered, r"altered\.t") as snapshot:
        altered.execute("rename table altered.t to altered.last, altered.next to altered.t")
        with pytest.raises(TableMetaMismatch, match=r"altered\.t was made again, or another table"):
            list(snapshot)


@pytest.mark.parametrize("swap", ["exchange", "rename"])
def test_a_partition_that_another_table_gets_meanwhile_is_not_read_for_it(
    altered: Server, swap: str
) -> None:
    """No server dates a table anew for an exchange; and MySQL 5.6 none with partitions."""
    columns, parts = "(id int primary key)", "partition by hash (id) partitions 2"
    altered.execute(
        f"create table altered.t {columns} {parts}", f"create table altered.x {columns}",
        f"create table altered.next {columns} {parts}", "insert into altered.t values (1), (2)",
        "insert into altered.x values (4)", "insert into altered.next values (5), (6)",
    )  # fmt: skip
    with snapshot_of(altered, r"altered\.t") as snapshot:
        altered.execute(
            "rename table altered.t to altered.last, altered.next to altered.t"
            if swap == "rename"
            else "alter table altered.t exchange partition p0 with table altered.x"
        )
        with pytest.raises(TableMetaMismatch, match=r"altered\.t was made again, or another table"):
            list(snapshot)


@pytest.mark.parametrize("mode", ["consistent", "keyed"])
def test_keys_of_dates_that_there_are_not(altered: Server, mode: str) -> None:
    dates = [f"{year}-{month}-30" for year in range(2000, 2200) for month in ("02", "00")]
    with altered.connect() as connection, connection.cursor() as cursor:
        cursor.execute("set sql_mode = 'ALLOW_INVALID_DATES'")
        cursor.execute("create table altered.d (d date primary key, v int)")
        values = ", ".join(f"('{date}', {number})" for number, date in enumerate(dates))
        cursor.execute(f"insert into altered.d values {values}")
        connection.commit()
    [found] = rows_of(altered, r"altered\.d", mode=mode).values()
    assert sorted(row["v"] for row in found) == list(range(len(dates)))


@pytest.mark.parametrize(
    ("server", "hidden"), [("mysql97", "invisible"), ("mariadb", "ignored")], indirect=["server"]
)
def test_an_index_that_no_statement_may_use_is_no_key(altered: Server, hidden: str) -> None:
    altered.execute(
        "create table altered.i (a int not null, b int not null, unique key z_first (b), "
        f"unique key a_second (a) {hidden})",
        "insert into altered.i values (1, 2), (3, 4)",
    )
    [found] = rows_of(altered, r"altered\.i", mode="keyed").values()
    assert found == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]


@pytest.mark.parametrize("server", ["mysql97"], indirect=True)
def test_a_view_among_the_tables_is_left_out_by_name(
    altered: Server, caplog: pytest.LogCaptureFixture
) -> None:
    altered.execute(
        "create table altered.t (id int primary key)",
        "create view altered.shown as select * from altered.t",
    )
    config = config_of(altered).destination("snap")
    with contextlib.closing(SnapshotPlan(config, TableFilter())) as plan:
        [wanted] = plan.wanted((SnapshotWish(r"altered\..*"),))
    assert wanted.full_name == "altered.t"
    assert "altered.shown is not read: it is a view" in caplog.text


def test_an_attempt_looks_again_for_the_tables_that_are_asked_for(
    altered: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows of a table that was renamed have another name; one that was dropped has none."""
    altered.execute(
        *(f"create table altered.{name} (id int primary key)" for name in ("t", "gone", "read")),
        "create user nobody@'%' identified by ''", "grant select on altered.t to nobody@'%'",
        "grant replication client on *.* to nobody@'%'",
    )  # fmt: skip
    if altered.kind == "mysql97":  # others may have had XA transactions on this server
        altered.execute("grant xa_recover_admin on *.* to nobody@'%'")
    wishes = (SnapshotWish(r"altered\..*"), SnapshotWish(r"altered\.gone"))
    config = config_of(altered).destination("snap")
    less = config_of(altered, username="nobody").destination("snap")
    try:
        with contextlib.closing(SnapshotPlan(config, TableFilter())) as plan:
            before = plan.wanted(wishes)
            before = tuple(replace(one, finished=one.table == "read") for one in before)
            altered.execute(
                "drop table altered.gone, altered.read", "rename table altered.t to altered.old",
                "create table altered.t (id int primary key)", "create table altered.bag (v int)",
            )  # fmt: skip
            found = plan.wanted(wishes, before)
            left = {n: one for n, one in enumerate(found) if not one.finished}
            assert plan.find(left).keys() == left.keys()
        with contextlib.closing(SnapshotPlan(less, TableFilter())) as plan:
            assert plan.wanted(wishes, found) == found
    finally:
        altered.execute("drop user nobody@'%'")
    assert [one.table for one in found if one in before] == ["read", "t"]
    assert [one.table for one in found if one not in before] == ["old"]
    assert "altered.bag is new and not read: no primary key" in caplog.text
    assert "altered.gone is not read on" in caplog.text


def test_an_attempt_reads_what_the_subscriber_sees_by_then(altered: Server) -> None:
    """Rows of a table came after the subscriber's filter had left it out, and those of one that the
    filter got did not."""
    altered.execute(*(f"create table altered.{name} (id int primary key)" for name in "abc"))
    config, wishes = config_of(altered).destination("snap"), (SnapshotWish(),)
    with contextlib.closing(SnapshotPlan(config, TableFilter(r"altered\.[ab]"))) as plan:
        before = plan.wanted(wishes)
    assert [one.table for one in before] == ["a", "b"]
    before = tuple(replace(one, finished=True) for one in before)
    with contextlib.closing(SnapshotPlan(config, TableFilter(r"altered\.[bc]"))) as plan:
        found = plan.wanted(wishes, before)
        assert [(one.table, one.finished) for one in found] == [("b", True), ("c", False)]
        assert plan.find({1: found[1]}).keys() == {1}


def test_a_table_that_lost_its_key_is_named_by_the_next_attempt(altered: Server) -> None:
    altered.execute("create table altered.t (id int primary key)")
    config, wishes = config_of(altered).destination("snap"), (SnapshotWish(r"altered\.t"),)
    with contextlib.closing(SnapshotPlan(config, TableFilter())) as plan:
        before = plan.wanted(wishes)
        altered.execute("alter table altered.t drop primary key")
        again = plan.wanted(wishes, before)
        with pytest.raises(ConfigError, match=r"altered\.t: no primary key"):
            plan.find(dict(enumerate(again)))


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_a_view_that_reads_what_got_the_name_later_waits_for_the_log(altered: Server) -> None:
    """Else its rows are placed before the RENAME, as the other table's."""
    table = "(id int primary key)"
    altered.execute(f"create table altered.t {table}", f"create table altered.next {table}")
    config = config_of(altered).destination("snap")
    with (
        contextlib.closing(SnapshotPlan(config, TableFilter())) as plan,
        contextlib.closing(RowReader(config)) as reader,
    ):
        low = reader._marks.low

        def renamed() -> Any:
            found = low()
            altered.execute("rename table altered.t to altered.old, altered.next to altered.t")
            return found

        reader._marks.low = renamed  # type: ignore[method-assign]
        table_now = plan.find(dict(enumerate(plan.wanted((SnapshotWish(r"altered\.t"),)))))[0]
        read = reader.read(RangeOrder(1, table_now, ""))
    assert (read.high.journal_name, read.high.position) == altered.position()
    assert isinstance(read.low, PlaceLow)
    assert read.low.place < read.high


@pytest.mark.soak  # `make soak-snapshot`
@pytest.mark.parametrize("server", ["mysql97"], indirect=True)
def test_a_partition_that_is_exchanged_while_it_is_paused(altered: Server, tmp_path: Path) -> None:
    run(exchanged(altered, tmp_path))


async def exchanged(server: Server, folder: Path) -> None:
    """The rows that it brings are below the key that the snapshot has come to."""
    columns, rows = "(id int primary key, v int)", [(k, k) for k in range(1000, 6000)]
    parts = "partition p0 values less than (1000), partition p1 values less than maxvalue"
    server.execute(
        f"create table altered.p {columns} partition by range (id) ({parts})",
        f"create table altered.x {columns}",
        f"insert into altered.p values {', '.join(map(str, rows))}",
        "insert into altered.x values (1, 1)", "analyze table altered.p",
    )  # fmt: skip
    slow = {"chunk_bytes": 65536, "readers": 1, "rows_per_s": 3000}
    destination = destination_at(server, folder, snapshot=slow)
    await destination.wait_running(60)
    await destination.subscribe(
        CLIENT, r"altered\.p", wishes=Subscription(snapshot="initial")
    )
    taker = Taker(destination)
    judge = taker.judge = Judge({"p": ("id",)})
    while not (await taker.state())["rows"]:
        await taker.take(0.5)
    await destination.api.snapshot(CLIENT, "pause")
    server.execute(
        "alter table altered.p exchange partition p0 with table altered.x",
        "insert into altered.p values (9999, 0)",
    )
    while (9999,) not in judge.rows["p"]:
        assert await taker.take(10.0)
    assert (1,) not in judge.rows["p"]
    judge.repeats = True
    await destination.api.snapshot(CLIENT, "resume")
    ended = await taker.until_ended()
    await destination.stop()
    assert ended["state"] == "done", ended
    assert judge.rows["p"] == {(k,): v for k, v in [(1, 1), *rows, (9999, 0)]}


@pytest.mark.parametrize("server", ["mysql97"], indirect=True)
def test_a_table_that_is_dropped_while_it_is_described_is_no_missing_grant(
    altered: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot tries again then: with DROP and CREATE it had failed for good."""
    altered.execute("create table altered.t (id int primary key)")

    def dropped(*given: Any) -> Descriptions:
        altered.execute("drop table altered.t")
        return Descriptions(*given)

    monkeypatch.setattr(tables, "Descriptions", dropped)
    with pytest.raises(TableMetaMismatch, match=r"altered\.t was dropped"):
        rows_of(altered, r"altered\.t")


class MadeAgain(Descriptions):
    """What is seen of a table that is dropped, and made again within the second."""

    server: Server

    def state(self, schema: str, table: str) -> None:
        self.server.execute(f"drop table {schema}.{table}")
        assert super().state(schema, table) is None
        self.server.execute(f"create table {schema}.{table} (id int primary key)")


@pytest.mark.parametrize("server", ["mysql97", "mariadb"], indirect=True)
def test_a_table_that_is_made_again_within_a_second_is_no_missing_grant(
    altered: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server tells when a table was made in whole seconds: it was taken for the same one, and
    the snapshot failed for good."""
    altered.execute("create table altered.t (id int primary key)")
    monkeypatch.setattr(MadeAgain, "server", altered, raising=False)
    monkeypatch.setattr(tables, "Descriptions", MadeAgain)
    with pytest.raises(TableMetaMismatch, match=r"altered\.t was dropped"):
        rows_of(altered, r"altered\.t")


@pytest.mark.parametrize("server", ["mysql56"], indirect=True)
def test_a_temporary_table_of_the_same_name_is_none_of_it(altered: Server) -> None:
    """MySQL 5.6 logs that it ends: a session that hides a table by one had let each try fail."""
    made = "create table altered.t (id int primary key)"
    altered.execute(made, "insert into altered.t values (1)")
    with snapshot_of(altered, r"altered\.t", mode="keyed") as snapshot:
        altered.execute(
            "create temporary table altered.t (id int)", "drop temporary table altered.t",
            "insert into altered.t values (2)",
        )  # fmt: skip
        found = {row["after"]["id"] for batch in snapshot for row in batch.to_pylist()}
    assert found == {1, 2}


@pytest.mark.parametrize("server", ["mysql97", "mariadb"], indirect=True)
def test_a_table_that_is_made_again_while_it_is_described_is_described_again(
    altered: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its columns were read, then it had no index: the snapshot failed, for it had no key."""
    make, indexes = "create table altered.t (id int primary key)", Descriptions.indexes

    def between(described: Descriptions, schema: str, table: str) -> Any:
        altered.execute("drop table altered.t")
        found = indexes(described, schema, table)
        altered.execute(make)
        return found

    altered.execute(make)
    config = config_of(altered).destination("snap")
    with contextlib.closing(SnapshotPlan(config, TableFilter())) as plan:
        with monkeypatch.context() as patched:
            patched.setattr(Descriptions, "indexes", between)
            with pytest.raises(TableMetaMismatch, match=r"altered\.t was dropped while it was"):
                plan.wanted((SnapshotWish(r"altered\..*"),))
        [wanted] = plan.wanted((SnapshotWish(r"altered\..*"),))
    assert wanted.full_name == "altered.t"
