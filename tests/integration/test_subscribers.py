"""Subscribers of one destination on a real server: when it runs, and who gets what."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ray_canal as canal
from ray_canal import errors
from tests.integration.test_main_job import deployment
from tests.servers import Server


@pytest.fixture
def stop_after() -> Iterator[list[str]]:
    names: list[str] = []
    yield names
    for name in names:
        if name in canal.status():
            canal.stop(name)


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.1)


def state(destination: str) -> str:
    return str(canal.status(destination)[destination]["state"])


def ids(connector: canal.Connector, count: int, *, batch_size: int = 1000) -> list[int]:
    """The ids of the next rows, at least `count`, all acked."""
    found: list[int] = []
    deadline = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {found}"
        message = connector.get_without_ack(batch_size=batch_size, timeout=0.3)
        if message:
            for batch in message.batches:
                found.extend(batch.column("after").field("id").to_pylist())
            connector.ack(message.id)
    return found


def test_an_instance_rests_while_nobody_subscribes(
    mysql97: Server, local_ray: None, tmp_path: Path, stop_after: list[str]
) -> None:
    mysql97.execute("create database if not exists rst", "create table rst.t (id int primary key)")
    stop_after.append("rests")
    canal.start(deployment(mysql97, "rests", tmp_path / "meta.db", runs="while_subscribed"))
    assert state("rests") == "resting"
    with canal.connect("rests") as connector:
        with pytest.raises(errors.NotSubscribed, match="should subscribe first"):
            connector.get_without_ack()
        for number in (1, 2):
            connector.subscribe(r"rst\.t")
            assert state("rests") == "running"
            mysql97.execute(f"insert into rst.t values ({number})")
            assert ids(connector, 1) == [number]
            connector.unsubscribe()
            until(lambda: state("rests") == "resting")
