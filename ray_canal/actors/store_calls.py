"""Calls of a store process: over its local socket (local_server.py) on its node, else by Ray.

Whether there is a way is found out during the first calls, which go by Ray; so do all calls of a
process on another node, and of one that is not reached in this way.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import pickle
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec

import ray

from ray_canal.actors.local_frames import (
    CANCEL,
    FAILED,
    HEAD_BYTES,
    IS_AVAILABLE,
    KEPT,
    body_bytes,
    framed,
    is_same_user,
)
from ray_canal.actors.placement import this_node
from ray_canal.actors.ray_internals import actor_id
from ray_canal.destination.api import DestinationApi, Method, Q, R
from ray_canal.destination.wakeup import seen
from ray_canal.errors import InstanceNotRunning

_PIECE_BYTES = 256 << 10
_IDLE_MAX = 16
_ASK_AGAIN_S = 30.0
"""So often a process is asked for its socket again: one that was elsewhere may be here now."""
_known: dict[str, LocalCalls] = {}
P = ParamSpec("P")
Remote = Callable[Concatenate[DestinationApi, P], Coroutine[Any, Any, Any]]


class DestinationHandle:
    """One destination's remote methods in a process that may hold several. `actor`: see
    store_actor.py. `handle.submit(DestinationApi.ack, request)` calls its `call("orders", "ack",
    request)`."""

    def __init__(self, actor: Any, destination: str) -> None:
        self.actor = actor
        self.destination = destination

    def submit(self, method: Remote[P], *arguments: P.args, **named: P.kwargs) -> Any:
        """Call a method of DestinationApi; return the reference of its answer."""
        call = self.actor.call
        return call.remote(self.destination, method.__name__, *arguments, **named)

    def begin(self, method: Method[Q, R], request: Q) -> Any:
        """Begin a client's call in the shortest way: over the process's local socket (a LocalCall),
        else by Ray (the reference of its answer)."""
        call = begin(self.actor, self.destination, method.__name__, (request,))
        return self.submit(method, request) if call is None else call


class CallFailed(Exception):
    """A call that raised `cause` in the store's process."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class LocalCalls:
    """Connections to one store process, of any thread and any event loop; each is in use by one
    call at a time."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self._idle: deque[socket.socket] = deque()
        self._asked: Any = None
        self._ask_at = 0.0 if _may_try() else math.inf
        self._name = ""
        self._finding = threading.Lock()

    def connection(self) -> socket.socket | None:
        """Return a connection; None: there is none, or not yet."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._connected()

    def _connected(self) -> socket.socket | None:
        with self._finding:
            self._find()
            name = self._name
        if not name:
            return None
        made = socket.socket(socket.AF_UNIX)
        made.setblocking(False)  # a stopped process lets nobody in: then by Ray, which tells
        with contextlib.suppress(OSError):  # it is on another node, or has ended
            made.connect(f"\0{name}")
            if is_same_user(made):
                return made
        made.close()
        self._name, self._ask_at = "", time.monotonic() + _ASK_AGAIN_S
        return None

    def _find(self) -> None:
        """Ask for the socket's name, or take it once the process has told it."""
        if self._asked is None:
            if not self._name and time.monotonic() >= self._ask_at:
                self._asked = self.actor.local_socket.remote(this_node()).future()
        elif self._asked.done():
            asked, self._asked = self._asked, None
            self._ask_at = time.monotonic() + _ASK_AGAIN_S
            with contextlib.suppress(ray.exceptions.RayError):  # the next call tells what is wrong
                self._name = asked.result()

    def give_back(self, connection: socket.socket) -> None:
        """Keep a connection for the next call."""
        if len(self._idle) < _IDLE_MAX:
            self._idle.append(connection)
        else:
            connection.close()

    def has_ended(self) -> bool:
        """Return whether the process has closed a connection that nobody uses."""
        try:
            connection = self._idle.pop()
        except IndexError:
            return False
        poller = select.poll()
        poller.register(connection, select.POLLIN)
        if poller.poll(0):  # without a call it sends nothing but its end
            connection.close()
            return True
        self.give_back(connection)
        return False

    def close(self) -> None:
        """End the connections that are not in use; no new ones are made."""
        self._name, self._asked, self._ask_at = "", None, math.inf
        while self._idle:
            self._idle.pop().close()


