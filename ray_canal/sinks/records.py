"""Records of sinks in Ray's key-value store: which should run, and where their targets are."""

from __future__ import annotations

import json
from typing import Any

from ray_canal.actors import registry
from ray_canal.actors.ray_internals import kv_all, kv_delete, kv_get, kv_put
from ray_canal.actors.registry import NAMESPACE
from ray_canal.errors import InstanceNotFound
from ray_canal.sinks.port import Cursor


class SinkRecords:
    """The sinks that should run in a namespace. `limit_s`: so long a call waits for a head of Ray's
    that does not answer, and raises InstanceNotRunning then; None: until it answers."""

    def __init__(self, namespace: str, limit_s: float | None = None) -> None:
        self._prefix = f"ray_canal:sink:{namespace}:"
        self._limit_s = limit_s

    def put(self, name: str, config: dict[str, Any], *, paused: bool) -> None:
        record = json.dumps({"config": config, "paused": paused})
        kv_put(self._prefix + name, record, limit_s=self._limit_s)

    def get(self, name: str) -> dict[str, Any]:
        """Raises InstanceNotFound."""
        found = kv_get(self._prefix + name, self._limit_s)
        if found is None:
            names = ", ".join(self.names()) or "none"
            raise InstanceNotFound(
                f"no sink {name!r} was started in this cluster (there are: {names}); start it with "
                f"`ray-canal sink start CONFIG {name}`"
            )
        record: dict[str, Any] = json.loads(found)
        return record

    def remove(self, name: str) -> None:
        kv_delete(self._prefix + name, self._limit_s)

    def names(self) -> list[str]:
        return list(self.all())

    def all(self) -> dict[str, dict[str, Any]]:
        """Return them by name, in the order of names."""
        found = kv_all(self._prefix, self._limit_s)
        return {key.removeprefix(self._prefix): json.loads(found[key]) for key in sorted(found)}


class CommittedPlaces:
    """Where each sink's target has been, now and then: it tells a target that was set back, as by a
    restored backup."""

    def __init__(self, namespace: str) -> None:
        self._prefix = f"ray_canal:sink-place:{namespace}:"

    def put(self, name: str, place: Cursor | None) -> None:
        if place is not None:
            kv_put(self._prefix + name, place.to_json())

    def get(self, name: str) -> Cursor | None:
        found = kv_get(self._prefix + name)
        return None if found is None else Cursor.from_json(found)

    def forget(self, name: str) -> None:
        kv_delete(self._prefix + name, registry.HEAD_S)


def asked_records(namespace: str = NAMESPACE) -> SinkRecords:
    """Return the records for who waits for Ray's head for HEAD_S at most."""
    return SinkRecords(namespace, registry.HEAD_S)
