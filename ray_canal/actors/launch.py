"""Starts the actors that outlive who makes them: controller, stores, TCP servers.

The classes carry no decorator; this module gives them name, placement and restart policy. What an
actor is made with is kept by Ray's head, which may keep it in Redis: no secrets in that.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.actor import ActorHandle

from ray_canal.actors.placement import ON_HEAD, on_node, outliving, where
from ray_canal.actors.registry import NOTIFIER_NAME, SERVER_PREFIX
from ray_canal.config import ServerConfig
from ray_canal.config.node import NodeSelector
from ray_canal.config.notify import NotifyConfig

_CALLS_MAX = 10_000
_CLIENTS_MAX = 100


def detached(
    actor: type[Any],
    name: str,
    namespace: str,
    placed: dict[str, Any],
    *given: Any,
    calls_max: int = 16,
) -> ActorHandle[Any]:
    """Return the actor of that name; made with what is given if there is none. Restarted by Ray:
    its constructor is its recovery. `placed`: see placement.py."""
    options = outliving(name, namespace, placed, max_concurrency=calls_max)
    handle: ActorHandle[Any] = ray.remote(actor).options(**options).remote(*given)
    return handle


def store_process(process: str, share: int, node: str, namespace: str) -> ActorHandle[Any]:
    """Return the store actor of a home (placement_table.py); made if there is none. It ends with
    its node."""
    from ray_canal.actors.store_actor import StoreActor

    given = (process, namespace, share > 0)
    place = on_node(node)
    return detached(StoreActor, process, namespace, place, *given, calls_max=_CALLS_MAX)


def servers(config: ServerConfig, namespace: str) -> list[ActorHandle[Any]]:
    """Return the TCP server's replicas; made if there are none. Where the configuration names no
    node, one stays on the head, which clients know. Several are spread over the nodes."""
    from ray_canal.actors.tcp_server_actor import TcpServerActor

    node = config.node or ("head" if config.replicas == 1 else "any")
    placed = where(NodeSelector.parse(node))
    if config.replicas > 1:
        placed["scheduling_strategy"] = "SPREAD"
    given = server_json(config)
    names = [f"{SERVER_PREFIX}{number}" for number in range(config.replicas)]
    return [
        detached(TcpServerActor, name, namespace, placed, given, namespace, calls_max=_CLIENTS_MAX)
        for name in names
    ]


def notifier(config: NotifyConfig, namespace: str) -> ActorHandle[Any]:
    """Return the notifier; made if there is none. It is on the head node, where secrets are."""
    from ray_canal.actors.notifier import NotifierActor

    given = (config.model_dump_json(), namespace)
    return detached(NotifierActor, NOTIFIER_NAME, namespace, ON_HEAD, *given)


def server_json(config: ServerConfig) -> str:
    """Return what a TCP server is made with: of passwords in clear text their hashes."""
    from ray_canal.server.access import hashed

    return hashed(config).model_dump_json()
