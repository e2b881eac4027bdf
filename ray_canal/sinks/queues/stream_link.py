"""A connection to RabbitMQ's stream protocol: messages to streams, each confirmed by the broker.

https://github.com/rabbitmq/rabbitmq-server/blob/main/deps/rabbitmq_stream/docs/PROTOCOL.adoc. Only
what a publisher needs is spoken. A message is one of AMQP 1.0 with its id and the body; a publish
frame has as many as fit, put together by vectors. The broker drops a message whose publishing id is
not above the last one that a stream has of the same publisher's name.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import struct
import threading
from collections.abc import Iterator
from ssl import SSLContext, SSLSocket
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_canal.model.arrays import Int64s, UInt64s
from ray_canal.sinks.queues.broker_link import BrokerLink, LinkError
from ray_canal.views.texts import BYTES, joined, of_parts, parts_of

_DECLARE_PUBLISHER, _PUBLISH, _CONFIRM, _PUBLISH_ERROR = 1, 2, 3, 4
_QUERY_SEQUENCE, _DELETE_PUBLISHER = 5, 6
_CREATE, _METADATA_UPDATE, _PEER, _HANDSHAKE, _AUTHENTICATE = 13, 16, 17, 18, 19
_TUNE, _OPEN, _CLOSE, _HEARTBEAT = 20, 21, 22, 23
_RESPONSE = 0x8000
_OK, _NO_STREAM, _EXISTS, _OTHER = 1, 2, 5, 17
_MEANINGS = {
    _NO_STREAM: "there is no such stream", 6: "the stream is not available",
    8: "the login was refused", 9: "the login was refused",
    11: "this user may log in on the broker's own machine alone",
    12: "the user may not use this virtual host", 16: "access refused",
    _OTHER: "the stream is there with other arguments",
}  # fmt: skip
_CODES = {8: 403, 9: 403, 11: 403, 12: 530, 16: 403, _OTHER: 406}
"""The reply codes that AMQP has for the same."""
_FRAME_BYTES = 1 << 20
_READ_BYTES = 1 << 18
_FRAME_HEAD_BYTES = 16
_PUBLISHERS_MAX = 256
_NAME_BYTES_MAX = 250
_SIZE = struct.Struct(">I")
_ENTRY_HEAD = np.dtype(
    [("id", ">u8"), ("bytes", ">u4"), ("properties", "u1", 4), ("list", "u1"),
     ("one_text", "u1", 2), ("text", "u1")]
)  # fmt: skip
"""Bytes before a message's id: its publishing id, its size, and AMQP's list of properties, of
which the first is a text."""
_PROPERTIES, _ONE_TEXT, _DATA = list(b"\0Ss\xc0"), list(b"\x01\xa1"), b"\0Su\xb0"


class StreamLogin(NamedTuple):
    """Where streams are, and who publishes. `context`: of TLS, or None."""

    host: str
    port: int
    virtual_host: str
    username: str
    password: str
    context: SSLContext | None


class Publisher(NamedTuple):
    """One that publishes to a stream. `last_id`: what the stream had of its name at first."""

    number: int
    last_id: int


class StreamMessages(NamedTuple):
    """Messages to one stream: publishing ids, which rise, message ids and bodies (large_binary)."""

    ids: UInt64s
    names: pa.Array
    bodies: pa.Array


class StreamLink(BrokerLink):
    """An open connection."""

    def __init__(self, login: StreamLogin, timeout_s: float) -> None:
        """Connect. Raises LinkError."""
        super().__init__(timeout_s)
        self._writing = threading.Lock()
        self._answers: dict[int, tuple[int, bytes]] = {}
        self._numbers = itertools.count(1)
        self._publishers: dict[tuple[str, str], Publisher] = {}
        self._confirmed = 0
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

    def publisher(self, stream: str, name: str) -> Publisher:
        """Return the publisher of this name ("": without one) to a stream, which is made where it
        is not. Raises LinkError."""
        found = self._publishers.get((stream, name))
        if found is not None:
            return found
        if len(self._publishers) == _PUBLISHERS_MAX:
            self._release_publishers()
        number = len(self._publishers)
        try:
            self._ask(_CREATE, _text(stream) + _SIZE.pack(0), also=_EXISTS)
        except LinkError as error:
            if error.code != _CODES[_OTHER]:
                raise
            raise LinkError(
                f"{stream} is a queue, or a stream with other arguments: name another stream, or "
                "delete it",
                error.code,
            ) from None
        try:
            self._ask(_DECLARE_PUBLISHER, bytes([number]) + _text(name) + _text(stream))
        except LinkError as error:
            if error.code != _CODES[_OTHER]:
                raise
            raise LinkError("the broker takes no messages, by an alarm of memory or disk") from None
        found = Publisher(number, self.last_id(stream, name) if name else 0)
        self._publishers[stream, name] = found
        return found

    def _release_publishers(self) -> None:
        self.wait_confirmed()
        for each in self._publishers.values():
            self._ask(_DELETE_PUBLISHER, bytes([each.number]))
        self._publishers.clear()

    def last_id(self, stream: str, name: str) -> int:
        """Return the last publishing id that a stream has of a publisher's name; 0: none, or there
        is no such stream. Raises LinkError."""
        found = self._ask(_QUERY_SEQUENCE, _text(name) + _text(stream), also=_NO_STREAM)
        return int.from_bytes(found[:8], "big")

    def publish(self, publisher: Publisher, messages: StreamMessages) -> None:
        """Send messages. Raises LinkError: the connection is not open any more, or, and nothing was
        sent, a message is too long."""
        data, offsets = parts_of(_entries(messages))
        longest = int(np.diff(offsets).max(initial=0)) + _FRAME_HEAD_BYTES
        if longest > self._frame_max:
            raise LinkError(f"a message's size, {longest} bytes, is above the frame's", 406)
        with self._changed:
            self._raise()
            self._sent += len(offsets) - 1
            self._expect_confirms()
        for first, last in _frames(offsets, self._frame_max - _FRAME_HEAD_BYTES):
            head = bytes([publisher.number]) + _SIZE.pack(last - first)
            entries = data[offsets[first] : offsets[last]].tobytes()
            self._write(_frame(_PUBLISH, head, entries))

    def wait_confirmed(self, *, soon: bool = False) -> None:
        """Wait until all is confirmed. Raises Unconfirmed: it was not `soon`; LinkError: something
        was refused, or the connection was closed."""
        self._wait_confirmed(lambda: self._confirmed >= self._sent, soon)

    def close(self) -> None:
        if self._error is None:
            with contextlib.suppress(LinkError):
                self._ask(_CLOSE, struct.pack(">H", _OK) + _text("done"), within_s=5)
        self._fail(LinkError("the connection was closed"))
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)

    def _ask(self, key: int, body: bytes, also: int = _OK, within_s: float | None = None) -> bytes:
        """Make a request, and return what follows the code in its answer. Raises LinkError: the
        code is neither OK nor `also`."""
        number = next(self._numbers)
        self._write(_frame(key, _SIZE.pack(number) + body))
        self._wait(lambda: number in self._answers, "no answer", within_s)
        code, answer = self._answers.pop(number)
        if code not in (_OK, also):
            raise LinkError(_meaning(code), _CODES.get(code, 0))
        return answer

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
                self._confirmed += _SIZE.unpack_from(body, 1)[0]
            elif key == _PUBLISH_ERROR:
                # Nothing behind it may be sent: the stream would drop it for good when it comes
                # again.
                number, code = struct.unpack_from(">QH", body, 5)
                error = LinkError(f"message {number} was refused: {_meaning(code)}")
                self._error = self._error or error
            elif key == _TUNE:
                most, heartbeat_s = struct.unpack(">II", body)
                self._frame_max = min(most, _FRAME_BYTES) if most else _FRAME_BYTES
                self._heartbeat_s = heartbeat_s
            elif key & _RESPONSE:
                number, code = struct.unpack_from(">IH", body)
                self._answers[number] = code, body[6:]
            elif key == _CLOSE:
                (code,) = struct.unpack_from(">H", body, 4)
                text = body[8:].decode("utf-8", "replace")
                self._error = self._error or LinkError(text, _CODES.get(code, 0))
            elif key == _METADATA_UPDATE:
                self._error = self._error or LinkError("a stream was removed, or has moved")
            self._changed.notify_all()


def _frame(key: int, body: bytes, more: bytes = b"") -> bytes:
    return b"".join((struct.pack(">IHH", len(body) + len(more) + 4, key, 1), body, more))


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _frames(offsets: Int64s, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of the messages of each frame; none is longer than it."""
    first, count = 0, len(offsets) - 1
    while first < count:
        last = int(np.searchsorted(offsets, offsets[first] + bytes_max, "right")) - 1
        yield first, last
        first = last


def _entries(messages: StreamMessages) -> pa.Array:
    """Return messages as a publish frame has them: publishing id, size, properties, of which the
    message id, and one data section."""
    names = pc.binary_slice(messages.names.cast(BYTES), 0, _NAME_BYTES_MAX)
    name_bytes, body_bytes = (
        pc.binary_length(each).to_numpy() for each in (names, messages.bodies)
    )
    count, own = len(names), _ENTRY_HEAD.itemsize
    heads = np.zeros(count, _ENTRY_HEAD)
    heads["id"] = messages.ids
    heads["bytes"] = own - 12 + name_bytes + len(_DATA) + 4 + body_bytes
    heads["properties"], heads["one_text"] = _PROPERTIES, _ONE_TEXT
    heads["list"], heads["text"] = name_bytes + 3, name_bytes
    sizes = body_bytes.astype(">u4")
    places = np.arange(count + 1, dtype=np.int64)
    return joined(
        of_parts(heads.view(np.uint8), own * places), names, _DATA,
        of_parts(sizes.view(np.uint8), 4 * places), messages.bodies,
    )  # fmt: skip


def _meaning(code: int) -> str:
    return f"{_MEANINGS.get(code, 'the broker refused it')} (stream protocol's code {code})"
