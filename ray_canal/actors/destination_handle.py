"""The handle of one destination in a process that may hold several.

`handle.ack.remote(1, 2)` calls the actor's `call("orders", "ack", 1, 2)`, so a caller need not know
who shares the process.
"""

from __future__ import annotations

from typing import Any


class DestinationHandle:
    """One destination's remote methods. `entry`: the actor's method that passes calls on."""

    def __init__(self, actor: Any, entry: str, key: str) -> None:
        self.actor = actor
        self._entry = entry
        self._key = key

    def __getattr__(self, name: str) -> RemoteMethod:
        if name.startswith("_"):
            raise AttributeError(name)
        return RemoteMethod(self, name)

    def submit(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call a method; return the reference of its answer."""
        return getattr(self.actor, self._entry).remote(self._key, name, *arguments, **named)


class RemoteMethod:
    """One method of a destination, called as an actor's method is."""

    def __init__(self, handle: DestinationHandle, name: str) -> None:
        self._handle, self._name = handle, name

    def remote(self, *arguments: Any, **named: Any) -> Any:
        return self._handle.submit(self._name, *arguments, **named)
