"""How long an actor may be silent before the controller replaces it: a deployment's `ray.stall_s`,
kept in the cluster for the controller's next life."""

from __future__ import annotations

from ray_canal.actors.ray_internals import kv_get, kv_put
from ray_canal.config.deployment import RayConfig

_PREFIX = "ray_canal:stall:"


def keep_stall_limit(namespace: str, seconds: float) -> None:
    """Keep it for a namespace."""
    kv_put(_PREFIX + namespace, repr(seconds))


def stall_limit(namespace: str) -> float:
    """Return what was kept, else the default, in seconds."""
    kept = kv_get(_PREFIX + namespace)
    return RayConfig().stall_s if kept is None else float(kept)
