"""An address that leads new connections to another server, whose places of the log mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.config import InstanceConfig
from ray_canal.errors import ConnectionLost
from ray_canal.filter import TableFilter
from ray_canal.model.snapshot_wish import SnapshotWish
from ray_canal.model.subscription import Subscription
from ray_canal.snapshot.plan import SnapshotPlan
from ray_canal.snapshot.row_reader import RowReader
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
        fill(server, 0)
        fill(other, 9)
        with Proxy((server.host, server.port)) as proxy:
            run(moved(server, other, proxy, tmp_path))
            readers_stay(server, other, proxy)
    server.execute("drop database moved")


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


def readers_stay(server: Server, other: Server, proxy: Proxy) -> None:
    """One reader of several comes later than the plan."""
    config: InstanceConfig = config_of(server, address=proxy.address).destination("snap")
    plan = SnapshotPlan(config, TableFilter())
    proxy.retarget((other.host, other.port))
    reader = RowReader(config)
    try:
        [wanted] = plan.wanted((SnapshotWish(TABLES),))
        plan.find(0, wanted)
        [planned] = plan.ranges(0, plan.begin(0, wanted), lambda: 100)
        with pytest.raises(ConnectionLost, match="is server mariadb-2 now, not mariadb-1"):
            reader.read(planned.order)
    finally:
        reader.close()
        plan.close()
