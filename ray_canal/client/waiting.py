"""How a connector waits for its transport: on the event loop, or by blocking its thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from ray_canal.client.message import Message
from ray_canal.client.port import Transport
from ray_canal.client.session import ClientSession
from ray_canal.destination.api import Method, Q, R


class Waiting(Protocol):
    """Calls that a connector awaits. `turn`: held by a get, which says what has arrived, so that
    gets of one connector come one after the other."""

    turn: AbstractAsyncContextManager[Any]

    async def call(self, method: Method[Q, R], request: Q) -> R:
        """Make a call of the destination."""

    async def fetch(self, message: Message, *, always: bool) -> None:
        """Have a message's chunks here; see Message.fetch."""

    async def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Begin work that no cancellation of the caller ends. None: it is done already."""

    async def close(self, session: ClientSession) -> None:
        """End the session."""


class OnLoop:
    """Waits on the event loop of the caller, who may cancel."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.turn: AbstractAsyncContextManager[Any] = asyncio.Lock()

    async def call(self, method: Method[Q, R], request: Q) -> R:
        return await self._transport.call_async(method, request)

    async def fetch(self, message: Message, *, always: bool) -> None:
        if message.has_to_fetch(always=always):
            await asyncio.to_thread(message.fetch, always=always)

    async def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        return asyncio.ensure_future(work)

    async def close(self, session: ClientSession) -> None:
        await asyncio.to_thread(session.close)


class InThread:
    """Blocks the caller's thread; `complete` (destination/blocking.py) runs it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.turn: AbstractAsyncContextManager[Any] = _Turn()

    async def call(self, method: Method[Q, R], request: Q) -> R:
        return self._transport.call(method, request)

    async def fetch(self, message: Message, *, always: bool) -> None:
        message.fetch(always=always)

    async def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        await work
        return None

    async def close(self, session: ClientSession) -> None:
        session.close()


class _Turn:
    """A lock of threads, entered as one of coroutines."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
