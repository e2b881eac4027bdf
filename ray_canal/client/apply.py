"""apply: what a configuration would change of what runs, and changing it."""

from __future__ import annotations

from typing import Any

from ray_canal.actors import registry
from ray_canal.actors.control.controller import controller
from ray_canal.client.api import changed_server_keys, start, stop, stop_serving
from ray_canal.client.controller_calls import BEGIN_S, ask_controller
from ray_canal.client.joining import connect_ray
from ray_canal.client.subscribers import Config
from ray_canal.config import load


def plan(config: Config) -> dict[str, Any]:
    """Return what `apply` would do to what runs in the configuration's namespace: `add`, `same`,
    `unlisted` (runs, and is not in it): names; `change`: by name and key the values before and
    after as text, secrets hidden; `server`: "open", "reopen", "same", "unlisted" or "" (none), and
    `server_keys`: what differs. Changes nothing. Raises ConfigError: the configuration is wrong, or
    would look for cursors elsewhere; InstanceNotRunning: there is no cluster,
    or its controller does not answer for two minutes.
    """
    canal = load(config)
    connect_ray(canal, local=False)
    namespace = canal.ray.namespace
    handle = controller(namespace, canal.ray.spare)
    found: dict[str, Any] = ask_controller(
        handle, "plan", canal.model_dump_json(), first_s=BEGIN_S
    )
    served = bool(registry.find_servers(namespace))
    keys: list[str] = []
    if canal.server is None:
        how = "unlisted" if served else ""
    elif not served:
        how = "open"
    else:
        keys = sorted(changed_server_keys(canal.server, namespace))
        how = "reopen" if keys else "same"
    return {**found, "server": how, "server_keys": keys}


def apply(config: Config, *, remove: bool = False) -> dict[str, Any]:
    """Change what runs into what a configuration says, and return the plan that was carried out.

    What does not differ is left alone: its log, its connections, what it has handed out. A changed
    destination is started over at its cursors, in its process; a changed TCP port is reopened. With
    `remove`, what runs in the namespace and is not in the configuration is stopped; its cursors
    stay. Nothing is changed if the configuration is refused. Raises as `start`.
    """
    canal = load(config)
    found = plan(canal)
    start(canal)
    if remove:
        for name in found["unlisted"]:
            stop(name, namespace=canal.ray.namespace)
        if found["server"] == "unlisted":
            stop_serving(namespace=canal.ray.namespace)
    return found
