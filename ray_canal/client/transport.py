"""A connector's transport inside the cluster: calls by a Ray handle, chunks from shared memory."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import Any

import ray

from ray_canal.actors.calls import DestinationCalls
from ray_canal.actors.registry import NAMESPACE
from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.client.holder import holder_for
from ray_canal.client.joining import keep_joined, times_joined
from ray_canal.client.message import Message
from ray_canal.destination.api import Method, Q, R
from ray_canal.model.message import MessageHead, Payload
from ray_canal.views.arrow import load_kernels


class RayTransport(DestinationCalls):
    """Calls of the store actor; entries and Arrow batches are read from shared memory.

    Where `connect` has joined Ray, it joins again when the head has died and another one stands at
    its address; subscriptions and cursors are where meta keeps them.

    Who has subscribed is known by a name of its own, so that it is refused once somebody else has
    subscribed under the same client id: it may have slept through that. Who has not subscribed is
    refused here.
    """

    _holder = ""

    def __init__(self, destination: str, namespace: str = NAMESPACE) -> None:
        super().__init__(destination, namespace)
        self._joined = times_joined()
        # Beside subscribing and waiting for the first message.
        threading.Thread(target=load_kernels, name="load kernels", daemon=True).start()

    @property
    def _is_stale(self) -> bool:
        """True if this process has left the cluster in which the store was looked up."""
        return self._joined != times_joined() or not ray.is_initialized()

    def _submit(self, method: Method[Q, R], request: Q) -> Any:
        self._holder = holder_for(request, self._holder, self.destination)
        return super()._submit(method, replace(request, holder=self._holder))

    has_batches = True

    @property
    def untracked(self) -> bool:
        """A Ray Client has no references of its own."""
        return not ray.util.client.ray.is_connected()

    def message(self, head: MessageHead) -> Message:
        return Message(head, partial(self._load_of, times_joined()))

    def _load_of(self, times: int, payloads: list[Payload]) -> list[DecodedChunk]:
        if times != times_joined():
            raise self.gone()
        return self.load(payloads)

    def _find(self) -> None:
        keep_joined(self._restart_wait_s)
        super()._find()
        self._joined = times_joined()

    def close(self) -> None:
        """Nothing is held: handles are names."""
