"""A part of an actor, called as if it were an actor of its own.

A store process may hold many destinations. Who calls one of them has a Part:
`part.ack.remote(1, 2)` calls the actor's `call("orders", "ack", 1, 2)`.
"""

from __future__ import annotations

from typing import Any


class Part:
    """`entry`: the actor's method that passes calls on."""

    def __init__(self, actor: Any, entry: str, key: str) -> None:
        self.actor = actor
        self._entry = entry
        self._key = key

    def __getattr__(self, name: str) -> PartMethod:
        if name.startswith("_"):
            raise AttributeError(name)
        return PartMethod(self, name)

    def submit(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call a method."""
        return getattr(self.actor, self._entry).remote(self._key, name, *arguments, **named)


class PartMethod:
    """One method of a Part; as an actor's."""

    def __init__(self, part: Part, name: str) -> None:
        self._part, self._name = part, name

    def remote(self, *arguments: Any, **named: Any) -> Any:
        return self._part.submit(self._name, *arguments, **named)
