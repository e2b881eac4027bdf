"""Every actor's and task's name, placement and restart policy, in one place.

The classes in this room carry no decorator; this module turns them into actors. Nothing here
decides what they do.
"""

from __future__ import annotations

import contextlib
from typing import Any

import ray
from ray.actor import ActorHandle

from ray_canal.actors.part import Part
from ray_canal.actors.places import Places
from ray_canal.config import InstanceConfig, ServerConfig
from ray_canal.config.kept_secrets import handed_over, with_references
from ray_canal.errors import InstanceNotFound
from ray_canal.model.position import EntryPosition

NAMESPACE = "ray_canal"
CONTROLLER_NAME = "canal-controller"
STORE_PREFIX = "canal-store:"
_SERVER_PREFIX = "canal-server:"

# Actors wait on sockets and on each other, so they ask for no CPU and never block a decode task's
# slot.
_ACTOR_CPUS = 0
# The controller and the stores stay on the head node, where the meta file is.
ON_HEAD = {"node:__internal_head__": 0.001}
# Calls that must pass while a long poll of the same actor is waiting.
CONTROL_GROUP = "control"
# The one call that asks whether an actor's process runs.
HEALTH_GROUP = "health"
_CALLS_MAX = 10_000


# What an actor is made with is kept by Ray's head, which may keep it in Redis: no secrets in that.


def controller(namespace: str, spare: bool) -> ActorHandle[Any]:
    """The cluster's one controller; made if there is none. It restarts by itself, for ever."""
    from ray_canal.actors.controller import Controller

    handle: ActorHandle[Any] = (
        ray.remote(Controller)
        .options(
            name=CONTROLLER_NAME,
            namespace=namespace,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=_ACTOR_CPUS,
            resources=ON_HEAD,
            max_restarts=-1,
            max_task_retries=0,
        )
        .remote(namespace, spare)
    )
    return handle


def store_process(process: str, namespace: str, shared: bool) -> ActorHandle[Any]:
    """The store actor of that name; made if there is none. Restarted by Ray; its constructor is
    its recovery. `shared`: upstreams run in it, too."""
    from ray_canal.actors.host import StoreActor

    handle: ActorHandle[Any] = (
        ray.remote(StoreActor)
        .options(
            name=process,
            namespace=namespace,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=_ACTOR_CPUS,
            resources=ON_HEAD,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=_CALLS_MAX,
        )
        .remote(process, namespace, shared)
    )
    return handle


def find_store_process(process: str, namespace: str) -> ActorHandle[Any] | None:
    """The running store actor of that name."""
    try:
        handle: ActorHandle[Any] = ray.get_actor(process, namespace=namespace)
    except ValueError:
        return None
    return handle


def find_store(destination: str, namespace: str = NAMESPACE) -> Part:
    """A destination's store, wherever it runs. Raises InstanceNotFound."""
    place = Places(namespace).get(destination)
    actor = None if place is None else find_store_process(place.process, namespace)
    if actor is None:
        running = ", ".join(destinations(namespace)) or "none"
        raise InstanceNotFound(
            f"no destination {destination!r} is running in this cluster (running: {running}); "
            "start it with `ray-canal start CONFIG`"
        )
    return Part(actor, "call", destination)


def destinations(namespace: str = NAMESPACE) -> list[str]:
    """The destinations that have a store actor."""
    running = {
        entry["name"]
        for entry in ray.util.list_named_actors(all_namespaces=True)
        if entry["namespace"] == namespace
    }
    places = Places(namespace).all()
    return sorted(name for name, place in places.items() if place.process in running)


def servers(config: ServerConfig, namespace: str) -> list[ActorHandle[Any]]:
    """The TCP server's replicas; made if there are none. One stays on the head node, which clients
    know; several are spread over the nodes. They restart by themselves, for ever."""
    from ray_canal.actors.tcp_server import TcpServerActor

    placed: dict[str, Any] = (
        {"resources": ON_HEAD} if config.replicas == 1 else {"scheduling_strategy": "SPREAD"}
    )
    given = server_json(config)
    return [
        ray.remote(TcpServerActor)
        .options(
            name=f"{_SERVER_PREFIX}{number}",
            namespace=namespace,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=_ACTOR_CPUS,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=100,
            **placed,
        )
        .remote(given, namespace)
        for number in range(config.replicas)
    ]


