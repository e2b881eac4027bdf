"""Names of the actors that outlive who made them, and how they are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError

from ray_canal.actors.placement_table import PlacementTable
from ray_canal.actors.ray_internals import head_silent
from ray_canal.actors.store_calls import DestinationHandle
from ray_canal.errors import InstanceNotFound

NAMESPACE = "ray_canal"
CONTROLLER_NAME = "canal-controller"
STORE_PREFIX = "canal-store:"
SERVER_PREFIX = "canal-server:"
NOTIFIER_NAME = "canal-notifier"
SINK_PREFIX = "canal-sink:"
HEAD_S = 30.0
"""So long clients wait for an answer of Ray's head; one that begins again needs less."""
T = TypeVar("T")


def find_actor(name: str, namespace: str) -> ActorHandle[Any] | None:
    """Return the actor of that name, if there is one. Raises InstanceNotRunning: Ray's head does
    not answer."""
    try:
        return _asked(lambda: ray.get_actor(name, namespace=namespace))
    except ValueError:
        return None


def _asked(ask: Callable[[], T]) -> T:
    """Ask Ray's head. Raises InstanceNotRunning: it does not answer for as long as Ray waits."""
    try:
        return ask()
    except GetTimeoutError:
        raise head_silent("Ray has given up waiting") from None


def find_store(
    destination: str, namespace: str = NAMESPACE, limit_s: float | None = None
) -> DestinationHandle:
    """Return a destination's handle, wherever it runs. Raises InstanceNotFound; InstanceNotRunning:
    Ray's head does not answer for `limit_s` (HEAD_S)."""
    found = find_placed(destination, namespace, limit_s)
    if found is None:
        raise no_process(destination)
    return found


def find_placed(
    destination: str, namespace: str = NAMESPACE, limit_s: float | None = None
) -> DestinationHandle | None:
    """Return the same; None: it should run, and has no process now. Raises what `find_store` does
    otherwise."""
    place = PlacementTable(namespace, limit_s or HEAD_S).get(destination)
    if place is None:
        running = ", ".join(destinations(namespace)) or "none"
        raise InstanceNotFound(
            f"no destination {destination!r} is running in this cluster (running: {running}); "
            "start it with `ray-canal start CONFIG`"
        )
    actor = find_actor(place.process, namespace)
    return None if actor is None else DestinationHandle(actor, destination)


def find_stores(namespace: str = NAMESPACE) -> dict[str, DestinationHandle | None]:
    """Return the handles of all destinations that should run; None of one that has no process now.
    Raises InstanceNotRunning: Ray's head does not answer."""
    places = PlacementTable(namespace, HEAD_S).all()
    processes = {place.process for place in places.values()}
    actors = {process: find_actor(process, namespace) for process in processes}
    found = {name: actors[place.process] for name, place in places.items()}
    return {
        name: None if actor is None else DestinationHandle(actor, name)
        for name, actor in found.items()
    }


def no_process(destination: str) -> InstanceNotFound:
    """Return the error for a destination that should run, and has no process now."""
    return InstanceNotFound(
        f"destination {destination!r} has no process now: it begins again as soon as a node of "
        "the cluster fits its `node` (`ray-canal nodes` shows them)"
    )


def destinations(namespace: str = NAMESPACE) -> list[str]:
    """Return the destinations that should run: those that were started and not stopped. One whose
    node has ended may have no process at the moment. Raises InstanceNotRunning: Ray's head does not
    answer."""
    return PlacementTable(namespace, HEAD_S).names()


def with_process(namespace: str = NAMESPACE) -> list[str]:
    """Return those of them that have a store actor, which may be starting again."""
    running = names(STORE_PREFIX, namespace)
    places = PlacementTable(namespace, HEAD_S).all()
    return sorted(name for name, place in places.items() if place.process in running)


def find_servers(namespace: str = NAMESPACE) -> list[ActorHandle[Any]]:
    """Return the replicas of the TCP server that there are."""
    return list(find_by_prefix(SERVER_PREFIX, namespace).values())


def names(prefix: str | tuple[str, ...], namespace: str = NAMESPACE) -> set[str]:
    """Return the names of actors that begin with it, or with one of several."""
    return {
        entry["name"]
        for entry in _asked(lambda: ray.util.list_named_actors(all_namespaces=True))
        if entry["namespace"] == namespace and entry["name"].startswith(prefix)
    }


def find_by_prefix(
    prefix: str | tuple[str, ...], namespace: str = NAMESPACE
) -> dict[str, ActorHandle[Any]]:
    """Return the actors whose names begin with it, or with one of several, by name, in order."""
    found = {name: find_actor(name, namespace) for name in sorted(names(prefix, namespace))}
    return {name: handle for name, handle in found.items() if handle is not None}


def find_notifier(namespace: str = NAMESPACE) -> ActorHandle[Any] | None:
    """Return the notifier, if there is one."""
    return find_actor(NOTIFIER_NAME, namespace)
