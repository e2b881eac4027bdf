"""HTTP connections that are closed when their client is too slow: to ask, or to take the answer.

Without it a few hundred clients that send a byte now and then would hold every connection slot.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 15.0
"""For a whole request, its body included, from its first byte on (or from the connection)."""
STALL_S = 60.0
"""For as long a client may take nothing of an answer that waits for it."""
_WHOLE = (h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)


class ImpatientProtocol(H11Protocol):
    """uvicorn's protocol with time limits."""

    _asking: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._asking = self.loop.call_later(REQUEST_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        if self.conn.their_state in _WHOLE:
            self._asking = _end(self._asking)
        elif self._asking is None:
            self._asking = self.loop.call_later(REQUEST_S, self.transport.abort)

    def pause_writing(self) -> None:
        """The client does not take what it asked for."""
        super().pause_writing()
        self._taking = self.loop.call_later(STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Note that the transport takes bytes again."""
        super().resume_writing()
        self._taking = _end(self._taking)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._asking, self._taking = _end(self._asking), _end(self._taking)
        super().connection_lost(exc)


def _end(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel a timer; return that there is none any more."""
    if timer is not None:
        timer.cancel()
    return None
