"""The handle of one destination in a process that may hold several.

`handle.submit(DestinationApi.ack, request)` calls the actor's `call("orders", "ack", request)`, so
a caller need not know who shares the process.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec

from ray_canal.destination.api import DestinationApi

P = ParamSpec("P")
Remote = Callable[Concatenate[DestinationApi, P], Coroutine[Any, Any, Any]]


class DestinationHandle:
    """One destination's remote methods. `actor`: see store_actor.py."""

    def __init__(self, actor: Any, destination: str) -> None:
        self.actor = actor
        self.destination = destination

    def submit(self, method: Remote[P], *arguments: P.args, **named: P.kwargs) -> Any:
        """Call a method of DestinationApi; return the reference of its answer."""
        call = self.actor.call
        return call.remote(self.destination, method.__name__, *arguments, **named)
