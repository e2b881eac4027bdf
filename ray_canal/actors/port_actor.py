"""A port that one detached actor of the head node serves: Arrow Flight, the console.

Such an actor has no hard state. Its constructor begins to listen; a port that is not free yet heals
by a restart.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any, Protocol

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from ray_canal.actors.answers import raised_by_actor
from ray_canal.actors.detached import detached
from ray_canal.actors.placement import ON_HEAD
from ray_canal.actors.registry import find_actor
from ray_canal.errors import ConfigError

logger = logging.getLogger(__name__)

TIMEOUT_S = 60.0


class PortActor(Protocol):
    """Methods of the actor's class, apart from a constructor of (configuration as JSON,
    namespace)."""

    def address(self) -> str:
        """Return where it listens, as clients of the cluster reach it."""

    def differs(self, config_json: str) -> list[str]:
        """Return the keys in which a configuration differs from what is served."""

    def stop(self) -> None:
        """Give the port back."""


def open_port(
    actor: type[PortActor], name: str, config_json: str, namespace: str, timeout: float = TIMEOUT_S
) -> str:
    """Return the address of the actor that serves this configuration, made if there is none. One
    with another configuration is replaced. Raises ConfigError: the port cannot be had."""
    known = find_port(name, namespace)
    if known is not None:
        keys = _answer(known.differs.remote(config_json), name, timeout)
        if not keys:
            return str(_answer(known.address.remote(), name, timeout))
        logger.warning(
            "%s: the configuration has changed (%s); the port is opened again, and its clients "
            "connect again",
            name,
            ", ".join(keys),
        )
        close_port(name, namespace)
    handle = detached(actor, name, namespace, ON_HEAD, config_json, namespace)
    try:
        return str(_answer(handle.address.remote(), name, timeout))
    except BaseException:
        ray.kill(handle, no_restart=True)
        raise


def port_plan(name: str, config_json: str, namespace: str) -> str:
    """Return what `open_port` would do: "open", "same", or the keys that differ."""
    known = find_port(name, namespace)
    if known is None:
        return "open"
    return ", ".join(_answer(known.differs.remote(config_json), name, TIMEOUT_S)) or "same"


def close_port(name: str, namespace: str) -> None:
    """End the actor, if there is one."""
    handle = find_port(name, namespace)
    if handle is None:
        return
    with contextlib.suppress(RayActorError, GetTimeoutError):
        ray.get(handle.stop.remote(), timeout=TIMEOUT_S)
    ray.kill(handle, no_restart=True)


def find_port(name: str, namespace: str) -> ActorHandle[Any] | None:
    """Return the actor, if there is one."""
    return find_actor(name, namespace)


def node_address(host: str) -> str:
    """Return the host under which the cluster reaches what listens on `host` here."""
    host = ray.util.get_node_ip_address() if host in ("0.0.0.0", "::") else host
    return f"[{host}]" if ":" in host else host


def _answer(reference: Any, name: str, timeout: float) -> Any:
    """Raises ConfigError: the actor could not begin."""
    try:
        return ray.get(reference, timeout=timeout)
    except RayTaskError as error:
        raise raised_by_actor(error) from None
    except (RayActorError, GetTimeoutError) as error:
        raise ConfigError(f"{name} does not start: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Return what a constructor raised, without the traceback before it, or an error's text."""
    if isinstance(error, RayActorError) and error.actor_init_failed:
        last = str(error).rstrip().splitlines()[-1]
        return last.partition(": ")[2] or last
    return str(error)
