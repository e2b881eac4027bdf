"""The console as an actor of the head node, and how it is started and stopped.

Logins end with its process; what it knows of destinations it asks again.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from ray_canal.actors.log_settings import take_up_log_settings
from ray_canal.actors.port_actor import TIMEOUT_S, close_port, node_address, open_port, port_plan
from ray_canal.actors.registry import NAMESPACE
from ray_canal.client.joining import connect_ray
from ray_canal.config import CanalConfig, ConsoleConfig, load
from ray_canal.config.changes import changed_keys
from ray_canal.console.app import Console
from ray_canal.console.cluster import Cluster
from ray_canal.console.first_source import SourceFiles
from ray_canal.console.niceness import give_way
from ray_canal.errors import ConfigError
from ray_canal.server.access import hashed

_NAME = "canal-console"


class ConsoleActor:
    """One console; it serves from threads of its own. Its process has a low priority, so that
    what visitors ask of it takes little CPU that a destination wants."""

    def __init__(self, console_json: str, namespace: str) -> None:
        """Raises ConfigError: it cannot listen."""
        self._config = ConsoleConfig.model_validate_json(console_json)
        give_way()
        take_up_log_settings(namespace)
        files = SourceFiles(folder=self._config.sources_folder)
        self._console = Console(self._config, Cluster(namespace), files)
        self._url = self._console.start()

    def address(self) -> str:
        """Return its URL, as the cluster reaches it."""
        found = urlsplit(self._url)
        return f"{found.scheme}://{node_address(self._config.listens_on)}:{found.port}"

    def differs(self, console_json: str) -> list[str]:
        """Return the keys in which a configuration differs from what is served."""
        return changed_keys(self._config, ConsoleConfig.model_validate_json(console_json))

    def stop(self) -> None:
        """Close the port."""
        self._console.stop()


def serve_console(
    config: str | os.PathLike[str] | dict[str, Any] | CanalConfig,
    *,
    timeout: float = TIMEOUT_S,
) -> str:
    """Open the console as an actor of the cluster's head node; return its URL.

    One that runs already with this configuration is left as it is; with another, it is started
    over, and its visitors log in again. Raises ConfigError: no [console] section, the port cannot
    be had.
    """
    canal = load(config)
    given = _given(canal)
    connect_ray(canal)
    return open_port(ConsoleActor, _NAME, given, canal.ray.namespace, timeout)


def plan_console(canal: CanalConfig) -> str:
    """Return what `serve_console` would do: "open", "same", or the keys that differ."""
    return port_plan(_NAME, _given(canal), canal.ray.namespace)


def _given(canal: CanalConfig) -> str:
    """Raises ConfigError: no [console] section."""
    if canal.console is None:
        raise ConfigError("the configuration has no [console] section; see docs/how-to/console.md")
    return hashed(canal.console).model_dump_json()


def stop_console(*, namespace: str = NAMESPACE) -> None:
    """Close the console of the cluster, if it is open. The destinations go on."""
    connect_ray(local=False)
    close_port(_NAME, namespace)
