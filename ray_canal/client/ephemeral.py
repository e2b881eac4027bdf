"""Ephemeral subscriptions, to watch for a while. Nobody else has the client id, nothing is
left behind: the subscription ends when the connector is closed, or soon after its process has."""

from __future__ import annotations

import contextlib
import logging
import threading

from ray_canal.client.port import Transport
from ray_canal.destination.api import ClientRequest, DestinationApi
from ray_canal.errors import ConsumerError

logger = logging.getLogger(__name__)

_EVERY_S = 4.0
"""A store gives an ephemeral subscriber up that is silent for EPHEMERAL_S."""


class Presence:
    """Says now and then that the subscriber is there, in a thread of its own: its program may take
    its time over a batch."""

    def __init__(self, transport: Transport, client_id: int, every_s: float = _EVERY_S) -> None:
        self._transport = transport
        self._me = ClientRequest(client_id=client_id)
        self._every_s = every_s
        self._left = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Note that it has subscribed."""
        if self._thread is None:
            name = f"presence of client {self._me.client_id}"
            self._thread = threading.Thread(target=self._say, name=name, daemon=True)
            self._thread.start()

    def _say(self) -> None:
        while not self._left.wait(self._every_s):
            try:
                self._transport.call(DestinationApi.touch, self._me, once=True)
            except ConsumerError as error:
                logger.info("%s", error)  # its own calls say so, too
                return
            except Exception as error:
                logger.debug("%s", error)  # the store is away; the next time, then

    def end(self) -> None:
        """End the subscription, now if the destination can be reached."""
        if self._left.is_set() or self._thread is None:
            return
        self._left.set()
        with contextlib.suppress(Exception):  # who cannot reach the store is forgotten by it
            self._transport.call(DestinationApi.unsubscribe, self._me, once=True)
