"""Differences of a given configuration to the one that destinations run with.

A changed configuration is applied by starting the destination over: cursors stay, batches that are
out come again. Only where the cursors would be looked for elsewhere this is refused, since the
destination would begin as a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray_canal.actors.placement_table import PlacementRecord
from ray_canal.config import CanalConfig, InstanceConfig, MetaConfig
from ray_canal.config.changes import changed_values, parsed
from ray_canal.config.kept_secrets import revealed
from ray_canal.errors import ConfigError

_CURSORS = ("backend", "path", "address", "database")


def changes(config: CanalConfig, places: Mapping[str, PlacementRecord]) -> dict[str, list[str]]:
    """Return the keys that differ, by destination, of those that run. Raises ConfigError: cursors
    would be elsewhere."""
    return {name: [*keys] for name, keys in plan(config, places)["change"].items()}


def plan(config: CanalConfig, places: Mapping[str, PlacementRecord]) -> dict[str, Any]:
    """Return what applying a configuration means: `add` (names), `change` (by name and key the
    values before and after as text, secrets hidden), `same` (names), `unlisted`: names of what runs
    and is not in it. Raises ConfigError: cursors would be elsewhere."""
    found: dict[str, Any] = {"add": [], "change": {}, "same": []}
    for instance in config.instance:
        name, place = instance.destination, places.get(instance.destination)
        if place is None:
            found["add"].append(name)
            continue
        values = _of_destination(instance, config.meta, place)
        if values:
            found["change"][name] = values
        else:
            found["same"].append(name)
    names = {instance.destination for instance in config.instance}
    return {**found, "unlisted": sorted(places.keys() - names)}


def _of_destination(
    instance: InstanceConfig, meta: MetaConfig, place: PlacementRecord
) -> dict[str, tuple[str, str]]:
    known = parsed(InstanceConfig, place.instance_json)
    known_meta = parsed(MetaConfig, place.meta_json)
    if known is None or known_meta is None:
        return {"all keys": ("of another version", "of this one")}
    values = changed_values(revealed(known), instance)
    values |= changed_values(revealed(known_meta), meta, "meta.")
    moved = [key for key in _CURSORS if f"meta.{key}" in values]
    if moved:
        raise ConfigError(
            f"destination {instance.destination} runs with its cursors elsewhere than this "
            f"configuration says (meta.{', meta.'.join(moved)}), and would not find them: stop it "
            f"(`ray-canal stop {instance.destination}`), take the cursors along, and start it"
        )
    if values and known_meta.backend == "memory":
        raise ConfigError(
            f"destination {instance.destination} keeps its cursors in memory, so it would lose "
            f"them with a new configuration ({', '.join(values)}): stop it first"
        )
    return values


def refused(changed: Mapping[str, list[str]]) -> ConfigError:
    """Return the error for somebody who does not want anything to be started over."""
    told = "; ".join(f"{name} ({', '.join(keys)})" for name, keys in changed.items())
    return ConfigError(
        f"these destinations run with another configuration: {told}; start them without "
        "--no-replace to apply it: each is started over, and goes on at its cursors"
    )
