"""Starts the actors that outlive who makes them: controller, stores, TCP servers.

The classes carry no decorator; this module gives them name, placement and restart policy. What an
actor is made with is kept by Ray's head, which may keep it in Redis: no secrets in that.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.actor import ActorHandle

from ray_canal.actors.placement import ACTOR_CPUS, ON_HEAD
from ray_canal.actors.registry import NOTIFIER_NAME, SERVER_PREFIX
from ray_canal.config import ServerConfig
from ray_canal.config.notify import NotifyConfig

_CALLS_MAX = 10_000


def detached_on_head(
    actor: type[Any], name: str, namespace: str, *given: Any, calls_max: int = 16
) -> ActorHandle[Any]:
    """Return the actor of that name on the head node; made with what is given if there is none.
    Restarted by Ray: its constructor is its recovery."""
    handle: ActorHandle[Any] = (
        ray.remote(actor)
        .options(
            name=name,
            namespace=namespace,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=ACTOR_CPUS,
            resources=ON_HEAD,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=calls_max,
        )
        .remote(*given)
    )
    return handle


def store_process(process: str, namespace: str, shared: bool) -> ActorHandle[Any]:
    """Return the store actor of that name; made if there is none. `shared`: upstreams run in it,
    too."""
    from ray_canal.actors.store_actor import StoreActor

    given = (process, namespace, shared)
    return detached_on_head(StoreActor, process, namespace, *given, calls_max=_CALLS_MAX)


def servers(config: ServerConfig, namespace: str) -> list[ActorHandle[Any]]:
    """Return the TCP server's replicas; made if there are none. One stays on the head node, which
    clients know; several are spread over the nodes. They restart by themselves, indefinitely."""
    from ray_canal.actors.tcp_server_actor import TcpServerActor

    placed: dict[str, Any] = (
        {"resources": ON_HEAD} if config.replicas == 1 else {"scheduling_strategy": "SPREAD"}
    )
    given = server_json(config)
    return [
        ray.remote(TcpServerActor)
        .options(
            name=f"{SERVER_PREFIX}{number}",
            namespace=namespace,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=ACTOR_CPUS,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=100,
            **placed,
        )
        .remote(given, namespace)
        for number in range(config.replicas)
    ]


def notifier(config: NotifyConfig, namespace: str) -> ActorHandle[Any]:
    """Return the notifier; made if there is none. It is on the head node, where secrets are."""
    from ray_canal.actors.notifier import NotifierActor

    given = (config.model_dump_json(), namespace)
    return detached_on_head(NotifierActor, NOTIFIER_NAME, namespace, *given)


def server_json(config: ServerConfig) -> str:
    """Return what a TCP server is made with: of passwords in clear text their hashes."""
    from ray_canal.server.access import hashed

    return hashed(config).model_dump_json()
