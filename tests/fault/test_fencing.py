"""Who slept through a takeover (SIGSTOP, SIGCONT) can neither move a cursor nor deliver."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import ray

import ray_canal as canal
from ray_canal.client.joining import connect_ray
from ray_canal.config import MetaConfig
from ray_canal.errors import Fenced, InstanceNotRunning, SubscriberReplaced
from ray_canal.meta.manager import MetaManager
from ray_canal.meta.open import open_backend
from tests.processes import (
    CONTROLLER,
    FETCHER,
    STORE,
    running,
    send,
    stopped,
    the_one,
    wait_for,
)
from tests.servers import Server

pytestmark = pytest.mark.usefixtures("local_ray")

CLIENT = 7


def deployment(server: Server, name: str, namespace: str, **ray: Any) -> dict[str, Any]:
    """Cursors in MySQL, where another head finds them; a process for log and one for upstream."""
    journal_name, position = server.position()
    return {
        "ray": {"namespace": namespace, "destinations_per_process": 0, **ray},
        "meta": {
            "backend": "mysql",
            "address": server.address,
            "username": "root",
            "database": f"meta_{name}",
        },
        "instance": [
            {
                "destination": name,
                "decoders": 0,
                "source": {
                    "address": server.address,
                    "username": "root",
                    "start": "position",
                    "journal_name": journal_name,
                    "position": position,
                    "heartbeat_s": 0.5,
                    "read_timeout_s": 2.0,
                },
                "filter": {"tables": rf"{name}\..*", "black_tables": r"meta_.*\..*"},
            }
        ],
    }


@contextmanager
def started(config: dict[str, Any]) -> Iterator[None]:
    """The destination and its controller, both ended at the end."""
    namespace = config["ray"]["namespace"]
    try:
        canal.start(config)  # where it errs, as on a busy machine, what it began is in the way
        yield
    finally:
        canal.stop(config["instance"][0]["destination"], namespace=namespace)
        ray.kill(ray.get_actor("canal-controller", namespace=namespace))


def table(server: Server, name: str) -> None:
    server.execute(
        f"drop database if exists {name}",
        f"create database {name}",
        f"create table {name}.t (id int primary key)",
    )


def insert(server: Server, name: str, *ids: int) -> None:
    server.execute(*(f"insert into {name}.t values ({n})" for n in ids))


def ids(message: Any) -> list[int]:
    batches = [batch for batch in message.batches if batch.num_rows]
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [row["after"]["id"] for row in rows if row["after"]]  # not what a DROP says


def next_ids(connector: Any, count: int) -> list[int]:
    """So many rows, each message acked."""
    found: list[int] = []
    wait_for(lambda: len(take(connector, found)) >= count, 180, f"{count} rows, got {found}")
    return found


def take(connector: Any, found: list[int]) -> list[int]:
    message = connector.get_without_ack(timeout=0.2)
    if message:
        found.extend(ids(message))
        connector.ack(message.id)
    return found


def unacked(connector: Any) -> Any:
    """A message with rows, left outstanding; what has none is acked."""
    while True:
        message = connector.get_without_ack(timeout=0.2)
        if message and ids(message):
            return message
        if message:
            connector.ack(message.id)


def test_a_head_that_slept_through_a_takeover_neither_acks_nor_delivers(
    mysql97: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "slept"
    table(mysql97, name)
    old_config, new_config = (deployment(mysql97, name, f"{name}_{x}") for x in ("old", "new"))
    others = set(running(STORE) + running(CONTROLLER))
    with started(old_config), canal.connect(name, CLIENT, namespace="slept_old") as old:
        old.subscribe()
        insert(mysql97, name, 1, 2)
        assert next_ids(old, 2) == [1, 2]
        insert(mysql97, name, 3)
        message = unacked(old)
        assert ids(message) == [3]
        sleeping = set(running(STORE) + running(CONTROLLER)) - others
        assert len(sleeping) == 2
        monkeypatch.setattr("ray_canal.client.api.ANSWER_S", 1.0)
        with stopped(*sleeping):
            # Who looks is not kept waiting.
            told = canal.status(name, namespace="slept_old")[name]
            assert (told["state"], "does not answer" in told["error"]) == ("restarting", True)
            with pytest.raises(InstanceNotRunning, match="does not answer"):
                canal.nodes(namespace="slept_old")
            canal.start(new_config)
        monkeypatch.undo()
        with started(new_config), canal.connect(name, CLIENT, namespace="slept_new") as new:
            new.subscribe()
            assert next_ids(new, 1) == [3]
            insert(mysql97, name, 4)
            with pytest.raises(Fenced, match="another owner has taken over"):
                old.ack(message.id)
            with pytest.raises(Fenced):
                old.get_without_ack(timeout=1)
            assert canal.status(name, namespace="slept_old")[name]["state"] == "failed"
            assert next_ids(new, 1) == [4]
            assert canal.status(name, namespace="slept_new")[name]["generations"] == 1


def test_a_replaced_head_that_reconnects_does_not_take_the_destination_back(
    mysql97: Server,
) -> None:
    """Its connection broke while it slept, so it would begin a new generation."""
    name = "back"
    table(mysql97, name)
    old_config, new_config = (deployment(mysql97, name, f"{name}_{x}") for x in ("old", "new"))
    others = set(running(STORE) + running(CONTROLLER) + running(FETCHER))
    with started(old_config):
        sleeping = set(running(STORE) + running(CONTROLLER) + running(FETCHER)) - others
        with stopped(*sleeping):
            canal.start(new_config)
            for pid in set(running(FETCHER)) & sleeping:
                os.kill(pid, signal.SIGKILL)

        def state(namespace: str) -> Any:
            return canal.status(name, namespace=namespace)[name]

        with started(new_config), canal.connect(name, CLIENT, namespace="back_new") as new:
            wait_for(lambda: "Fenced" in (state("back_old")["error"] or ""), 180, "old is fenced")
            new.subscribe()
            insert(mysql97, name, 1)
            assert next_ids(new, 1) == [1]
            assert state("back_new")["generations"] == 1


def test_a_replaced_store_that_is_restarted_does_not_take_the_destination_back(
    mysql97: Server,
) -> None:
    """B3: its head slept for longer than its controller's patience, and then its store died."""
    name, stall_s = "restarted", 8.0
    table(mysql97, name)
    old_config, new_config = (
        deployment(mysql97, name, f"{name}_{x}", stall_s=stall_s) for x in ("old", "new")
    )
    others = set(running(STORE) + running(CONTROLLER))

    def state(namespace: str) -> Any:
        return canal.status(name, namespace=f"{name}_{namespace}")[name]

    with started(old_config):
        (store,) = set(running(STORE)) - others
        sleeping = set(running(STORE) + running(CONTROLLER)) - others
        time.sleep(6)  # its controller has an answer of it
        over = time.monotonic() + stall_s + 1
        with stopped(*sleeping):
            canal.start(new_config)
            time.sleep(max(0.0, over - time.monotonic()))
        with started(new_config), canal.connect(name, CLIENT, namespace=f"{name}_new") as new:
            new.subscribe()
            time.sleep(8)
            assert store in running(STORE), "its controller has killed it as it woke up"
            send(store, signal.SIGKILL)
            wait_for(lambda: store not in running(STORE), 60, "the store is gone")
            insert(mysql97, name, 1)
            wait_for(lambda: "Fenced" in (state("old")["error"] or ""), 180, "old is fenced")
            assert next_ids(new, 1) == [1]
            assert state("new")["state"] == "running"
            assert state("new")["generations"] == 1
        # Whoever wants it back starts it again.
        canal.stop(name, namespace=f"{name}_old")
        canal.start(old_config)
        insert(mysql97, name, 2)
        with canal.connect(name, CLIENT, namespace=f"{name}_old") as old:
            old.subscribe()
            assert next_ids(old, 1) == [2]


