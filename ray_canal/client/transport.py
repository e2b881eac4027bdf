"""How a connector reaches a destination: by a Ray handle here, by TCP in tcp.py.

Both carry the same calls (those of actors/store.py) and make the same messages.
"""

from __future__ import annotations

from typing import Any, Protocol

from ray_canal.actors.calls import StoreCalls
from ray_canal.client.message import Message
from ray_canal.protocol.message import MessageHead


class Transport(Protocol):
    """What a connector needs. `repeat`: the call may be made again after a restart."""

    destination: str

    def call(self, method: str, *arguments: Any, repeat: bool) -> Any: ...

    async def call_async(self, method: str, *arguments: Any, repeat: bool) -> Any: ...

    def message(self, head: MessageHead) -> Message: ...

    def close(self) -> None: ...


class RayTransport(StoreCalls):
    """Calls of the store actor; entries and Arrow batches are read from shared memory."""

    def message(self, head: MessageHead) -> Message:
        return Message(head, self.load)

    def close(self) -> None:
        """Nothing is held: handles are names."""
