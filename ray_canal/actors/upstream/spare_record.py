"""Which spare of a node is free, in Ray's key-value store: whoever deletes its name has taken
it."""

from __future__ import annotations

import contextlib
from typing import Any

import ray

from ray_canal.actors.ray_internals import kv_delete, kv_get, kv_put
from ray_canal.actors.registry import NAMESPACE

_KEY, _READY_KEY = "ray_canal:spare:", "ray_canal:spare:started:"


def free_name(node: str) -> str:
    """Return the name of the node's spare that is free, or will be when it has started; "" if
    none."""
    return kv_get(_KEY + node) or ""


def announce(node: str, name: str) -> None:
    """Note that the spare of this name has started."""
    kv_put(_READY_KEY + node, name)


def offer(node: str, name: str) -> bool:
    """Note a new spare as free. Return False if there is one already."""
    return not kv_put(_KEY + node, name, overwrite=False)


def find(node: str) -> Any:
    """Return the spare that is free, if there is one."""
    name = free_name(node)
    if not name:
        return None
    with contextlib.suppress(ValueError):
        return ray.get_actor(name, namespace=NAMESPACE)
    kv_delete(_KEY + node)  # its process has ended
    return None


def is_ready(node: str) -> bool:
    """Return whether the spare that is free has started."""
    name = free_name(node)
    return bool(name) and kv_get(_READY_KEY + node) == name


def take(node: str) -> tuple[Any, bool]:
    """Return the spare, which from now on nobody else finds, and whether it has started."""
    spare, ready = find(node), is_ready(node)
    return (spare, ready) if spare is not None and kv_delete(_KEY + node) else (None, False)
