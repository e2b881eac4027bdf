"""The handle of one destination in a process that may hold several.

`handle.submit(DestinationApi.ack, request)` calls the actor's `call("orders", "ack", request)`, so
a caller need not know who shares the process.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec

from ray_canal.actors import local_calls
from ray_canal.destination.api import DestinationApi, Method, Q, R

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

    def begin(self, method: Method[Q, R], request: Q) -> Any:
        """Begin a client's call in the shortest way: over the process's local socket (a LocalCall),
        else by Ray (the reference of its answer)."""
        call = local_calls.begin(self.actor, self.destination, method.__name__, (request,))
        return self.submit(method, request) if call is None else call
