"""Connections of Canal's protocol, by client id: a new one ends the gets of those before it.

Their clients may be gone, at another server that has not noticed it yet.
"""

from __future__ import annotations

from collections import Counter

from ray_canal.model.subscription import TCP_HOLDER


class Arrivals:
    """Counts the connections of each client id."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def note(self, client_id: int, holder: str) -> None:
        """Count a connection, if it is one of Canal's protocol."""
        if holder.startswith(TCP_HOLDER):
            self._counts[client_id] += 1

    def count(self, client_id: int) -> int:
        """Return how many connections a client id has made so far, for `is_left` to compare."""
        return self._counts[client_id]

    def is_left(self, client_id: int, holder: str, count: int) -> bool:
        """Return whether another connection has come since there were `count`."""
        return holder.startswith(TCP_HOLDER) and self._counts[client_id] != count

    def forget(self, client_id: int) -> None:
        """Forget a subscriber that was removed."""
        self._counts.pop(client_id, None)
