"""Several destinations in one process: each for itself, and all again after the process ended."""

from __future__ import annotations

import signal
from typing import Any

import pytest

import ray_canal as canal
from ray_canal.errors import AuthenticationFailed, InstanceNotFound, InstanceRestarted
from tests.processes import FETCHER, STORE, running, send, wait_for
from tests.servers import Server

pytestmark = pytest.mark.usefixtures("local_ray")

NAMES = ("shared_a", "shared_b", "shared_c")


def instance(server: Server, name: str, username: str = "root") -> dict[str, Any]:
    return {
        "destination": name,
        "source": {"address": server.address, "username": username},
        "filter": {"tables": rf"{name}\..*"},
    }


def ids(connector: canal.Connector, count: int) -> list[int]:
    """Of so many rows, acked."""
    found: list[int] = []
    while len(found) < count:
        message = connector.get_without_ack(100, timeout=0.2)
        for batch in message.batches:
            found += [row["id"] for row in batch["after"].to_pylist()]
        connector.ack(message.id)
    return found


def test_three_in_one_process(mysql97: Server, tmp_path_factory: pytest.TempPathFactory) -> None:
    others = {*running(STORE), *running(FETCHER)}  # of other tests

    def processes(role: str) -> set[int]:
        return set(running(role)) - others

    for name in NAMES:
        mysql97.execute(
            f"drop database if exists {name}",
            f"create database {name}",
            f"create table {name}.t (id int primary key)",
        )
    config = {
        "ray": {"destinations_per_process": 3},
        "meta": {"path": str(tmp_path_factory.mktemp("shared") / "meta.db")},
        "instance": [instance(mysql97, name) for name in NAMES],
    }
    assert canal.start(config) == list(NAMES)
    connectors = {name: canal.connect(name) for name in NAMES}
    try:
        for name, connector in connectors.items():
            connector.subscribe()
            mysql97.execute(f"insert into {name}.t values (1), (2)")
        assert all(ids(connector, 2) == [1, 2] for connector in connectors.values())
        (process,) = processes(STORE)
        assert not processes(FETCHER)

        # One that fails, and one that is stopped, are no event for the others.
        with pytest.raises(AuthenticationFailed):
            canal.start({**config, "instance": [instance(mysql97, "shared_d", "nobody")]})
        canal.stop(NAMES[2])
        with pytest.raises(InstanceNotFound):
            canal.connect(NAMES[2])
        assert canal.status(NAMES[0])[NAMES[0]]["generations"] == 1
        assert processes(STORE) == {process}

        # The end of the process is a restart for those that it holds; the stopped one stays so.
        first, second = (connectors[name] for name in NAMES[:2])
        mysql97.execute(f"insert into {NAMES[0]}.t values (3)")
        while not (outstanding := first.get_without_ack(10, timeout=0.2)):
            pass
        send(process, signal.SIGKILL)
        mysql97.execute(f"insert into {NAMES[1]}.t values (3)")
        assert ids(second, 1) == [3]
        with pytest.raises(InstanceRestarted):
            first.ack(outstanding.id)
        assert ids(first, 1) == [3]
        assert {*NAMES} & {*canal.status()} == {*NAMES[:2]}
        assert processes(STORE).isdisjoint({process})
        canal.start({**config, "instance": [instance(mysql97, NAMES[2])]})
        mysql97.execute(f"insert into {NAMES[2]}.t values (3)")
        assert ids(connectors[NAMES[2]], 1) == [3]
    finally:
        for name in {*NAMES} & {*canal.status()}:
            canal.stop(name)
    wait_for(lambda: not processes(STORE), 180, "the process ends with the last of them")
