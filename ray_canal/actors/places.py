"""Which store process holds which destination, and with what configuration.

Kept in Ray's own key-value store, one record a destination, so that clients find it, the controller
knows after its restart what should run, and a store process after its own what it holds. It lives
as long as the cluster's head; after that the configuration says it anew.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_get,
    _internal_kv_list,
    _internal_kv_put,
)


@dataclass(frozen=True, slots=True)
class Place:
    """`process`: the name of the actor that holds the destination. `shared`: whether its upstream
    runs there, too, and other destinations may."""

    process: str
    shared: bool
    instance_json: str
    meta_json: str


class Places:
    """The records of one namespace."""

    def __init__(self, namespace: str) -> None:
        self._prefix = f"ray_canal:destination:{namespace}:"

    def put(self, destination: str, place: Place) -> None:
        _internal_kv_put(self._prefix + destination, json.dumps(asdict(place)), overwrite=True)

    def get(self, destination: str) -> Place | None:
        found = _internal_kv_get(self._prefix + destination)
        return None if found is None else Place(**json.loads(found))

    def remove(self, destination: str) -> None:
        _internal_kv_del(self._prefix + destination)

    def names(self) -> list[str]:
        """Destinations that have a place."""
        prefix = self._prefix.encode()
        return sorted(key.removeprefix(prefix).decode() for key in _internal_kv_list(self._prefix))

    def all(self) -> dict[str, Place]:
        """By destination."""
        found = {name: self.get(name) for name in self.names()}
        return {name: place for name, place in found.items() if place is not None}


def share_of(wanted: int | str, destinations: int, cpus: int) -> int:
    """How many destinations share a process: `ray.destinations_per_process`, or the choice of
    "auto": none while each can have a CPU, else as many as make one process a CPU. 0: each has a
    process for its log and one for its upstream."""
    if isinstance(wanted, int):
        return wanted
    return 0 if destinations <= cpus else -(-destinations // max(cpus, 1))


def process_for(destination: str, places: dict[str, Place], share: int, prefix: str) -> str:
    """The name of the process that takes one more destination: the first with room, else a new
    one."""
    if not share:
        return prefix + destination
    members = [place.process for place in places.values() if place.shared]
    number = 0
    while members.count(f"{prefix}shared:{number}") >= share:
        number += 1
    return f"{prefix}shared:{number}"
