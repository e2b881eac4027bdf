"""A destination's memory stays under its documented sum: one huge transaction, one subscriber that
reads it lazily as one message, one that stalls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import ray

import ray_canal as canal
from ray_canal.config import InstanceConfig
from tests.integration.test_main_job import deployment
from tests.memory import OBJECTS, Sampler
from tests.processes import FETCHER, SPILLER, STORE, wait_for
from tests.servers import Server, start

MIB = 1 << 20
ROW_BYTES = 1000
ROWS_A_STATEMENT = 10_000
BATCH_UNITS = 4096
OWN = (STORE, FETCHER, SPILLER)


class Reader:
    """A subscriber in a process of its own that takes everything, lazily."""

    def __init__(self, destination: str, client_id: int, wishes: dict[str, Any]) -> None:
        self._connector = canal.connect(destination, client_id)
        self._connector.subscribe(r"huge\.t", **wishes)

    def take(self, rows: int, batch_size: int) -> tuple[int, int]:
        """(rows, the most rows of one message) of what comes until so many rows did."""
        taken = most = 0
        while taken < rows:
            message = self._connector.get_without_ack(batch_size, timeout=5.0)
            if not message:
                continue
            count = 0
            for batches in message.batches_by_part():
                for batch in batches:
                    ids = batch.column("after").field("id")
                    assert ids[0].as_py() == taken + count + 1
                    count += len(ids)
            taken += count
            most = max(most, count)
            self._connector.ack(message.id)
        return taken, most

    def stall(self) -> int:
        """Take one batch and leave it."""
        return int(self._connector.get_without_ack(64, timeout=30.0).row_count)

    def rollback(self) -> None:
        self._connector.rollback()


def write(server: Server, size_bytes: int) -> int:
    """One transaction of so many bytes; returns its rows."""
    rows = 0
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("set cte_max_recursion_depth = 1000000")
        cursor.execute("begin")
        while rows * ROW_BYTES < size_bytes:
            cursor.execute(
                "insert into huge.t with recursive n (id) as (select %s union all "
                "select id + 1 from n where id < %s) select id, repeat('v', %s) from n",
                (rows + 1, rows + ROWS_A_STATEMENT, ROW_BYTES),
            )
            rows += ROWS_A_STATEMENT
        cursor.execute("commit")
    return rows


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with start("mysql97", tmp_path / "server") as server:
        yield server


def measure(server: Server, folder: Path, size_bytes: int, **instance: Any) -> None:
    """Run it; assert that nothing exceeds the sum that the destination's status names."""
    server.execute(
        "drop database if exists huge", "create database huge",
        "create table huge.t (id int primary key, v varchar(2000))",
    )  # fmt: skip
    config = deployment(server, "huge", folder / "meta.db", decoders=0, **instance)
    canal.start(config)
    actor = ray.remote(Reader).options(num_cpus=0)
    lazy: Any = actor.remote("huge", 1, {"transactions": True})
    stalled: Any = actor.remote("huge", 2, {"policy": "spill"})
    wait_for(lambda: len(status()["store"].get("subscribers", ())) == 2, 180, "both subscribe")
    limits = status()["bytes_max"]
    with Sampler(*OWN, "ray::Reader") as peak:
        before = dict(peak)
        rows = write(server, size_bytes)
        assert ray.get(stalled.stall.remote()) > 0
        taken, most = ray.get(lazy.take.remote(rows, 1))
        assert taken == most == rows  # one message
        on_disk = status()["store"]["bytes_on_disk"]
        ray.get(stalled.rollback.remote())
        assert ray.get(stalled.take.remote(rows, BATCH_UNITS))[0] == rows
    for each in (lazy, stalled):
        ray.kill(each)
    assert on_disk > 0.8 * size_bytes  # or nothing was shown
    grown = peak["ray::Reader"] - before["ray::Reader"]
    print(f"transaction {size_bytes // MIB} MiB, on disk {on_disk // MIB} MiB; limits", end=" ")
    print({what: size // MIB for what, size in limits.items()}, end="; most ")
    print({what: size // MIB for what, size in peak.items()}, f"readers grew by {grown // MIB}")
    assert sum(peak[role] for role in OWN) < limits["processes"]
    assert peak[OBJECTS] < limits["objects"]
    assert on_disk < limits["disk"]
    chunk_bytes = instance.get("chunk_bytes", InstanceConfig.model_fields["chunk_bytes"].default)
    assert grown < 2 * (64 * MIB + 4 * chunk_bytes + 2 * BATCH_UNITS * 1024)


def status() -> dict[str, Any]:
    return dict(canal.status("huge")["huge"])


@pytest.fixture
def stop_after() -> Iterator[None]:
    yield
    if "huge" in canal.status():
        canal.stop("huge")


def test_a_large_transaction_and_a_stalled_subscriber_stay_under_the_sum(
    mysql97: Server, local_ray: None, tmp_path: Path, stop_after: None
) -> None:
    store = {"buffer_size": 4096, "memunit_bytes": 1024}
    measure(mysql97, tmp_path, 24 * MIB, store=store, chunk_bytes=MIB // 2)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_transaction_of_2_gb(
    server: Server, local_ray: None, tmp_path: Path, stop_after: None
) -> None:
    measure(server, tmp_path, 2000 * MIB)
