"""The main job on real servers: what concurrent writers commit is what a subscriber receives."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ray_canal as canal
from ray_canal import errors
from ray_canal.model.position import EntryPosition
from tests.servers import Server
from tests.workload import Replica, Workload

ROWS = 15_000


def deployment(server: Server, destination: str, meta: Path, **instance: Any) -> dict[str, Any]:
    return {
        "meta": {"path": str(meta)},
        "instance": [
            {
                "destination": destination,
                "source": {"address": server.address, "username": "root", "password": ""},
                **instance,
            }
        ],
    }


@pytest.fixture
def stop_after() -> Iterator[list[str]]:
    names: list[str] = []
    yield names
    for name in names:
        if name in canal.status():
            canal.stop(name)


def drain(
    connector: canal.Connector, replica: Replica, server: Server, done: threading.Event
) -> None:
    """Receive until the writers are done and everything that the server has written was
    received."""
    end: EntryPosition | None = None
    reached: EntryPosition | None = None
    deadline = time.monotonic() + 240
    while end is None or reached is None or reached < end:
        assert time.monotonic() < deadline, f"received up to {reached}, the server is at {end}"
        message = connector.get_without_ack(batch_size=4096, timeout=0.2)
        if message:
            replica.apply(list(message.batches_by_part()))
            connector.ack(message.id)
            replica.ack()
            reached = message.end
        elif done.is_set() and end is None:
            end = EntryPosition(*server.position())


# The split topology differs from the fused one in nothing that a server could change, and so does
# the number of rows.
@pytest.mark.parametrize(
    ("kind", "decoders", "rows"),
    [
        ("mysql97", 0, ROWS), ("mysql56", 0, ROWS // 3), ("mariadb", 0, ROWS // 3),
        ("mysql97", 2, ROWS // 3),
    ],
)  # fmt: skip
def test_received_rows_equal_select(
    request: pytest.FixtureRequest,
    kind: str,
    decoders: int,
    rows: int,
    local_ray: None,
    tmp_path: Path,
    stop_after: list[str],
) -> None:
    server: Server = request.getfixturevalue(kind)
    database = f"random_{decoders}"
    work = Workload(server, seed=11 + decoders, database=database)
    work.create()
    name = f"main-{kind}-{decoders}"
    stop_after.append(name)
    canal.start(deployment(server, name, tmp_path / "meta.db", decoders=decoders))
    replica, done = Replica(database), threading.Event()

    def write() -> None:
        try:
            work.write(rows)
        finally:
            done.set()

    with canal.connect(name) as connector:
        connector.subscribe(rf"{database}\..*")
        writer = threading.Thread(target=write)
        writer.start()
        drain(connector, replica, server, done)
        writer.join()
    assert replica.received >= rows * 0.9
    assert replica.repeated == 0
    assert replica.differences(work.rows()) == []


def test_asyncio_client(
    mysql97: Server, local_ray: None, tmp_path: Path, stop_after: list[str]
) -> None:
    mysql97.execute("create database if not exists aio", "create table aio.t (id int primary key)")
    stop_after.append("aio")
    canal.start(deployment(mysql97, "aio", tmp_path / "meta.db"))

    async def receive() -> list[int]:
        found: list[int] = []
        async with canal.connect_async("aio") as connector:
            await connector.subscribe(r"aio\.t")
            mysql97.execute("insert into aio.t values (1),(2)", "insert into aio.t values (3)")
            async for message in connector:
                for batch in message.batches:
                    found.extend(batch.column("after").field("id").to_pylist())
                if len(found) >= 3:
                    return found
        return found

    assert asyncio.run(asyncio.wait_for(receive(), 120)) == [1, 2, 3]


def test_stop_and_start_resumes_without_loss(
    mysql97: Server, local_ray: None, tmp_path: Path, stop_after: list[str]
) -> None:
    mysql97.execute("create database if not exists res", "create table res.t (id int primary key)")
    config = deployment(mysql97, "resume", tmp_path / "meta.db")
    stop_after.append("resume")
    received: list[int] = []
    canal.start(config)
    with canal.connect("resume") as connector:
        connector.subscribe(r"res\..*")
    for step in range(3):
        mysql97.execute(*(f"insert into res.t values ({step * 10 + i})" for i in range(10)))
        with canal.connect("resume") as connector:
            connector.subscribe(r"res\..*")
            while len(received) < step * 10 + 5:
                message = connector.get_without_ack(batch_size=1, timeout=0.5)
                for batch in message.batches:
                    received.extend(batch.column("after").field("id").to_pylist())
                connector.ack(message.id)
        canal.stop("resume")
        canal.start(config)
    with canal.connect("resume") as connector:
        connector.subscribe(r"res\..*")
        while len(received) < 30:
            message = connector.get_without_ack(batch_size=1000, timeout=0.5)
            for batch in message.batches:
                received.extend(batch.column("after").field("id").to_pylist())
            connector.ack(message.id)
    assert received == list(range(30))


@pytest.mark.timed
def test_two_timeouts_and_the_contract(
    mysql97: Server, local_ray: None, tmp_path: Path, stop_after: list[str]
) -> None:
    mysql97.execute("create database if not exists con", "create table con.t (id int primary key)")
    stop_after.append("contract")
    config = deployment(mysql97, "contract", tmp_path / "meta.db", store={"batch_mode": "ITEMSIZE"})
    canal.start(config)
    with canal.connect("contract", client_id=5) as connector:
        with pytest.raises(errors.NotSubscribed):
            connector.get_without_ack()
        connector.subscribe(r"con\..*")
        while message := connector.get_without_ack(timeout=0.3):
            connector.ack(message.id)
        began = time.monotonic()
        assert connector.get_without_ack(timeout=0.5).id == -1
        assert 0.4 < time.monotonic() - began < 30
        mysql97.execute("insert into con.t values (1)", "insert into con.t values (2)")
        first = connector.get_without_ack(batch_size=1, timeout=60)
        second = connector.get_without_ack(batch_size=1, timeout=60)
        assert connector.list_batch_ids() == [first.id, second.id]
        with pytest.raises(errors.BatchNotFirst, match="is not the firstly"):
            connector.ack(second.id)
        with pytest.raises(errors.BatchesUnacked):
            connector.get(timeout=1)
        connector.ack(first.id)
        with pytest.raises(errors.BatchNotFound, match="is not exist , please check"):
            connector.ack(first.id)
        connector.rollback()
        again = connector.get_without_ack(batch_size=1, timeout=60)
        assert [e.SerializeToString() for e in again.entries] == [
            e.SerializeToString() for e in second.entries
        ]
        connector.unsubscribe()


def test_unknown_destination(local_ray: None) -> None:
    with pytest.raises(errors.InstanceNotFound, match="no destination 'nowhere'"):
        canal.connect("nowhere")


def test_wrong_password_is_told_by_start(mysql97: Server, local_ray: None, tmp_path: Path) -> None:
    config = deployment(mysql97, "wrong", tmp_path / "meta.db")
    config["instance"][0]["source"]["password"] = "not-the-password"
    with pytest.raises(errors.AuthenticationFailed) as caught:
        canal.start(config)
    assert "not-the-password" not in str(caught.value)
    assert "wrong" not in canal.status()


def test_status_says_where_it_stands(
    mysql97: Server, local_ray: None, tmp_path: Path, stop_after: list[str]
) -> None:
    mysql97.execute("create database if not exists st", "create table st.t (id int primary key)")
    mysql97.execute(
        "create user if not exists st@'%' identified by 'gEhe1m-'", "grant all on *.* to st@'%'"
    )
    config = deployment(mysql97, "status", tmp_path / "meta.db")
    config["instance"][0]["source"].update(username="st", password="gEhe1m-")
    stop_after.append("status")
    canal.start(config)
    with canal.connect("status", client_id=9) as connector:
        connector.subscribe(r"st\..*")
        mysql97.execute("insert into st.t values (1)")
        message = connector.get_without_ack(timeout=0.5)
        while sum(batch.num_rows for batch in message.batches) == 0:
            connector.ack(message.id)
            message = connector.get_without_ack(timeout=0.5)
        before = canal.status("status")["status"]
        assert before["state"] == "running"
        assert before["store"]["subscribers"]["9"]["unacked_batches"] == 1
        assert before["store"]["subscribers"]["9"]["bytes_behind"] > 0
        assert before["store"]["fill"] > 0
        assert before["rows"] >= 1
        connector.ack(message.id)
    deadline = time.monotonic() + 60
    while (after := canal.status("status")["status"])["lag_bytes"] or after["lag_seconds"]:
        assert time.monotonic() < deadline, after
        time.sleep(0.2)
    assert after["lag_bytes"] == 0
    assert after["lag_seconds"] == 0
    assert after["store"]["subscribers"]["9"]["entries_behind"] == 0
    assert "gEhe1m-" not in repr((before, after))
