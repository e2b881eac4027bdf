"""The deployment as the console knows it: calls of the public client API in one namespace.

Every call blocks and may wait for as long as a destination does not answer; who calls bears that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ray_canal.actors.placement_table import PlacementTable
from ray_canal.actors.registry import HEAD_S
from ray_canal.client import api
from ray_canal.client import apply as applying
from ray_canal.client.connecting import connect
from ray_canal.client.connector import Connector
from ray_canal.client.control import subscriber
from ray_canal.client.subscribers import subscribers, unsubscribe
from ray_canal.config import CanalConfig, InstanceConfig, MetaConfig, SinkConfig
from ray_canal.config.filters import FilterConfig
from ray_canal.errors import ConfigError, InstanceNotFound
from ray_canal.model.reports import SchemaHistoryReport, SnapshotReport, SubscriberReport
from ray_canal.render import plain
from ray_canal.sinks.actor import (
    apply_sinks,
    pause_sink,
    seek_sink,
    sink_plan,
    sink_status,
    start_sinks,
    stop_sink,
)
from ray_canal.sinks.open import lake_of
from ray_canal.sinks.records import asked_records
from ray_canal.sinks.schema_follower import TableName

SteerSink = Literal["pause", "resume", "seek", "stop"]
SteerSnapshot = Literal["pause", "resume", "cancel"]
Steer = Literal["pause", "resume", "seek", "expire", "label", "copy", "rename"]


class Cluster:
    """Destinations of one Ray namespace."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def destinations(self) -> list[str]:
        """Return the names of the destinations that run, sorted."""
        return api.destinations(namespace=self._namespace)

    def status(self, destination: str) -> dict[str, Any]:
        """Return what a destination says of itself, as plain values."""
        found: dict[str, Any] = plain(api.status(destination, namespace=self._namespace))
        return dict(found[destination])

    def subscribers(self, destination: str) -> list[dict[str, Any]]:
        """Return the subscribers of a destination, as plain values."""
        return list(plain(subscribers(destination, namespace=self._namespace)[destination]))

    def deployment(self, destination: str) -> CanalConfig:
        """Return the configuration that a destination runs with. Raises InstanceNotFound;
        InstanceNotRunning: Ray's head does not answer."""
        place = PlacementTable(self._namespace, HEAD_S).get(destination)
        if place is None:
            raise InstanceNotFound(f"no destination {destination!r} is running in this cluster")
        instance = InstanceConfig.model_validate_json(place.instance_json)
        meta = MetaConfig.model_validate_json(place.meta_json)
        return CanalConfig(instance=(instance,), meta=meta)

    def schema_history(self, destination: str, table: str) -> SchemaHistoryReport:
        """Return the tables that a destination knows, and the versions of one."""
        return api.schema_history(destination, table, namespace=self._namespace)

    def sinks(self) -> dict[str, dict[str, Any]]:
        """Return the sinks that run, by name."""
        return dict(sink_status(namespace=self._namespace))

    def nodes(self) -> list[dict[str, Any]]:
        """Return each node, with its destinations and what they take."""
        return api.nodes(namespace=self._namespace)

    def steer_sink(self, name: str, action: SteerSink, to: str) -> None:
        """Pause a sink, let it go on, move it to a place, or stop it."""
        if action == "stop":
            stop_sink(name, namespace=self._namespace)
        elif action == "seek":
            seek_sink(name, to, namespace=self._namespace)
        else:
            pause_sink(name, paused=action == "pause", namespace=self._namespace)

    def compact(
        self, name: str, tables: Sequence[str], vacuum: bool, hours: int | None
    ) -> dict[str, str]:
        """Join the small files of a lake's tables (none named: of all); return what was done, by
        table. Raises ConfigError: the sink writes no lake."""
        record = asked_records(self._namespace).get(name)
        lake = lake_of(SinkConfig.model_validate(record["config"]))
        lake.open()
        try:
            chosen = [_table_name(table) for table in tables] or lake.names()
            return {str(table): str(lake.compact(table, vacuum, hours)) for table in chosen}
        finally:
            lake.close()

    def steer_snapshot(
        self, destination: str, client_id: int, action: SteerSnapshot
    ) -> SnapshotReport:
        """Pause, resume or cancel a subscriber's newest snapshot; return how it goes."""
        control = subscriber(destination, client_id, namespace=self._namespace).snapshot
        if action == "cancel":
            return control.cancel()
        return control.pause() if action == "pause" else control.resume()

    def snapshot(self, destination: str, client_id: int) -> SnapshotReport:
        """Return how a subscriber's newest snapshot goes."""
        return subscriber(destination, client_id, namespace=self._namespace).snapshot.status()

    def start_snapshot(
        self,
        destination: str,
        client_id: int,
        tables: str,
        where: str | dict[str, str],
        columns: list[str] | dict[str, list[str]],
        snapshot_id: str,
        mode: str = "",
    ) -> SnapshotReport:
        """Read tables into a subscriber's log; return how it goes."""
        control = subscriber(destination, client_id, namespace=self._namespace).snapshot
        return control.start(
            tables, where=where, columns=columns, snapshot_id=snapshot_id, mode=mode
        )

    def stop(self, destination: str) -> None:
        """Stop a destination; its cursors stay."""
        api.stop(destination, namespace=self._namespace)

    def unsubscribe(self, destination: str, client_id: int) -> None:
        """Remove a subscriber and its cursor."""
        unsubscribe(destination, client_id, namespace=self._namespace)

    def steer(self, destination: str, client_id: int, action: Steer, to: str) -> SubscriberReport:
        """Operate a subscriber; return its record. `to`: where to seek, a label's text, the new
        client id. Raises ConfigError."""
        control = subscriber(destination, client_id, namespace=self._namespace)
        if action == "seek":
            return control.seek(to)
        if action == "label":
            return control.label(to)
        if action in ("copy", "rename"):
            return control.copy(int(to)) if action == "copy" else control.rename(int(to))
        if action == "expire":
            return control.expire()
        return control.pause() if action == "pause" else control.resume()

    def subscriber(self, destination: str, client_id: int) -> SubscriberReport:
        """Return a subscriber's record. Raises NotSubscribed."""
        return subscriber(destination, client_id, namespace=self._namespace).show()

    def set_filter(self, destination: str, client_id: int, tables: str) -> None:
        """Change a subscriber's table filter."""
        api.set_filter(destination, tables, client_id=client_id, namespace=self._namespace)

    def set_destination_filter(self, destination: str, changes: dict[str, Any]) -> dict[str, Any]:
        """Change keys of a destination's own filter; return all of them. Raises ConfigError."""
        unknown = sorted(changes.keys() - FilterConfig.model_fields.keys())
        if unknown:
            raise ConfigError(f"[instance.filter] has no key {', '.join(unknown)[:200]}")
        return api.set_instance_filter(destination, namespace=self._namespace, **changes)

    def start(self, config: CanalConfig) -> list[str]:
        """Start the destinations of a configuration in this namespace; return their names."""
        return api.start(self._in_namespace(config), replace=False)

    def plan(self, config: CanalConfig, *, remove: bool = True) -> dict[str, Any]:
        """Return what `apply` would do: destinations, Canal's TCP port, sinks, Arrow Flight. (The
        console does not open itself again: `ray-canal apply` does.)"""
        here = self._in_namespace(config)
        ports = {}
        if here.flight is not None:
            from ray_canal.flight.actor import plan_flight

            ports["Arrow Flight"] = plan_flight(here)
        return {**applying.plan(here), "sinks": sink_plan(here, remove=remove), "ports": ports}

    def apply(self, config: CanalConfig, *, remove: bool) -> dict[str, Any]:
        """Change what runs into what a configuration says, but for the console; return the plan."""
        here = self._in_namespace(config)
        found = self.plan(here, remove=remove)
        applying.apply(here, remove=remove)
        if here.flight is not None:
            from ray_canal.flight.actor import serve_flight

            serve_flight(here)
        apply_sinks(here, remove=remove)
        return found

    def start_sinks(self, config: CanalConfig, names: Sequence[str]) -> list[str]:
        """Start sinks of a configuration (none named: all); return their names."""
        return start_sinks(self._in_namespace(config), *names)

    def _in_namespace(self, config: CanalConfig) -> CanalConfig:
        """Return the configuration with the console's own namespace of Ray."""
        here = config.ray.model_copy(update={"namespace": self._namespace})
        return config.model_copy(update={"ray": here})

    def look_on(self, destination: str) -> Connector:
        """Return a connector with an ephemeral subscription, which affects no other."""
        return connect(destination, None, namespace=self._namespace)


def _table_name(table: str) -> TableName:
    """Raises ConfigError."""
    database, _, name = table.partition(".")
    if not (database and name):
        raise ConfigError(f"tables: {table!r} is no database.table")
    return TableName(database, name)
