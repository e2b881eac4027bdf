"""The controller: killed, it knows what should run; it replaces a store that sleeps."""

from __future__ import annotations

import signal

import pytest
import ray

import ray_canal as canal
from tests.fault.test_fencing import CLIENT, deployment, insert, next_ids, started, table
from tests.processes import CONTROLLER, STORE, running, send, stopped, wait_for
from tests.servers import Server

pytestmark = pytest.mark.usefixtures("local_ray")


def test_a_killed_controller_knows_what_should_run(mysql97: Server) -> None:
    name = "controlled"
    table(mysql97, name)
    config = deployment(mysql97, name, name)
    more = {**config, "instance": [{**config["instance"][0], "destination": f"{name}_more"}]}
    others = set(running(CONTROLLER))
    with started(config):
        canal.start(more)
        canal.stop(name, namespace=name)
        (pid,) = set(running(CONTROLLER)) - others
        send(pid, signal.SIGKILL)
        wait_for(lambda: bool(set(running(CONTROLLER)) - others - {pid}), 180, "a new controller")
        # What was stopped stays so; a store that is gone for good is made again.
        store = ray.get_actor(f"canal-store:{name}_more", namespace=name)
        ray.kill(store, no_restart=True)
        wait_for(lambda: store_of(f"{name}_more", name) not in (None, store), 180, "a new store")
        assert store_of(name, name) is None
        canal.stop(f"{name}_more", namespace=name)
        canal.start(config)


def store_of(destination: str, namespace: str) -> object:
    try:
        return ray.get_actor(f"canal-store:{destination}", namespace=namespace)
    except ValueError:
        return None


@pytest.mark.soak
def test_a_store_that_sleeps_is_replaced(mysql97: Server) -> None:
    name = "store_sleeps"
    table(mysql97, name)
    others = set(running(STORE))
    with (
        started(deployment(mysql97, name, name)),
        canal.connect(name, CLIENT, namespace=name) as connector,
    ):
        connector.subscribe()
        insert(mysql97, name, 1)
        assert next_ids(connector, 1) == [1]
        # The controller has seen it answer, else it would give it more time.
        wait_for(lambda: canal.status(name, namespace=name)[name]["uptime_s"] > 9, 180, "9 s")
        (sleeping,) = set(running(STORE)) - others
        with stopped(sleeping):
            insert(mysql97, name, 2)
            assert next_ids(connector, 1) == [2]
        wait_for(lambda: sleeping not in running(STORE), 180, "the old store ends")
        insert(mysql97, name, 3)
        assert next_ids(connector, 1) == [3]
