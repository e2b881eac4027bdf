"""The Flight server's actor, and how it is started and stopped.

Hard state: none. Subscribers of a server that dies subscribe again; what they had not acked comes
again. The constructor begins to listen; a port that is not free yet heals by a restart.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from ray_canal.actors.answers import raised_by_actor
from ray_canal.actors.placement import ON_HEAD
from ray_canal.actors.registry import NAMESPACE
from ray_canal.client.api import destinations
from ray_canal.client.connecting import connect
from ray_canal.client.connector import Connector
from ray_canal.client.joining import connect_ray
from ray_canal.config import CanalConfig, FlightConfig, load
from ray_canal.config.changes import changed_keys
from ray_canal.errors import ConfigError
from ray_canal.flight.door import FlightDoor
from ray_canal.malloc import keep_freed_memory
from ray_canal.server.access import hashed

logger = logging.getLogger(__name__)

_NAME = "canal-flight"
_TIMEOUT_S = 60.0
_CALLS_MAX = 16


class FlightActor:
    """One Flight server; its calls run on Flight's own threads."""

    def __init__(self, flight_json: str, namespace: str) -> None:
        """Raises ConfigError: it cannot listen."""
        keep_freed_memory()
        self._config = FlightConfig.model_validate_json(flight_json)
        self._namespace = namespace
        if self._config.warning:
            logger.warning("Arrow Flight: %s", self._config.warning)
        self._door = FlightDoor(self._config, self._connect, self._destinations)

    def _connect(self, destination: str, client_id: int) -> Connector:
        return connect(destination, client_id, namespace=self._namespace)

    def _destinations(self) -> list[str]:
        return destinations(namespace=self._namespace)

    def address(self) -> str:
        """Return host:port, as clients of the cluster reach it."""
        host = self._config.listens_on
        if host in ("0.0.0.0", "::"):
            host = ray.util.get_node_ip_address()
        return f"[{host}]:{self._door.port}" if ":" in host else f"{host}:{self._door.port}"

    def differs(self, flight_json: str) -> list[str]:
        """Return the keys in which a configuration differs from what is served."""
        return changed_keys(self._config, FlightConfig.model_validate_json(flight_json))

    def stop(self) -> None:
        """End every stream and give the port back."""
        self._door.close()


def serve_flight(
    config: str | os.PathLike[str] | dict[str, Any] | CanalConfig,
    *,
    timeout: float = _TIMEOUT_S,
) -> str:
    """Open the Arrow Flight port for all destinations of the cluster; return its host:port.

    A server that runs already with this configuration is left as it is; with another, the port is
    opened again, and its clients subscribe again. Raises ConfigError: no [flight] section, the port
    cannot be had.
    """
    canal = load(config)
    if canal.flight is None:
        raise ConfigError("the configuration has no [flight] section; see docs/how-to/flight.md")
    connect_ray(canal)
    flight_json = hashed(canal.flight).model_dump_json()
    known = _find(canal.ray.namespace)
    if known is not None:
        keys = _answer(known.differs.remote(flight_json), timeout)
        if not keys:
            return str(_answer(known.address.remote(), timeout))
        logger.warning(
            "Arrow Flight: the configuration has changed (%s); the port is opened again, and its "
            "clients subscribe again",
            ", ".join(keys),
        )
        stop_flight(namespace=canal.ray.namespace)
    handle = (
        ray.remote(FlightActor)
        .options(
            name=_NAME,
            namespace=canal.ray.namespace,
            lifetime="detached",
            num_cpus=0,
            resources=ON_HEAD,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=_CALLS_MAX,
        )
        .remote(flight_json, canal.ray.namespace)
    )
    try:
        return str(_answer(handle.address.remote(), timeout))
    except BaseException:
        ray.kill(handle, no_restart=True)
        raise


def stop_flight(*, namespace: str = NAMESPACE) -> None:
    """Close the Arrow Flight port, if it is open. The destinations go on."""
    connect_ray()
    handle = _find(namespace)
    if handle is None:
        return
    with contextlib.suppress(RayActorError, GetTimeoutError):
        ray.get(handle.stop.remote(), timeout=_TIMEOUT_S)
    ray.kill(handle, no_restart=True)


def _find(namespace: str) -> Any:
    try:
        return ray.get_actor(_NAME, namespace=namespace)
    except ValueError:
        return None


def _answer(reference: Any, timeout: float) -> Any:
    """Raises ConfigError: the server could not begin."""
    try:
        return ray.get(reference, timeout=timeout)
    except RayTaskError as error:
        raise raised_by_actor(error) from None
    except (RayActorError, GetTimeoutError) as error:
        raise ConfigError(f"the Flight server does not start: {error}") from None
