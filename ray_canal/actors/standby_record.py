"""Which standby is free, in Ray's key-value store: whoever deletes its name has taken it."""

from __future__ import annotations

import contextlib
from typing import Any

import ray

from ray_canal.actors.ray_internals import kv_delete, kv_get, kv_put
from ray_canal.actors.registry import NAMESPACE

_KEY, _READY_KEY = "ray_canal:spare", "ray_canal:spare:started"


def free_name() -> str:
    """Return the name of the standby that is free, or will be when it has started; "" if none."""
    return kv_get(_KEY) or ""


def announce(name: str) -> None:
    """Note that the standby of this name has started."""
    kv_put(_READY_KEY, name)


def offer(name: str) -> bool:
    """Note a new standby as free. Return False if there is one already."""
    return not kv_put(_KEY, name, overwrite=False)


def find() -> Any:
    """Return the standby that is free, if there is one."""
    name = free_name()
    if not name:
        return None
    with contextlib.suppress(ValueError):
        return ray.get_actor(name, namespace=NAMESPACE)
    kv_delete(_KEY)  # its process has ended
    return None


def is_ready() -> bool:
    """Return whether the standby that is free has started."""
    name = free_name()
    return bool(name) and kv_get(_READY_KEY) == name


def take() -> tuple[Any, bool]:
    """Return the standby, which from now on nobody else finds, and whether it has started."""
    standby, ready = find(), is_ready()
    return (standby, ready) if standby is not None and kv_delete(_KEY) else (None, False)
