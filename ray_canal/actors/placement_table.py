"""Which store process holds which destination, and with what configuration.

Kept in Ray's own key-value store, one record a destination, so that clients find it, the controller
knows after its restart what should run, and a store process after its own what it holds. It lives
as long as the cluster's head; after that the configuration says it again.
"""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import ray

from ray_canal.actors.ray_internals import kv_all, kv_delete, kv_get, kv_keys, kv_put
from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.config.kept_secrets import SCHEME, with_references
from ray_canal.config.node import HEAD, NodeSelector
from ray_canal.destination.ownership import Claim
from ray_canal.errors import InstanceNotRunning

FEW_CPUS = 4
"""On clusters of so many, a destination fetches and decodes in the process of its log."""


class Home(NamedTuple):
    """A process that holds destinations; see `PlacementRecord`."""

    process: str
    share: int
    node: str = ""


@dataclass(frozen=True, slots=True)
class PlacementRecord:
    """`process`: the name of the actor that holds the destination. `share`: how many destinations
    it may hold, with their upstreams; 0: this one, without its upstream. `owner`: whose the
    destination is, from a start to a stop. `node`: the id of the node on which that process runs;
    "": the head."""

    process: str
    share: int
    instance_json: str
    meta_json: str
    owner: str = ""
    node: str = ""

    @classmethod
    def of(cls, home: Home, instance: InstanceConfig, meta: MetaConfig) -> PlacementRecord:
        """A new start of a destination. Secrets in clear text go to files here, on the head. Raises
        ConfigError: they cannot."""
        given = with_references(instance), with_references(meta)
        instance_json, meta_json = (each.model_dump_json() for each in given)
        owner = uuid.uuid4().hex
        return cls(home.process, home.share, instance_json, meta_json, owner, home.node)

    @property
    def shared(self) -> bool:
        """Return whether its upstream runs in the process of its log."""
        return self.share > 0

    @property
    def home(self) -> Home:
        """Return the process that holds the destination, and its node."""
        return Home(self.process, self.share, self.node)

    def at(self, home: Home) -> PlacementRecord:
        """Return the same start of the destination in another process."""
        return replace(self, process=home.process, share=home.share, node=home.node)

    @property
    def selector(self) -> NodeSelector:
        """Return which nodes may have it."""
        return NodeSelector.parse(json.loads(self.instance_json).get("node") or HEAD)

    @property
    def secrets(self) -> list[str]:
        """References to what was put into files for it."""
        return re.findall(rf'"({SCHEME}:[0-9a-f]+)"', self.instance_json + self.meta_json)


class StoredClaim(Claim):
    """An owner's claim that outlives its process, as long as the cluster's head. So a store that
    was restarted does not take the destination from who has taken it meanwhile; a new start, whose
    owner is another one, does."""

    def __init__(self, key: str, owner: str) -> None:
        super().__init__(owner)
        self._key = key

    def epoch(self) -> int | None:
        if self._epoch is None:
            owner, _, epoch = (kv_get(self._key) or "").partition(" ")
            if owner == self.owner:
                self._epoch = int(epoch)
        return self._epoch

    def note(self, epoch: int) -> None:
        """Remember a taken epoch in the cluster, too. Raises InstanceNotRunning: Ray's head does
        not answer."""
        try:
            kv_put(self._key, f"{self.owner} {epoch}")
        except Exception as error:  # Ray's own, of several kinds: its head does not answer
            raise InstanceNotRunning(f"the epoch cannot be noted in the cluster: {error}") from None
        super().note(epoch)


class PlacementTable:
    """The records of one namespace. `limit_s`: so long a look waits for a head of Ray's that does
    not answer, and raises InstanceNotRunning then; None: until it answers."""

    def __init__(self, namespace: str, limit_s: float | None = None) -> None:
        self._limit_s = limit_s
        self._prefix = f"ray_canal:destination:{namespace}:"
        self._claims = f"ray_canal:claim:{namespace}:"

    def claim(self, destination: str, owner: str) -> Claim:
        """Return what the destination's store knows of its ownership."""
        return StoredClaim(self._claims + destination, owner)

    def put(self, destination: str, place: PlacementRecord) -> None:
        kv_put(self._prefix + destination, json.dumps(asdict(place)))

    def get(self, destination: str) -> PlacementRecord | None:
        found = kv_get(self._prefix + destination, self._limit_s)
        return None if found is None else _record(found)

    def remove(self, destination: str) -> None:
        kv_delete(self._prefix + destination)
        kv_delete(self._claims + destination)

    def names(self) -> list[str]:
        """Destinations that have a place."""
        keys = kv_keys(self._prefix, self._limit_s)
        return sorted(key.removeprefix(self._prefix) for key in keys)

    def all(self) -> dict[str, PlacementRecord]:
        """Return the places by destination."""
        found = kv_all(self._prefix, self._limit_s)
        return {key.removeprefix(self._prefix): _record(text) for key, text in found.items()}


def _record(text: str) -> PlacementRecord:
    return PlacementRecord(**json.loads(text))


def share_of(wanted: int | str, destinations: int, cpus: int) -> int:
    """Return how many destinations share a process with their upstreams:
    `ray.destinations_per_process`, or the choice of "auto". 0: each has a process for its log and
    one for its upstream.

    "auto": where there are fewer CPUs than destinations, as many as make one process a CPU; else
    one, on few CPUs, where calls between processes cost more than a second process brings."""
    if isinstance(wanted, int):
        return wanted
    if destinations > cpus:
        return -(-destinations // max(cpus, 1))
    return 1 if cpus <= FEW_CPUS else 0


def share_here(wanted: int | str, names: Iterable[str], placed: Iterable[str]) -> int:
    """`share_of` on this cluster, with these destinations next to those that have a place."""
    cpus = int(ray.cluster_resources().get("CPU", 1))
    return share_of(wanted, len({*names, *placed}), cpus)


def home_for(
    destination: str, places: Mapping[str, PlacementRecord], share: int, prefix: str, node: str = ""
) -> Home:
    """Return the process on this node that takes one more destination: its own, else the first with
    room, else a new one. No process of another node has the same name."""
    where = f"@{node[:12]}" if node else ""
    if share <= 1:
        return Home(f"{prefix}{destination}{where}", share, node)
    members = _members(places.values())
    numbered = (f"{prefix}shared:{number}{where}" for number in itertools.count())
    return Home(next(name for name in numbered if members[name] < share), share, node)


def joined_home(places: Mapping[str, PlacementRecord], share: int, node: str) -> Home | None:
    """Return the process on this node that takes a destination which has lost its own: the one that
    holds fewest, though it be more than its share, as a new one takes seconds. None: there is none,
    or the destination shares none, or each has twice its share."""
    members = _members(each for each in places.values() if each.node == node)
    least = min(members, key=lambda process: (members[process], process), default="")
    joins = share > 1 and least and members[least] < 2 * share
    return Home(least, share, node) if joins else None


def _members(places: Iterable[PlacementRecord]) -> Counter[str]:
    """Return how many destinations each shared process holds."""
    return Counter(place.process for place in places if place.share > 1)