def test_a_fetcher_that_sleeps_is_replaced_and_delivers_nothing_when_it_wakes(
    mysql97: Server,
) -> None:
    name = "fetcher_sleeps"
    table(mysql97, name)
    config = deployment(mysql97, name, name)
    others = set(running(FETCHER))
    with started(config), canal.connect(name, CLIENT, namespace=name) as connector:
        connector.subscribe()
        insert(mysql97, name, 1)
        assert next_ids(connector, 1) == [1]
        (sleeping,) = set(running(FETCHER)) - others
        with stopped(sleeping):
            insert(mysql97, name, 2, 3)
            assert next_ids(connector, 2) == [2, 3]
        insert(mysql97, name, 4)
        assert next_ids(connector, 1) == [4]
        assert canal.status(name, namespace=name)[name]["generations"] >= 2
        wait_for(lambda: sleeping not in running(FETCHER), 180, "the old fetcher ends")


class Client:
    """A subscriber in a process of its own."""

    def __init__(self, name: str) -> None:
        connect_ray()
        self._connector = canal.connect(name, CLIENT, namespace=name)
        self._connector.subscribe()
        self._id = 0

    def pid(self) -> int:
        return os.getpid()

    def take(self) -> list[int]:
        message = unacked(self._connector)
        self._id = message.id
        return ids(message)

    def ack(self) -> None:
        self._connector.ack(self._id)

    def get(self) -> None:
        self._connector.get_without_ack(timeout=0.2)


def test_a_client_that_slept_while_another_took_its_place_neither_acks_nor_gets(
    mysql97: Server,
) -> None:
    name = "client_sleeps"
    table(mysql97, name)
    config = deployment(mysql97, name, name)
    others = set(running(STORE))
    with started(config):
        sleeper: Any = ray.remote(Client).options(num_cpus=0).remote(name)
        insert(mysql97, name, 1, 2)
        assert ray.get(sleeper.take.remote())[0] == 1
        with (
            stopped(ray.get(sleeper.pid.remote())),
            canal.connect(name, CLIENT, namespace=name) as successor,
        ):
            successor.subscribe()
            assert next_ids(successor, 2) == [1, 2]
        insert(mysql97, name, 3)
        for call in (sleeper.ack, sleeper.get):
            with pytest.raises(SubscriberReplaced, match="another connection has subscribed"):
                ray.get(call.remote())
        # A store that starts again knows it, too.
        (store,) = set(running(STORE)) - others
        send(store, signal.SIGKILL)
        with pytest.raises((SubscriberReplaced, InstanceNotRunning)):
            ray.get(sleeper.get.remote())
        assert next_ids(successor, 1) == [3]
        assert the_one(f"ray::{Client.__name__}") > 0
        ray.kill(sleeper)
    manager = MetaManager(open_backend(MetaConfig.model_validate(config["meta"])))
    (subscriber,) = manager.load(name).values()
    manager.close()
    assert subscriber.client_id == CLIENT