def server_json(config: ServerConfig) -> str:
    """What a TCP server is made with: of passwords in clear text their hashes."""
    from ray_canal.server.access import hashed

    return hashed(config).model_dump_json()


def find_servers(namespace: str = NAMESPACE) -> list[ActorHandle[Any]]:
    """The replicas of the TCP server that there are."""
    names = sorted(
        entry["name"]
        for entry in ray.util.list_named_actors(all_namespaces=True)
        if entry["namespace"] == namespace and entry["name"].startswith(_SERVER_PREFIX)
    )
    return [ray.get_actor(name, namespace=namespace) for name in names]


# The stages below are owned by the store actor that makes them: they die with it, and its
# constructor makes new ones. So they need neither name nor restarts.


def fetcher(config: InstanceConfig, fused: bool) -> ActorHandle[Any]:
    """Raises ConfigError: a password is not kept any more."""
    from ray_canal.actors.fetcher import Fetcher

    given, told = handed_over(config)

    handle: ActorHandle[Any] = (
        ray.remote(concurrency_groups={CONTROL_GROUP: 1, HEALTH_GROUP: 1})(Fetcher)
        .options(num_cpus=_ACTOR_CPUS, max_restarts=0)
        .remote(given.model_dump_json(), fused)
    )
    handle.remember.remote(told)
    return handle


def spare(name: str) -> ActorHandle[Any]:
    """See spare.py. It belongs to nobody, and ends by itself."""
    from ray_canal.actors.spare import Fetcher

    handle: ActorHandle[Any] = (
        ray.remote(concurrency_groups={CONTROL_GROUP: 1, HEALTH_GROUP: 1})(Fetcher)
        .options(
            name=name,
            namespace=NAMESPACE,
            lifetime="detached",
            num_cpus=_ACTOR_CPUS,
            max_restarts=0,
        )
        .remote(name)
    )
    return handle


def end(stage: ActorHandle[Any]) -> None:
    """A stage is not needed any more. One that cannot be told ends with its owner."""
    with contextlib.suppress(Exception):
        ray.kill(stage)


def parser(config: InstanceConfig) -> ActorHandle[Any]:
    """Raises ConfigError: a password is not kept any more."""
    from ray_canal.actors.parser import Parser

    given, told = handed_over(config)

    handle: ActorHandle[Any] = (
        ray.remote(concurrency_groups={HEALTH_GROUP: 1})(Parser)
        .options(num_cpus=_ACTOR_CPUS, max_restarts=0)
        .remote(given.model_dump_json())
    )
    handle.remember.remote(told)
    return handle


def transaction_buffer(
    config: InstanceConfig, start: EntryPosition, gtid_set: str
) -> ActorHandle[Any]:
    from ray_canal.actors.buffer import TransactionBufferActor

    handle: ActorHandle[Any] = (
        ray.remote(concurrency_groups={HEALTH_GROUP: 1})(TransactionBufferActor)
        .options(num_cpus=_ACTOR_CPUS, max_restarts=0)
        .remote(with_references(config, lambda _: "kept:").model_dump_json(), start, gtid_set)
    )
    return handle


def spiller(folder: str) -> ActorHandle[Any]:
    """Beside its store, where the folder is."""
    from ray_canal.actors.spiller import Spiller

    handle: ActorHandle[Any] = (
        ray.remote(Spiller)
        .options(num_cpus=_ACTOR_CPUS, resources=ON_HEAD, max_restarts=0)
        .remote(folder)
    )
    return handle


def decode_task() -> Any:
    """The stateless DML-decode task: (raw, parsed) -> (info, decoded). Any worker, any chunk; its
    demand for a CPU is what makes the cluster grow."""
    from ray_canal.actors.decoder import decode_chunk

    return ray.remote(decode_chunk).options(num_returns=2, num_cpus=1, max_retries=3)
