"""Makes actors that outlive who makes them, of a class that is given.

A store process makes others of its kind (control/stand_in.py), so it cannot be imported here.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.actor import ActorHandle

from ray_canal.actors.placement import on_node, outliving
from ray_canal.actors.placement_table import Home

CALLS_MAX = 10_000


def detached(
    actor: type[Any],
    name: str,
    namespace: str,
    placed: dict[str, Any],
    *given: Any,
    calls_max: int = 16,
) -> ActorHandle[Any]:
    """Return the actor of that name; made with what is given if there is none. Restarted by Ray:
    its constructor is its recovery. `placed`: see placement.py."""
    options = outliving(name, namespace, placed, max_concurrency=calls_max)
    handle: ActorHandle[Any] = ray.remote(actor).options(**options).remote(*given)
    return handle


def made_store(actor: type[Any], home: Home, namespace: str) -> ActorHandle[Any]:
    """Return the store actor of a home, which ends with its node; made if there is none. `actor`:
    its class."""
    given = (home.process, namespace, home.share > 0)
    place = on_node(home.node)
    return detached(actor, home.process, namespace, place, *given, calls_max=CALLS_MAX)
