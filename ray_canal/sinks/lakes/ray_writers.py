"""Writers of a lake's files as Ray tasks, on any node."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from ray_canal.sinks.lakes.file_shares import Answer, Common, Piece
from ray_canal.sinks.port import SinkError

_ATTEMPTS_AGAIN = 3


@functools.cache  # else each commit would give the cluster the function again
def _task(function: Callable[..., Any]) -> Any:
    return ray.remote(function).options(
        num_cpus=1, max_retries=_ATTEMPTS_AGAIN, scheduling_strategy="SPREAD"
    )


def in_ray_tasks(
    function: Callable[[Common, Piece], Answer], common: Common, pieces: Sequence[Piece]
) -> list[Answer]:
    """Make the calls as Ray tasks of a CPU each: a `Spread`. A task whose worker ends is made
    again; what the first one wrote is named by nobody."""
    task, shared = _task(function), ray.put(common)
    try:
        return list(ray.get([task.remote(shared, piece) for piece in pieces]))
    except RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from None
    except RayError as error:
        raise SinkError(f"a writer of the lake's files has ended: {error}", "retry") from None
