"""A connection to a broker that a thread of its own drives, whatever its protocol: how that thread
tells the owner's what has come, and that it is broken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from pika import spec

from ray_canal.sinks.port import Kind, SinkError

_LOOK_S = 2.0
"""How long the owner waits at once for messages to be confirmed: it may be told to stop."""
_FATAL = {spec.ACCESS_REFUSED, spec.NOT_FOUND, spec.NOT_ALLOWED, spec.INVALID_PATH}


class Publish(NamedTuple):
    """One message. `id` is its AMQP message id."""

    routing_key: str
    id: str
    body: bytes | memoryview


class LinkError(Exception):
    """The broker, or the way to it, is not as it should be. `code`: AMQP's reply code; 0: none."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class Unconfirmed(LinkError):
    """The connection is as it should be, and messages are not confirmed yet."""


class Refused(LinkError):
    """The broker did not take messages, and may have taken others that were sent after them."""


def sink_error(error: LinkError) -> SinkError:
    """Return what the runner is told."""
    kind: Kind = "wait" if isinstance(error, Unconfirmed) else "retry"
    if error.code in _FATAL:
        kind = "fatal"
    elif error.code == spec.PRECONDITION_FAILED:
        kind = "poison" if "size" in str(error) else "fatal"
    hint = ": bind one; the sink waits" if error.code == spec.NO_ROUTE else ""
    return SinkError(f"RabbitMQ: {error}{hint}", kind)


class BrokerLink:
    """Messages are numbered from 0 on, as they are published."""

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s`: how long the owner waits for an answer."""
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._error: LinkError | None = None
        self._sent = 0
        self._due = 0.0
        self._alarm = ""

    @property
    def is_broken(self) -> bool:
        """Return whether the connection has failed; a new one has to be made."""
        return self._error is not None

    @property
    def sent(self) -> int:
        """Number of messages that were published: the number of the next one."""
        return self._sent

    def _fail(self, error: LinkError) -> None:
        """Note what has broken the connection; the first error counts."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _expect_confirms(self) -> None:
        """Begin to count the time in which messages have to be confirmed."""
        self._due = time.monotonic() + self._timeout_s

    def _wait_confirmed(self, condition: Callable[[], bool], soon: bool) -> None:
        """Return once it holds. Raises Unconfirmed: there is an alarm, or, with `soon`, it did not
        hold soon: wait again; LinkError: the connection is broken, or it is too late."""
        while True:
            try:
                self._wait(condition, "", min(_LOOK_S, self._timeout_s))
                return
            except LinkError:
                self._raise()
            if self._alarm:
                self._expect_confirms()
                raise Unconfirmed(f"the broker takes no messages, by an alarm: {self._alarm}")
            if time.monotonic() > self._due:
                raise LinkError(f"not all messages were confirmed in {self._timeout_s:g} s")
            if soon:
                raise Unconfirmed("messages are not confirmed yet")

    def _wait(
        self, condition: Callable[[], bool], late: str, within_s: float | None = None
    ) -> None:
        """Return once `condition` holds. Raises LinkError: the connection is broken; with the text
        `late`, if it does not hold within `within_s` seconds (None: the link's timeout)."""
        deadline = time.monotonic() + (self._timeout_s if within_s is None else within_s)
        with self._changed:
            while not condition():
                self._raise()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise LinkError(late)
                self._changed.wait(left)
