"""Port of a connector: the calls that it needs of a transport.

Implemented by a Ray handle (transport.py), by Canal's TCP protocol (tcp.py) and by Arrow Flight
(flight.py). They carry the same calls (those of destination/api.py) and make the same messages. No
Ray here: a client by TCP starts without it.
"""

from __future__ import annotations

from typing import Protocol

from ray_canal.client.message import Message
from ray_canal.destination.api import Method, Q, R
from ray_canal.model.message import MessageHead


class Transport(Protocol):
    """Calls that a connector needs."""

    destination: str
    has_batches: bool  # whether messages have Arrow batches

    @property
    def untracked(self) -> bool:
        """Return whether references of chunks that are fetched at once may be untracked
        (actors/ray_internals.py)."""

    def call(self, method: Method[Q, R], request: Q, *, once: bool = False) -> R:
        """Make a call. What is repeatable is made again after a restart, unless `once`."""

    async def call_async(self, method: Method[Q, R], request: Q) -> R:
        """The same, awaited."""

    def arrived_ids(self, client_id: int, batch_ids: list[int]) -> list[int]:
        """Return those of a client's outstanding batches that have arrived here."""

    def not_received(self, client_id: int, batch_id: int) -> None:
        """Note that a batch and those after it have not arrived: the next get brings them again."""

    def message(self, head: MessageHead) -> Message:
        """Return the message of a head; its chunks are loaded when they are asked for."""
        ...

    def close(self) -> None: ...
