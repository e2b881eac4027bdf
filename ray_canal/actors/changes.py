"""What a given configuration says otherwise than the one that destinations run with.

A changed configuration is applied by starting the destination over: cursors stay, batches that are
out come again. Only where the cursors would be looked for elsewhere this is refused, since the
destination would begin as a new one.
"""

from __future__ import annotations

from collections.abc import Mapping

from ray_canal.actors.placement_table import Place
from ray_canal.config import CanalConfig, InstanceConfig, MetaConfig
from ray_canal.config.changes import changed_keys, parsed
from ray_canal.config.kept_secrets import revealed
from ray_canal.errors import ConfigError

_CURSORS = ("backend", "path", "address", "database")


def changes(config: CanalConfig, places: Mapping[str, Place]) -> dict[str, list[str]]:
    """The keys that differ, by destination, of those that run. Raises ConfigError: cursors would be
    elsewhere."""
    found = {}
    for instance in config.instance:
        place = places.get(instance.destination)
        keys = [] if place is None else _of_destination(instance, config.meta, place)
        if keys:
            found[instance.destination] = keys
    return found


def _of_destination(instance: InstanceConfig, meta: MetaConfig, place: Place) -> list[str]:
    known = parsed(InstanceConfig, place.instance_json)
    known_meta = parsed(MetaConfig, place.meta_json)
    if known is None or known_meta is None:
        return ["all keys"]
    keys = changed_keys(revealed(known), instance)
    keys += [f"meta.{key}" for key in changed_keys(revealed(known_meta), meta)]
    moved = [key for key in _CURSORS if f"meta.{key}" in keys]
    if moved:
        raise ConfigError(
            f"destination {instance.destination} runs with its cursors elsewhere than this "
            f"configuration says (meta.{', meta.'.join(moved)}), and would not find them: stop it "
            f"(`ray-canal stop {instance.destination}`), take the cursors along, and start it"
        )
    if keys and known_meta.backend == "memory":
        raise ConfigError(
            f"destination {instance.destination} keeps its cursors in memory, so it would lose "
            f"them with a new configuration ({', '.join(keys)}): stop it first"
        )
    return keys


def refused(changed: Mapping[str, list[str]]) -> ConfigError:
    """Of somebody who does not want anything to be started over."""
    told = "; ".join(f"{name} ({', '.join(keys)})" for name, keys in changed.items())
    return ConfigError(
        f"these destinations run with another configuration: {told}; start them without "
        "--no-replace to apply it: each is started over, and goes on at its cursors"
    )
