"""The Flight server's actor, and how it is started and stopped.

Subscribers of a server that dies subscribe again; what they had not acked comes again.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from ray_canal.actors.calls import PassedCalls, map_chunks
from ray_canal.actors.log_settings import take_up_log_settings
from ray_canal.actors.port_actor import TIMEOUT_S, close_port, node_address, open_port, port_plan
from ray_canal.actors.priority import as_ray_itself
from ray_canal.actors.registry import NAMESPACE
from ray_canal.actors.time_slice import shorten_time_slices
from ray_canal.client.api import destinations, status, table_meta
from ray_canal.client.connecting import connect
from ray_canal.client.connector import Connector
from ray_canal.client.control import subscriber
from ray_canal.client.joining import connect_ray
from ray_canal.client.log_end import Reach, reach_of
from ray_canal.config import CanalConfig, FlightConfig, load
from ray_canal.config.changes import changed_keys
from ray_canal.errors import ConfigError
from ray_canal.flight.remote_calls import RemoteCalls
from ray_canal.flight.server import FlightServer
from ray_canal.flight.spark_reads import SparkReads
from ray_canal.malloc import keep_freed_memory
from ray_canal.model.table_meta import TableMeta
from ray_canal.server.access import hashed

logger = logging.getLogger(__name__)

_NAME = "canal-flight"


class FlightActor:
    """One Flight server; its calls run on Flight's own threads."""

    def __init__(self, flight_json: str, namespace: str) -> None:
        """Raises ConfigError: it cannot listen."""
        as_ray_itself()
        shorten_time_slices()
        keep_freed_memory()
        take_up_log_settings(namespace)
        self._config = FlightConfig.model_validate_json(flight_json)
        self._namespace = namespace
        if self._config.warning:
            logger.warning("Arrow Flight: %s", self._config.warning)
        remote = RemoteCalls(PassedCalls(namespace).call, map_chunks, self._config.subscribers_max)
        spark = SparkReads(
            self._connect,
            self._reach,
            self._table_meta,
            self._mark,
            self._config.subscribers_max,
            self._config.idle_timeout_s,
            self._config.read_bytes_max,
        )
        self._server = FlightServer(self._config, self._connect, self._destinations, remote, spark)

    def _connect(self, destination: str, client_id: int | None) -> Connector:
        return connect(destination, client_id, namespace=self._namespace)

    def _reach(self, destination: str, client_id: int) -> Reach | None:
        return reach_of(status(destination, namespace=self._namespace)[destination], client_id)

    def _table_meta(self, destination: str, table: str) -> TableMeta | None:
        return table_meta(destination, table, namespace=self._namespace)

    def _mark(self, destination: str, client_id: int) -> str:
        from ray_canal.spark.log_offset import acked_offset

        known = subscriber(destination, client_id, namespace=self._namespace).show()
        timeline = status(destination, namespace=self._namespace)[destination]["timeline"]
        return acked_offset(known, timeline)

    def _destinations(self) -> list[str]:
        return destinations(namespace=self._namespace)

    def address(self) -> str:
        """Return host:port, as clients of the cluster reach it."""
        return f"{node_address(self._config.listens_on)}:{self._server.port}"

    def differs(self, flight_json: str) -> list[str]:
        """Return the keys in which a configuration differs from what is served."""
        return changed_keys(self._config, FlightConfig.model_validate_json(flight_json))

    def stop(self) -> None:
        """End every stream and give the port back."""
        self._server.close()


def serve_flight(
    config: str | os.PathLike[str] | dict[str, Any] | CanalConfig,
    *,
    timeout: float = TIMEOUT_S,
) -> str:
    """Open the Arrow Flight port for all destinations of the cluster; return its host:port.

    A server that runs already with this configuration is left as it is; with another, the port is
    opened again, and its clients subscribe again. Raises ConfigError: no [flight] section, the port
    cannot be had.
    """
    canal = load(config)
    given = _given(canal)
    connect_ray(canal)
    return open_port(FlightActor, _NAME, given, canal.ray.namespace, timeout)


def plan_flight(canal: CanalConfig) -> str:
    """Return what `serve_flight` would do: "open", "same", or the keys that differ."""
    return port_plan(_NAME, _given(canal), canal.ray.namespace)


def _given(canal: CanalConfig) -> str:
    """Return the [flight] section for the actor, as JSON. Raises ConfigError: there is none."""
    if canal.flight is None:
        raise ConfigError("the configuration has no [flight] section; see docs/how-to/flight.md")
    return hashed(canal.flight).model_dump_json()


def stop_flight(*, namespace: str = NAMESPACE) -> None:
    """Close the Arrow Flight port, if it is open. The destinations go on."""
    connect_ray(local=False)
    close_port(_NAME, namespace)