class LocalCall:
    """A call that is about to be made: by `result`, or on an event loop by `wait`."""

    def __init__(self, calls: LocalCalls, connection: socket.socket, frame: bytes) -> None:
        self._calls = calls
        self._connection = connection
        self._frame = frame
        self._task: asyncio.Task[Any] | None = None

    def result(self) -> Any:
        """Block until the answer is there. Raises CallFailed; InstanceNotRunning: the connection
        has ended."""
        connection = self._connection
        try:
            connection.setblocking(True)
            connection.sendall(self._frame)
            kind, value = pickle.loads(_received(connection))
            if kind == KEPT:
                value = ray.get(self._calls.actor.collect.remote(value))
        except OSError as error:
            raise self._lost(error) from error
        except BaseException:  # an interrupt: what the store answers comes again
            connection.close()
            raise
        return self._answered(kind, value)

    async def wait(self) -> Any:
        """The same on an event loop. A caller that is cancelled may `cancel` the call and wait
        again."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._exchange())
            self._task.add_done_callback(seen)
        return await asyncio.shield(self._task)

    async def _exchange(self) -> Any:
        loop, connection = asyncio.get_running_loop(), self._connection
        try:
            connection.setblocking(False)
            await loop.sock_sendall(connection, self._frame)
            kind, value = pickle.loads(await _received_on(loop, connection))
            if kind == KEPT:
                value = await self._calls.actor.collect.remote(value)
        except OSError as error:
            raise self._lost(error) from error
        except BaseException:  # the event loop ends
            connection.close()
            raise
        return self._answered(kind, value)

    def cancel(self) -> None:
        """End the call, which is waited for on an event loop. Its answer tells what has become of
        it."""
        if self._task is not None and not self._task.done():
            with contextlib.suppress(OSError):
                self._connection.send(CANCEL)

    def _answered(self, kind: int, value: Any) -> Any:
        self._calls.give_back(self._connection)
        if kind == FAILED:
            raise CallFailed(value)
        return value

    def _lost(self, error: OSError) -> InstanceNotRunning:
        self._connection.close()
        forget(self._calls)
        return InstanceNotRunning(f"the store's process has ended: {error}")


def begin(actor: Any, *call: Any) -> LocalCall | None:
    """Return a call `(destination, method, arguments)` of a store process that goes over its
    socket; None: it has to go by Ray."""
    key = actor_id(actor)
    calls = _known.get(key)
    if calls is None:
        for other in list(_known.values()):
            if other.has_ended():  # else one that was stopped keeps its connection open
                forget(other)
        calls = _known[key] = LocalCalls(actor)
    connection = calls.connection()
    return None if connection is None else LocalCall(calls, connection, framed(call))


def forget(calls: LocalCalls) -> None:
    """Look for the process's socket again with its next call: it may have another one."""
    calls.close()
    for key in [key for key, each in _known.items() if each is calls]:
        del _known[key]


def _may_try() -> bool:
    return IS_AVAILABLE and not ray.util.client.ray.is_connected()


def _received(connection: socket.socket) -> bytes:
    """Return the body of the next frame. Raises OSError."""
    data = bytearray()
    while len(data) < HEAD_BYTES or len(data) < HEAD_BYTES + body_bytes(data):
        data += _some(connection.recv(_PIECE_BYTES))
    return bytes(memoryview(data)[HEAD_BYTES:])


async def _received_on(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> bytes:
    data = bytearray()
    while len(data) < HEAD_BYTES or len(data) < HEAD_BYTES + body_bytes(data):
        data += _some(await loop.sock_recv(connection, _PIECE_BYTES))
    return bytes(memoryview(data)[HEAD_BYTES:])


def _some(data: bytes) -> bytes:
    """Raises ConnectionResetError: there is no more."""
    if not data:
        raise ConnectionResetError("its connection was closed")
    return data
