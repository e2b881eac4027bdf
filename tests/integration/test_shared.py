"""Several destinations in one process: each for itself, and all again after the process ended."""

from __future__ import annotations

import signal
from collections.abc import Callable
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
        # A spare that was taken outlives who took it by more than a minute.
        wait_for(lambda: not processes(FETCHER), 180, "none has a process for its fetcher")

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


def end_one_of(processes: Callable[[], set[int]]) -> None:
    """One of them ends as by a fault in native code."""
    chosen = processes().pop()
    send(chosen, signal.SIGSEGV)
    wait_for(lambda: chosen not in processes(), 60, "it is gone")


@pytest.mark.soak
def test_who_ends_their_process_again_and_again_is_set_apart(
    mysql97: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """D12: a log that ends the process that reads it (a fault in native code, the kernel's memory
    limit) ends the destinations beside it some times, not for ever."""
    others = set(running(STORE))  # of other tests

    def processes() -> set[int]:
        return set(running(STORE)) - others

    names = ("apart_a", "apart_b", "apart_c")
    for name in names:
        mysql97.execute(
            f"drop database if exists {name}",
            f"create database {name}",
            f"create table {name}.t (id int primary key)",
        )
    config = {
        "ray": {"destinations_per_process": 3},
        "meta": {"path": str(tmp_path_factory.mktemp("apart") / "meta.db")},
        "instance": [instance(mysql97, name) for name in names],
    }
    canal.start(config)
    try:
        connectors = {name: canal.connect(name) for name in names}
        for connector in connectors.values():
            connector.subscribe()
        for number in range(1, 4):
            wait_for(lambda: len(processes()) == 1, 60, "they share a process")
            for name, connector in connectors.items():
                mysql97.execute(f"insert into {name}.t values ({number})")
                assert ids(connector, 1) == [number]
            end_one_of(processes)
        wait_for(lambda: len(processes()) == 3, 60, "each has a process of its own")
        for name, connector in connectors.items():
            mysql97.execute(f"insert into {name}.t values (4)")
            assert ids(connector, 1) == [4]
        epochs = {name: canal.status(name)[name]["epoch"] for name in names}
        end_one_of(processes)
        for name, connector in connectors.items():
            mysql97.execute(f"insert into {name}.t values (5)")
            assert ids(connector, 1) == [5]
        now = {name: canal.status(name)[name]["epoch"] for name in names}
        assert sum(now[name] != epochs[name] for name in names) == 1
    finally:
        for name in names:
            canal.stop(name)
    wait_for(lambda: not processes(), 180, "the processes end with their destinations")
