"""An address that leads new connections to another server, whose places of the log mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ray_canal.config import InstanceConfig, SourceConfig
from ray_canal.errors import ConnectionLost, ServerSettingRefused
from ray_canal.filter import TableFilter
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.model.subscription import Subscription
from ray_canal.snapshot.consistent import ConsistentSnapshot
from ray_canal.snapshot.keyed import KeyedSnapshot
from ray_canal.snapshot.moment_reader import MomentReader
from ray_canal.snapshot.plan import SnapshotPlan
from ray_canal.snapshot.row_reader import RowReader
from ray_canal.snapshot.session import open_session
from ray_canal.source.catalog import Catalog
from tests.integration.test_failover import replicating
from tests.integration.test_snapshot import config_of
from tests.integration.test_snapshot_keyed import Judge
from tests.local_destination import run
from tests.proxy import Proxy
from tests.servers import Server, start
from tests.snapshot_runs import CLIENT, Taker, destination_at

TABLES = r"moved\.t"


def fill(server: Server, value: int) -> None:
    server.execute(
        "drop database if exists moved", "create database moved",
        "create table moved.t (id int primary key, v int)",
        f"insert into moved.t values (1, {value}), (2, {value})",
    )  # fmt: skip


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_rows_are_of_the_server_whose_log_is_read(server: Server, tmp_path: Path) -> None:
    with start("mariadb", tmp_path / "other", {"server-id": "2"}) as other:
        server.execute("flush binary logs")  # it has a file that the other one has not
        fill(server, 0)
        fill(other, 9)
        with Proxy((server.host, server.port)) as proxy:
            run(moved(server, other, proxy, tmp_path))
            readers_stay(server, other, proxy)
            views_are_of_one_server(server, other, proxy)
            rows_have_a_connection_of_their_own(server, other, proxy)
    server.execute("drop database moved")


@pytest.mark.soak  # two servers
def test_places_are_of_the_log_that_is_read(tmp_path: Path) -> None:
    """The source's address leads to its replica, which has all of its transactions elsewhere."""
    with replicating("mysql97", tmp_path) as pair:
        pair.master.execute("insert into f.t values (1, 1)")
        pair.wait_for_standby()
        with Proxy((pair.master.host, pair.master.port)) as proxy:
            tree = config_of(pair.master, address=proxy.address).destination("snap").model_dump()
            tree["snapshot"] = {"address": pair.standby.address}
            config = InstanceConfig.model_validate(tree)
            plan = SnapshotPlan(config, TableFilter())
            plan.refuse_other_log(str(pair.master.execute("select @@server_uuid")[0][0]))
            proxy.retarget((pair.standby.host, pair.standby.port))
            is_refused(RowReader(config), plan, r"f\.t", "is server .* now, not")


def test_a_filter_that_a_replica_gets_meanwhile_is_noticed(mysql97: Server) -> None:
    """The server is its own replica: what counts is what it says of its replication."""
    fill(mysql97, 0)
    tree = config_of(mysql97).destination("snap").model_dump()
    tree["snapshot"] = {"address": mysql97.address}
    config = InstanceConfig.model_validate(tree)
    plan, reader = SnapshotPlan(config, TableFilter()), RowReader(config)
    [wanted] = plan.wanted((SnapshotWish(TABLES),))
    plan.find({0: wanted})
    [planned] = plan.ranges(0, plan.begin(0, wanted), lambda: 100)
    assert reader.read(planned.order).rows == 2
    by = "change replication filter replicate_ignore_table = (%s)"
    mysql97.execute("change replication source to source_host = 'x'", by % "moved.t")
    try:
        with pytest.raises(ServerSettingRefused, match=r"Ignore_Table may keep rows of moved\.t"):
            reader.read(planned.order)
    finally:
        mysql97.execute("reset replica all", by % "", "drop database moved")
        reader.close()
        plan.close()


async def moved(server: Server, other: Server, proxy: Proxy, folder: Path) -> None:
    destination = destination_at(server, folder, source={"address": proxy.address})
    await destination.wait_running(60)
    proxy.retarget((other.host, other.port))
    await destination.subscribe(CLIENT, TABLES, wishes=Subscription(snapshot="initial"))
    taker = Taker(destination)
    taker.judge = Judge({"t": ("id",)})
    while "is server mariadb-2 now" not in str(state := await taker.state()):
        assert state["state"] == "running", state
        await taker.take(0.2)
    proxy.retarget((server.host, server.port))
    ended = await taker.until_ended()
    await destination.stop()
    assert ended["state"] == "done", ended
    assert taker.judge.rows["t"] == {(1,): 0, (2,): 0}


class Elsewhere(MomentReader):
    """Connects when the address leads to another server."""

    def __init__(self, config: InstanceConfig, proxy: Proxy, *targets: Server) -> None:
        super().__init__(config)
        self._proxy, self._targets = proxy, targets

    def open(self) -> None:
        there, back = self._targets
        self._proxy.retarget((there.host, there.port))
        super().open()
        self._proxy.retarget((back.host, back.port))


def views_are_of_one_server(server: Server, other: Server, proxy: Proxy) -> None:
    """One connection of several is another server's."""
    proxy.retarget((server.host, server.port))
    config: InstanceConfig = config_of(server, address=proxy.address).destination("snap")
    reader = Elsewhere(config, proxy, other, server)
    with pytest.raises(ConnectionLost, match="is server mariadb-2 now, not mariadb-1"):
        ConsistentSnapshot(config, (SnapshotWish(TABLES),), [reader])


def rows_have_a_connection_of_their_own(server: Server, other: Server, proxy: Proxy) -> None:
    """What a reader asks of the server goes over another connection than its rows."""

    def elsewhere(source: SourceConfig, catalog: Catalog) -> Any:
        proxy.retarget((other.host, other.port))
        try:
            return open_session(source, catalog)
        finally:
            proxy.retarget((server.host, server.port))

    config: InstanceConfig = config_of(server, address=proxy.address).destination("snap")
    plan = SnapshotPlan(config, TableFilter())
    with mock.patch("ray_canal.snapshot.row_reader.open_session", elsewhere):
        reader = RowReader(config)
    with mock.patch("ray_canal.snapshot.keyed.open_session", elsewhere), pytest.raises(
        ConnectionLost, match="is server mariadb-2 now, not mariadb-1"
    ):
        KeyedSnapshot(config, TABLES)
    is_refused(reader, plan)


def is_refused(
    reader: RowReader,
    plan: SnapshotPlan,
    tables: str = TABLES,
    why: str = "is server mariadb-2 now, not mariadb-1",
) -> None:
    try:
        [wanted] = plan.wanted((SnapshotWish(tables),))
        plan.find({0: wanted})
        [planned] = plan.ranges(0, plan.begin(0, wanted), lambda: 100)
        with pytest.raises(ConnectionLost, match=why):
            reader.read(planned.order)
    finally:
        reader.close()
        plan.close()


def readers_stay(server: Server, other: Server, proxy: Proxy) -> None:
    """One reader of several comes later than the plan."""
    config: InstanceConfig = config_of(server, address=proxy.address).destination("snap")
    plan = SnapshotPlan(config, TableFilter())
    proxy.retarget((other.host, other.port))
    reader = RowReader(config)
    is_refused(reader, plan)
