"""A client's socket: read and write within time limits.

While a request is carried out the socket is still read, so that a client that goes away is noticed,
and a get that waits for it ends. An answer is sent in slices, each within a time limit: a client
that reads nothing is disconnected, and sooner if others wait for the memory of its answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from ray_canal.canal.session import Session
from ray_canal.server.shared import Shared

T = TypeVar("T")

_READ_BYTES = 64 << 10
_SLICE_BYTES = 256 << 10
_CONTENDED_STALL_S = 5.0
_CHECK_S = 1.0
_LINGER_S = 1.0


class Gone(Exception):
    """The client has gone away, or reads nothing; the text says which."""


class Peer:
    """The client's end of a connection; `session` gets the bytes that it sends."""

    def __init__(
        self,
        shared: Shared,
        session: Session,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._shared = shared
        self._session = session
        self._reader = reader
        self._writer = writer
        self._name = _printed(writer.get_extra_info("peername"))
        self._reading: asyncio.Task[bytes] | None = None
        self._received_at = self._sent_at = time.monotonic()
        self._login_by: float | None = self._received_at + shared.config.login_timeout_s
        self._read_timeout_s = self.write_timeout_s = shared.config.idle_timeout_s
        writer.transport.set_write_buffer_limits(high=0)  # unsent bytes wait in the kernel alone

    def __str__(self) -> str:
        return self._name

    def logged_in(self, read_timeout_s: float, write_timeout_s: float) -> None:
        """End the time limit of the login; the client's own limits count from here on (0: none)."""
        self._login_by = None
        longest_s = self._shared.config.idle_timeout_s
        if read_timeout_s:
            self._read_timeout_s = min(longest_s, read_timeout_s)
        if write_timeout_s:
            self.write_timeout_s = min(longest_s, write_timeout_s)

    async def close(self) -> None:
        """Close the connection; unsent bytes must not keep memory."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        self._writer.transport.abort() if self._unsent() else self._writer.close()

    def _unsent(self) -> bool:
        """Tell if something waits for a client that does not read."""
        return self._writer.transport.get_write_buffer_size() > 0

    async def receive(self) -> None:
        """Give the session more bytes. Raises Gone: the stream has ended, or is idle for too
        long."""
        reading = self._start_reading()
        while not reading.done():
            await asyncio.wait({reading}, timeout=self._patience_s())
            if not reading.done():
                self._refuse_idle()
        self._session.receive(self._finish_reading())

    def _start_reading(self) -> asyncio.Task[bytes]:
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._reader.read(_READ_BYTES))
        return self._reading

    def _finish_reading(self) -> bytes:
        reading, self._reading = self._reading, None
        assert reading is not None
        data = reading.result()
        if not data:
            raise Gone("the client closed the connection")
        self._received_at = time.monotonic()
        return data

    def _patience_s(self) -> float:
        if self._login_by is not None:
            return max(self._login_by - time.monotonic(), 0.01)
        now = time.monotonic()
        left_s = min(
            self._received_at + self._read_timeout_s, self._sent_at + self.write_timeout_s
        )
        return max(left_s - now, 0.01)

    def _refuse_idle(self) -> None:
        now = time.monotonic()
        if self._login_by is not None and now >= self._login_by:
            raise Gone("no login in time")
        if self._login_by is None and (
            now >= self._received_at + self._read_timeout_s
            or now >= self._sent_at + self.write_timeout_s
        ):
            raise Gone("idle for too long")

    async def while_there(self, call: Coroutine[Any, Any, T]) -> T:
        """Return a call's result; the call is cancelled if the client goes away. Raises Gone."""
        task = asyncio.ensure_future(call)
        try:
            while True:
                waited: set[asyncio.Future[Any]] = {task}
                if self._session.wants_more:
                    waited.add(self._start_reading())
                await asyncio.wait(
                    waited, timeout=self._patience_s(), return_when=asyncio.FIRST_COMPLETED
                )
                if task.done():
                    return task.result()  # bytes read until now are for the next step
                if self._reading is not None and self._reading.done():
                    self._session.receive(self._finish_reading())
                else:
                    self._refuse_idle()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
                if not task.cancelled():
                    task.exception()  # seen: the client is gone

    async def send(self, data: bytes | memoryview) -> None:
        """Send, slice by slice. Raises Gone: the client takes too long for a slice."""
        view = memoryview(data)
        for at in range(0, len(view), _SLICE_BYTES):
            part = view[at : at + _SLICE_BYTES]
            self._writer.write(part)
            await self._drain()
            self._shared.sent_bytes += len(part)
            self._sent_at = time.monotonic()

    async def _drain(self) -> None:
        if not self._unsent():
            if self._writer.transport.is_closing():
                raise Gone("the client closed the connection")
            return
        drained = asyncio.ensure_future(self._writer.drain())
        began = time.monotonic()
        try:
            while not drained.done():
                await asyncio.wait({drained}, timeout=_CHECK_S)
                stall_s = self._shared.config.stall_timeout_s
                if self._shared.budget.contended:
                    stall_s = min(stall_s, _CONTENDED_STALL_S)
                if not drained.done() and time.monotonic() - began > stall_s:
                    raise Gone("the client does not read its answer")
            drained.result()
        finally:
            if not drained.done():
                drained.cancel()
                await asyncio.wait({drained})

    async def linger(self) -> None:
        """Let the client read the error: a close with bytes unread would discard it on its side."""
        if self._writer.can_write_eof():
            self._writer.write_eof()
        until = time.monotonic() + _LINGER_S
        reading = self._start_reading()
        while time.monotonic() < until:
            await asyncio.wait({reading}, timeout=until - time.monotonic())
            if not reading.done():
                return
            self._finish_reading()
            reading = self._start_reading()


def _printed(peer: Any) -> str:
    if not peer:
        return "unknown"
    host, port = peer[0], peer[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
