"""Calls that the server makes to a destination, awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.destination.api import GetRequest, Method, Q, R
from ray_canal.model.message import MessageHead, Payload


class Store(Protocol):
    """One destination, by name. Raises CanalError; InstanceNotFound only when it is looked up."""

    async def call_async(self, method: Method[Q, R], request: Q) -> R:
        """Make a call, with its holder. What is repeatable is made again after a restart."""

    async def take(self, request: GetRequest) -> MessageHead:
        """get_without_ack, or poll of a PollRequest. If it is cancelled, no batch stays outstanding
        because of it."""

    async def load_async(self, payloads: list[Payload]) -> list[DecodedChunk]:
        """The chunks of a message's parts."""


OpenStore = Callable[[str], Awaitable[Store]]
"""A destination's store by its name. Raises InstanceNotFound."""
