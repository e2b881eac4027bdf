"""How a connector reaches a destination: by a Ray handle here, by TCP in tcp.py.

Both carry the same calls (those of actors/store.py) and make the same messages.
"""

from __future__ import annotations

import threading
import uuid
from typing import Any, Protocol

from ray_canal.actors.calls import StoreCalls
from ray_canal.actors.spawn import NAMESPACE
from ray_canal.client.message import Message
from ray_canal.protocol.message import MessageHead
from ray_canal.views.arrow import load_kernels


class Transport(Protocol):
    """What a connector needs. `repeat`: the call may be made again after a restart."""

    destination: str
    has_batches: bool  # whether messages have Arrow batches

    def call(self, method: str, *arguments: Any, repeat: bool) -> Any: ...

    async def call_async(self, method: str, *arguments: Any, repeat: bool) -> Any: ...

    def message(self, head: MessageHead) -> Message: ...

    def close(self) -> None: ...


_HELD = ("get", "get_without_ack", "get_soon", "ack", "rollback")


class RayTransport(StoreCalls):
    """Calls of the store actor; entries and Arrow batches are read from shared memory.

    Who has subscribed is known by a name of its own, so that it is refused once somebody else has
    subscribed under the same client id: it may have slept through that.
    """

    _holder = ""

    def __init__(self, destination: str, namespace: str = NAMESPACE) -> None:
        super().__init__(destination, namespace)
        # Beside subscribing and waiting for the first message.
        threading.Thread(target=load_kernels, name="load kernels", daemon=True).start()

    def _submit(self, method: str, *arguments: Any) -> Any:
        if method == "subscribe":
            self._holder = self._holder or uuid.uuid4().hex
        named = {"holder": self._holder} if method in ("subscribe", *_HELD) else {}
        return getattr(self._handle, method).remote(*arguments, **named)

    has_batches = True

    def message(self, head: MessageHead) -> Message:
        return Message(head, self.load)

    def close(self) -> None:
        """Nothing is held: handles are names."""
