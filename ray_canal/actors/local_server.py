"""A store process's local socket: the calls of its node's clients, without Ray's cost of a call.

A call by Ray takes one to two milliseconds, as much again under load, and a millisecond of CPU; one
by this socket a fifth of it. Frames are those of local_frames.py; a connection has one call at a
time, and a connection that ends cancels its call, as Ray's cancellation does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pickle
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, cast

from ray_canal.actors.local_frames import (
    DONE,
    FAILED,
    HEAD_BYTES,
    IS_AVAILABLE,
    KEPT,
    body_bytes,
    framed,
    is_portable,
    is_same_user,
)
from ray_canal.errors import InstanceRestarted

Call = Callable[..., Coroutine[Any, Any, Any]]


class LocalServer:
    """Answers with what `call(destination, method, *arguments)` returns. One event loop."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._numbers = itertools.count()
        self._kept: dict[int, Any] = {}
        self._opening: asyncio.Task[str] | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()

    async def name(self) -> str:
        """Return the socket's name, opened when first asked for; empty where there is no such
        socket."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> str:
        name = f"ray_canal-{uuid.uuid4().hex}"
        if IS_AVAILABLE:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(self._connection, f"\0{name}")
        return name if IS_AVAILABLE else ""

    def _connection(self) -> _Connection:
        return _Connection(self, self._connections)

    def close(self) -> None:
        """End the socket and every connection."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.close()

    async def answer(self, frame: bytes) -> tuple[int, Any]:
        """Return the answer to a call: its kind, and what it has."""
        try:
            destination, method, arguments = pickle.loads(frame)
            value = await self._call(destination, method, *arguments)
        except asyncio.CancelledError:
            return FAILED, _cancelled()
        except Exception as error:  # told to the caller
            return FAILED, error
        return (DONE, value) if is_portable(value) else (KEPT, self._keep(value))

    def _keep(self, value: Any) -> int:
        number = next(self._numbers)
        self._kept[number] = value
        return number

    def collect(self, number: int) -> Any:
        """Return an answer that only Ray can carry. Raises InstanceRestarted: its caller's
        connection has ended."""
        try:
            return self._kept.pop(number)
        except KeyError:
            raise InstanceRestarted("the answer was not collected in time") from None

    def forget(self, number: int) -> None:
        """Drop an answer that nobody collects any more."""
        self._kept.pop(number, None)


class _Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, server: LocalServer, all_of_them: set[_Connection]) -> None:
        self._server = server
        self._all = all_of_them
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._task: asyncio.Task[tuple[int, Any]] | None = None
        self._kept: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self._all.add(self)
        if not is_same_user(transport.get_extra_info("socket")):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= HEAD_BYTES:
            end = HEAD_BYTES + body_bytes(buffer)
            if len(buffer) < end:
                return
            frame = bytes(buffer[HEAD_BYTES:end])
            del buffer[:end]
            self._received(frame)

    def _received(self, frame: bytes) -> None:
        if frame:
            self._forget_kept()
            self._task = asyncio.ensure_future(self._server.answer(frame))
            self._task.add_done_callback(self._answer)
        elif self._task is not None:
            self._task.cancel()

    def _answer(self, task: asyncio.Task[tuple[int, Any]]) -> None:
        # One that was cancelled before its first step has nothing to say, and its caller waits.
        told: tuple[int, Any] = (FAILED, _cancelled()) if task.cancelled() else task.result()
        kind, value = told
        if kind == KEPT:
            self._kept = value
        if self._transport is not None:
            self._transport.write(_framed_answer(kind, value))
        else:
            self._forget_kept()

    def _forget_kept(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            self._server.forget(kept)

    def close(self) -> None:
        """End it, without an answer to its call."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._all.discard(self)
        self._forget_kept()
        if self._task is not None:
            self._task.cancel()


def _cancelled() -> InstanceRestarted:
    return InstanceRestarted("the call was cancelled")


def _framed_answer(kind: int, value: Any) -> bytes:
    with contextlib.suppress(Exception):
        return framed((kind, value))
    return framed((FAILED, RuntimeError(f"an answer that cannot be pickled: {value!r}")))
