"""subscribers and unsubscribe: who holds what in a destination, whether it runs or not."""

from __future__ import annotations

import os
from typing import Any

from ray_canal.actors import registry
from ray_canal.client.api import call_once
from ray_canal.client.joining import connect_ray
from ray_canal.client.succession import standing
from ray_canal.config import CanalConfig, load
from ray_canal.destination.api import ClientRequest, DestinationApi
from ray_canal.errors import ConfigError, InstanceNotRunning, NoClusterHere, NotSubscribed
from ray_canal.meta.subscribers import forget_subscriber, kept_subscribers
from ray_canal.model.reports import SubscriberReport

Config = str | os.PathLike[str] | dict[str, Any] | CanalConfig


def subscribers(
    destination: str | None = None,
    *,
    config: Config | None = None,
    namespace: str = registry.NAMESPACE,
) -> dict[str, list[SubscriberReport]]:
    """Return the subscribers of one or all destinations, by destination: client id, filter, cursor,
    policy, when it last called, how far it is behind, what keeps it from going on.

    Also of a destination that starts or has failed. With `config`, of one of its destinations that
    does not run, too: from where it keeps its cursors. Raises InstanceNotFound; ConfigError.
    """
    canal = None if config is None else load(config)
    # Who asks for one of many, again and again as the console does, has no list of all made.
    running = [] if canal is None and destination else _running(canal, namespace)
    names = [destination] if destination else sorted({*running, *_names(canal)})
    found = {}
    for name in names:
        if name in running or canal is None:
            found[name] = call_once(
                name, namespace_of(canal, namespace), DestinationApi.subscribers
            )
        else:
            found[name] = kept_subscribers(canal, name)
    return found


def unsubscribe(
    destination: str,
    client_id: int,
    *,
    config: Config | None = None,
    namespace: str = registry.NAMESPACE,
    offline: bool = False,
) -> None:
    """Remove a subscriber and its cursor, whoever has it: the log no longer waits for it.

    Also in a destination that starts or has failed. With `config`, in one that does not run, too;
    `offline` says that it does not where its cluster cannot be asked. Raises NotSubscribed: there
    is no such subscriber; InstanceNotFound; ConfigError.
    """
    canal = None if config is None else load(config)
    if canal is None or is_running(destination, canal, offline=offline):
        done = call_once(
            destination,
            namespace_of(canal, namespace),
            DestinationApi.unsubscribe,
            ClientRequest(client_id=client_id),
        )
    else:
        done = forget_subscriber(canal, destination, client_id)
    if not done:
        raise NotSubscribed(
            f"there is no subscriber {client_id}; `ray-canal subscribers {destination}` names all"
        ).at(destination=destination)


def is_running(destination: str, config: CanalConfig, *, offline: bool) -> bool:
    """Return whether a destination that is to be changed runs in the cluster of its configuration.
    `offline`: it does not where nobody can tell. Raises ConfigError: nobody can."""
    why = ""
    try:
        connect_ray(config, local=False)
        if destination in registry.with_process(config.ray.namespace):
            return True
        why = _active_elsewhere(config)
    except (ConfigError, InstanceNotRunning) as error:
        of_here = not (config.meta.is_server or config.meta.shared)
        why = "" if of_here and isinstance(error, NoClusterHere) else str(error)
    if why and not offline:
        raise ConfigError(
            f"whether the destination runs cannot be told: {why}. One that runs would not see the "
            "change, and write over it. If it runs nowhere, say so by --offline (offline=True)"
        ).at(destination=destination)
    return False


def _active_elsewhere(config: CanalConfig) -> str:
    """Return why a destination that does not run here may run at another head; empty: it does not.
    """
    state = standing(namespace=config.ray.namespace) if config.ray.standby else {"active": True}
    if state is None:
        return "this head takes no part in its deployment (ray.standby)"
    return "" if state["active"] else f"this head waits as a standby, and {state['head']} is active"


def namespace_of(canal: CanalConfig | None, namespace: str) -> str:
    """Return where a configuration's destinations run, else the namespace that was given."""
    return namespace if canal is None else canal.ray.namespace


def _names(canal: CanalConfig | None) -> list[str]:
    return [] if canal is None else [instance.destination for instance in canal.instance]


def _running(canal: CanalConfig | None, namespace: str) -> list[str]:
    """The destinations of the cluster that can be asked. Without a cluster and with a
    configuration: none."""
    try:
        connect_ray(canal, local=False)
    except (ConfigError, InstanceNotRunning):
        if canal is None:
            raise
        return []
    return registry.with_process(namespace_of(canal, namespace))
