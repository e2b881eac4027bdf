"""A connection to RabbitMQ's stream protocol: messages to streams, each confirmed by the broker.

https://github.com/rabbitmq/rabbitmq-server/blob/main/deps/rabbitmq_stream/docs/PROTOCOL.adoc. Only
what a publisher needs is spoken. A message is one of AMQP 1.0 with its id and the body. A publish
frame has as many as fit. It has the calls of `AmqpLink`.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import struct
import threading
from collections.abc import Iterable, Sequence
from ssl import SSLContext, SSLSocket
from typing import NamedTuple

import numpy as np

from ray_canal.sinks.broker_link import BrokerLink, LinkError, Publish

_DECLARE_PUBLISHER, _PUBLISH, _CONFIRM, _PUBLISH_ERROR = 1, 2, 3, 4
_CREATE, _METADATA_UPDATE, _PEER, _HANDSHAKE, _AUTHENTICATE = 13, 16, 17, 18, 19
_TUNE, _OPEN, _CLOSE, _HEARTBEAT = 20, 21, 22, 23
_RESPONSE = 0x8000
_OK, _EXISTS = 1, 5
_MEANINGS = {
    2: "there is no such stream", 6: "the stream is not available", 8: "the login was refused",
    9: "the login was refused", 11: "this user may log in on the broker's own machine alone",
    12: "the user may not use this virtual host", 16: "access refused",
    17: "the stream is there with other arguments",
}  # fmt: skip
_CODES = {8: 403, 9: 403, 11: 403, 12: 530, 16: 403, 17: 406}
"""The reply codes that AMQP has for the same."""
_FRAME_BYTES = 1 << 20
_READ_BYTES = 1 << 18
_PUBLISHERS_MAX = 256
_SIZE = struct.Struct(">I")


class StreamLogin(NamedTuple):
    """Where streams are, and who publishes. `context`: of TLS, or None."""

    host: str
    port: int
    virtual_host: str
    username: str
    password: str
    context: SSLContext | None


class StreamLink(BrokerLink):
    """An open connection."""

    def __init__(self, login: StreamLogin, timeout_s: float) -> None:
        """Connect. Raises LinkError."""
        super().__init__(timeout_s)
        self._writing = threading.Lock()
        self._answers: dict[int, int] = {}
        self._numbers = itertools.count(1)
        self._publishers: dict[str, int] = {}
        self._missing: set[int] = set()
        self._refused: dict[int, int] = {}
        self._frame_max = self._heartbeat_s = 0
        try:
            found = socket.create_connection((login.host, login.port), timeout_s)
            if login.context is not None:
                found = login.context.wrap_socket(found, server_hostname=login.host)
        except OSError as error:
            raise LinkError(f"{login.host}:{login.port}: {error}") from None
        self._socket = found
        found.settimeout(timeout_s)
        self._thread = threading.Thread(target=self._read, name="stream", daemon=True)
        self._thread.start()
        try:
            self._log_in(login)
        except LinkError:
            self.close()
            raise

    def _log_in(self, login: StreamLogin) -> None:
        self._ask(_PEER, _SIZE.pack(1) + _text("product") + _text("ray_canal"))
        self._ask(_HANDSHAKE, b"")
        plain = f"\0{login.username}\0{login.password}".encode()
        self._ask(_AUTHENTICATE, _text("PLAIN") + _SIZE.pack(len(plain)) + plain)
        self._wait(lambda: self._frame_max > 0, "no answer to the login")
        self._write(_frame(_TUNE, struct.pack(">II", self._frame_max, self._heartbeat_s)))
        self._ask(_OPEN, _text(login.virtual_host))

    # --- for the owner's thread ------------------------------------------------------------------

    def publish(self, exchange: str, messages: Iterable[Publish]) -> None:
        """Send messages to the streams that their routing keys name, which are made where they are
        not. Raises LinkError: the connection is not open any more, or a message is too long."""
        by_stream: dict[str, list[bytes]] = {}
        first = number = self._sent
        for stream, name, body in messages:
            by_stream.setdefault(stream, []).append(_entry(number, name, body))
            number += 1
        for entries in by_stream.values():
            longest = max(map(len, entries)) + 16
            if longest > self._frame_max:
                raise LinkError(f"a message's size, {longest} bytes, is above the frame's", 406)
        publishers = {stream: self._publisher(stream) for stream in by_stream}
        with self._changed:
            self._raise()
            self._missing.update(range(first, number))
            self._sent = number
        for stream, entries in by_stream.items():
            self._write(b"".join(self._publish_frames(publishers[stream], entries)))

    def _publish_frames(self, publisher: int, entries: Sequence[bytes]) -> Iterable[bytes]:
        first, size = 0, 0
        for at, entry in enumerate(entries):
            if size + len(entry) + 16 > self._frame_max:
                yield _publish_frame(publisher, entries[first:at])
                first, size = at, 0
            size += len(entry)
        yield _publish_frame(publisher, entries[first:])

    def _publisher(self, stream: str) -> int:
        """Return the number of a stream's publisher. Raises LinkError."""
        found = self._publishers.get(stream)
        if found is None:
            found = len(self._publishers)
            if found >= _PUBLISHERS_MAX:
                raise LinkError(f"messages go to more than {_PUBLISHERS_MAX} streams", 530)
            self._ask(_CREATE, _text(stream) + _SIZE.pack(0), also=_EXISTS)
            self._ask(_DECLARE_PUBLISHER, bytes([found]) + _text("") + _text(stream))
            self._publishers[stream] = found
        return found

    def wait_confirmed(self) -> None:
        """Wait until all is confirmed. Raises LinkError: something was refused, or the connection
        was closed."""
        late = f"not all messages were confirmed in {self._timeout_s:g} s"
        self._wait(lambda: len(self._missing) <= len(self._refused), late)
        if self._refused:
            number, code = next(iter(self._refused.items()))
            raise LinkError(f"message {number} was refused: {_meaning(code)}")

    def unconfirmed(self) -> list[int]:
        """Numbers of messages that are not known to be in a stream."""
        with self._changed:
            return sorted(self._missing)

    def close(self) -> None:
        if self._error is None:
            with contextlib.suppress(LinkError):
                self._ask(_CLOSE, struct.pack(">H", _OK) + _text("done"), within_s=5)
        self._fail(LinkError("the connection was closed"))
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)

    def _ask(self, key: int, body: bytes, also: int = _OK, within_s: float | None = None) -> None:
        """Make a request, and wait for its answer. Raises LinkError."""
        number = next(self._numbers)
        self._write(_frame(key, _SIZE.pack(number) + body))
        self._wait(lambda: number in self._answers, "no answer", within_s)
        code = self._answers.pop(number)
        if code not in (_OK, also):
            raise LinkError(_meaning(code), _CODES.get(code, 0))

    def _write(self, data: bytes) -> None:
        try:
            with self._writing:
                self._socket.sendall(data)
        except OSError as error:
            self._fail(LinkError(str(error)))
            self._raise()

    # --- the reader's thread ---------------------------------------------------------------------

    def _read(self) -> None:
        data = bytearray()
        while self._error is None:
            try:
                piece = self._receive(500 * self._heartbeat_s or None)
            except TimeoutError:
                with contextlib.suppress(LinkError):
                    self._write(_frame(_HEARTBEAT, b""))
                continue
            except (OSError, ValueError) as error:  # ValueError: closed by the owner
                self._fail(LinkError(str(error)))
                return
            if not piece:
                self._fail(LinkError("the broker closed the connection"))
                return
            data += piece
            at = 0
            while len(data) - at >= 4:
                (size,) = _SIZE.unpack_from(data, at)
                if len(data) - at - 4 < size:
                    break
                self._take(bytes(data[at + 4 : at + 4 + size]))
                at += 4 + size
            del data[:at]

    def _receive(self, within_ms: float | None) -> bytes:
        """Return what has come. With TLS, one thread at a time uses the connection. Raises
        TimeoutError."""
        found = self._socket
        is_tls = isinstance(found, SSLSocket)
        if not (isinstance(found, SSLSocket) and found.pending()):
            waiting = select.poll()
            waiting.register(found, select.POLLIN)
            if not waiting.poll(within_ms):
                raise TimeoutError
        with self._writing if is_tls else contextlib.nullcontext():
            return found.recv(_READ_BYTES)

    def _take(self, found: bytes) -> None:
        (key,) = struct.unpack_from(">H", found)
        body = found[4:]
        with self._changed:
            if key == _CONFIRM:
                self._missing.difference_update(np.frombuffer(body, ">u8", offset=5).tolist())
            elif key == _PUBLISH_ERROR:
                for at in range(5, len(body) - 9, 10):
                    number, code = struct.unpack_from(">QH", body, at)
                    self._refused[number] = code
            elif key == _TUNE:
                most, heartbeat_s = struct.unpack(">II", body)
                self._frame_max = min(most, _FRAME_BYTES) if most else _FRAME_BYTES
                self._heartbeat_s = heartbeat_s
            elif key & _RESPONSE:
                number, code = struct.unpack_from(">IH", body)
                self._answers[number] = code
            elif key == _CLOSE:
                (code,) = struct.unpack_from(">H", body, 4)
                text = body[8:].decode("utf-8", "replace")
                self._error = self._error or LinkError(text, _CODES.get(code, 0))
            elif key == _METADATA_UPDATE:
                self._error = self._error or LinkError("a stream was removed, or has moved")
            self._changed.notify_all()


def _frame(key: int, body: bytes) -> bytes:
    return struct.pack(">IHH", len(body) + 4, key, 1) + body


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _publish_frame(publisher: int, entries: Sequence[bytes]) -> bytes:
    return _frame(_PUBLISH, bytes([publisher]) + _SIZE.pack(len(entries)) + b"".join(entries))


def _entry(number: int, name: str, body: bytes | memoryview) -> bytes:
    """A message with its number: properties, of which the message-id, and one data section."""
    told = name.encode()[:250]
    head = b"\0Ss\xc0%c\x01\xa1%c%b\0Su\xb0" % (len(told) + 3, len(told), told)
    size = len(head) + 4 + len(body)
    return b"".join((struct.pack(">QI", number, size), head, _SIZE.pack(len(body)), body))


def _meaning(code: int) -> str:
    return f"{_MEANINGS.get(code, 'the broker refused it')} (stream protocol's code {code})"
