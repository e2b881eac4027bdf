"""Ray tasks for a Spark session: as many at once as its executors have cores.

They ask Ray for no CPU: Spark's executors have theirs for as long as the session is there, and wait
for what these tasks make. Where they run is spread over the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import ray
from ray.exceptions import RayTaskError

from ray_canal.malloc import keep_freed_memory

T = TypeVar("T")
S = TypeVar("S")


def results(function: Callable[[S], T], items: Sequence[S], width: int) -> list[T]:
    """Return the function's results, of `width` items at a time. Raises what it raised."""
    found = [data for data, _ in _submitted(function, items, width)]
    try:
        return list(ray.get(found))
    except RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from None


def references(
    function: Callable[[S], T], items: Sequence[S], width: int
) -> list[ray.ObjectRef[T]]:
    """Return references of the results, which are still to come."""
    return [data for data, _ in _submitted(function, items, width)]


def _submitted(
    function: Callable[[S], T], items: Sequence[S], width: int
) -> list[tuple[ray.ObjectRef[T], ray.ObjectRef[None]]]:
    """Each task waits for the end of the one that is `width` before it; a second, empty result says
    so, for the first one would be fetched."""
    task = ray.remote(_call).options(num_cpus=0, num_returns=2, scheduling_strategy="SPREAD")
    shared = ray.put(function)
    found: list[tuple[ray.ObjectRef[T], ray.ObjectRef[None]]] = []
    for number, item in enumerate(items):
        before = found[number - width][1] if number >= width else None
        found.append(tuple(task.remote(shared, item, before)))
    return found


def _call(function: Callable[[S], T], item: S, _before: None) -> tuple[T, None]:
    keep_freed_memory()  # it decodes one item after the other
    return function(item), None
