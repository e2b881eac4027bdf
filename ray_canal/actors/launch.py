"""Starts the actors that outlive who makes them: controller, stores, TCP servers.

The classes carry no decorator; this module gives them name, placement and restart policy. What an
actor is made with is kept by Ray's head, which may keep it in Redis: no secrets in that.
"""

from __future__ import annotations

from typing import Any

from ray.actor import ActorHandle

from ray_canal.actors.detached import detached, made_store
from ray_canal.actors.placement import ON_HEAD, where
from ray_canal.actors.placement_table import Home
from ray_canal.actors.registry import NOTIFIER_NAME, SERVER_PREFIX, find_actor
from ray_canal.config import ServerConfig
from ray_canal.config.node import NodeSelector
from ray_canal.config.notify import NotifyConfig

_CLIENTS_MAX = 100


def store_process(home: Home, namespace: str) -> ActorHandle[Any]:
    """Return the store actor of a home (placement_table.py); made if there is none. It ends with
    its node."""
    from ray_canal.actors.store_actor import StoreActor

    return made_store(StoreActor, home, namespace)


def ensure_store_process(home: Home, namespace: str) -> ActorHandle[Any]:
    """Return the store actor of a home; made if there is none."""
    found = find_actor(home.process, namespace)
    return found or store_process(home, namespace)


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
