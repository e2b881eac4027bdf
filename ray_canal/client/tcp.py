"""A connector's transport over Canal's TCP protocol: outside the cluster, without Ray.

It serves Connector with its usual promises, which the protocol alone does not give: a CLIENTACK has
no answer, so a HEARTBEATS is sent behind it, and the answer to that says that the ack was carried
out (ray_canal's server acknowledges it; Canal's own refuses the packet, which says the same). A
connection that breaks is opened again, as Canal's clients do it: handshake, login, rollback of what
was outstanding, subscription.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ray_canal import errors
from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.canal import packet as packets
from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.canal.generated import EntryProtocol_pb2 as entry_pb
from ray_canal.canal.scramble import scramble411
from ray_canal.client.message import Message
from ray_canal.errors import (
    AuthenticationFailed,
    BatchesUnacked,
    BatchNotFirst,
    BatchNotFound,
    CanalError,
    ConfigError,
    ConnectionLost,
    ConsumerError,
    CorruptPacket,
    InstanceError,
    InstanceRestarted,
)
from ray_canal.model.message import EMPTY_BATCH, MessageHead
from ray_canal.model.subscription import Subscription

DEFAULT_PORT = 11111
_CONNECT_S = 10.0
_READ_S = 60.0
_REPEAT_S = 60.0
_PAUSE_S, _PAUSE_S_MAX = 0.2, 1.0
_GETS = ("get", "get_without_ack", "get_soon")
_MILLISECONDS = 2
_NO_WISHES = Subscription()
_IDENTITY_MISSING = (401, 402)
_UNKNOWN_PACKET = "is NOT supported"


@dataclass(frozen=True, slots=True)
class TcpHead(MessageHead):
    """A batch's head with its entries as they came."""

    raw: tuple[bytes, ...] = ()


class TcpMessage(Message):
    """A batch of entries that are bytes already. There is no Arrow view of it."""

    @property
    def _raw(self) -> tuple[bytes, ...]:
        head = self.head
        return head.raw if isinstance(head, TcpHead) else ()

    @property
    def row_count(self) -> int:
        """Rows (changes) in the batch; the entries are parsed for it."""
        return sum(
            int(pair.value)
            for entry in self.entries
            for pair in entry.header.props
            if pair.key == "rowsCount"
        )

    @property
    def entries(self) -> Iterator[Any]:
        """Canal's view: `Entry` protobuf messages, parsed one at a time."""
        return (entry_pb.Entry.FromString(raw) for raw in self._raw)

    @property
    def entry_pieces(self) -> Iterator[bytes]:
        """The same entries as bytes: varint length + `Entry`."""
        return (packets.varint(len(raw)) + raw for raw in self._raw)

    @property
    def chunks(self) -> list[DecodedChunk]:
        """Raises ConsumerError."""
        raise ConsumerError(
            "over TCP there are entries, no Arrow batches; connect inside the Ray cluster for those"
        )


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is and how it is entered. `tls`: None for a plain connection."""

    host: str
    port: int
    username: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None

    @classmethod
    def parse(cls, text: str, **login: Any) -> Address:
        """`host`, `host:port` or `[v6]:port`. Raises ConfigError."""
        host, colon, port = text.rpartition(":")
        if not colon or text.endswith("]") or (":" in host and not host.startswith("[")):
            host, port = text, str(DEFAULT_PORT)
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(f"address {text!r}: expected host:port")
        return cls(host.strip("[]"), int(port), **login)


class _Wire:
    """One connection: packets out, packets in. Raises OSError, EOFError."""

    def __init__(self, address: Address) -> None:
        raw = socket.create_connection((address.host, address.port), timeout=_CONNECT_S)
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if address.tls is not None:
                raw = address.tls.wrap_socket(raw, server_hostname=address.host)
        except BaseException:
            raw.close()
            raise
        self._socket = raw

    def send(self, data: bytes) -> None:
        self._socket.settimeout(_READ_S)
        self._socket.sendall(data)

    def read(self, timeout_s: float | None = _READ_S) -> Any:
        """The next packet. Raises CorruptPacket."""
        self._socket.settimeout(timeout_s)
        (size,) = struct.unpack(">i", self._exactly(packets.LENGTH_BYTES))
        if size < 0:
            raise CorruptPacket(f"the server announces a packet of {size} bytes")
        return packets.parsed_packet(self._exactly(size))

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            count = self._socket.recv_into(view[at:])
            if not count:
                raise EOFError("the server closed the connection")
            at += count
        return bytes(data)

    def interrupt(self) -> None:
        """Let who reads fail; from any thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


class TcpTransport:
    """Canal's protocol for one connector. Calls are made one at a time, from any thread."""

    has_batches = lends = False

    def __init__(self, destination: str, address: Address) -> None:
        self.destination = destination
        self._address = address
        self._lock = threading.Lock()
        self._wire: _Wire | None = None
        self._epoch = 0
        self._filters: dict[int, str] = {}
        self._outstanding: dict[int, list[int]] = {}
        self._not_received: dict[int, int] = {}  # from this batch on they did not reach the caller
        with self._lock:
            self._open()

    # --- what connectors call -------------------------------------------------------------------

    def call(self, method: str, *arguments: Any, repeat: bool) -> Any:
        """Call and wait. `repeat`: once more over a new connection, up to a minute. A connection
        that is refused is tried again for as long, whatever the call: nothing was done yet.

        Raises InstanceRestarted: the connection broke, and batches with it, or the call may not be
        repeated. ConnectionLost: there was none to be had for a minute.
        """
        return self._received(method, arguments, self._call(method, arguments, repeat))

    def _received(self, method: str, arguments: tuple[Any, ...], answer: Any) -> Any:
        if method in _GETS and answer.id != EMPTY_BATCH:
            self._not_received.pop(arguments[0], None)
        return answer

    def _call(
        self,
        method: str,
        arguments: tuple[Any, ...],
        repeat: bool,
        given_up: threading.Event | None = None,
    ) -> Any:
        deadline = time.monotonic() + _REPEAT_S
        pause_s = _PAUSE_S
        while True:
            failure: CanalError
            with self._lock:
                try:
                    return getattr(self, "_" + method)(*arguments)
                except ConnectionLost as error:
                    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                        raise
                    self._outstanding.clear()
                    failure, again = error, True
                except (OSError, EOFError, CorruptPacket) as error:
                    self._drop()
                    again = not self._void() and repeat
                    failure = InstanceRestarted(
                        f"the connection to {self._address.host}:{self._address.port}: {error}; "
                        "what was not acked will be delivered again"
                    )
            if given_up is not None and given_up.is_set():
                again = False
            if not again or time.monotonic() > deadline:
                raise failure.at(destination=self.destination)
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _PAUSE_S_MAX)

    async def call_async(self, method: str, *arguments: Any, repeat: bool) -> Any:
        """The same, in a thread. A get that is cancelled leaves no batch outstanding: what it
        brings after that is rolled back by the next one."""
        given_up = threading.Event()
        try:
            answer = await asyncio.to_thread(self._call, method, arguments, repeat, given_up)
        except asyncio.CancelledError:
            given_up.set()
            if method in _GETS:
                self._interrupt(arguments[0], arguments[2])
            raise
        return self._received(method, arguments, answer)

    def _interrupt(self, client_id: int, timeout: float | None) -> None:
        """A get was cancelled that may wait long: end the connection, if nothing else is on it."""
        wire = self._wire
        may_end = timeout == 0 or not self._outstanding.get(client_id)
        if wire is not None and timeout is not None and may_end:
            wire.interrupt()

    def not_received(self, client_id: int, batch_id: int) -> None:
        """See Transport."""
        known = self._not_received.get(client_id, batch_id)
        self._not_received[client_id] = min(known, batch_id)

    def message(self, head: MessageHead) -> Message:
        return TcpMessage(head, lambda payloads: [])

    def close(self) -> None:
        """End the connection. What is outstanding comes again on the next one."""
        with self._lock:
            self._drop()

    # --- the connection -------------------------------------------------------------------------

    def _void(self) -> bool:
        """Whether batches were outstanding on a connection that is gone; they are void now."""
        lost = any(self._outstanding.values())
        self._outstanding.clear()
        return lost

    def _drop(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _open(self) -> _Wire:
        if self._wire is not None:
            return self._wire
        try:
            wire = _Wire(self._address)
        except OSError as error:
            raise ConnectionLost(
                f"cannot connect to {self._address.host}:{self._address.port}: {error}"
            ) from error
        try:
            handshake = wire.read()
            if handshake.type != pb.HANDSHAKE:
                self._refuse(handshake)
            seed = packets.parsed(pb.Handshake, handshake.body).seeds
            login = pb.ClientAuth(username=self._address.username)
            if self._address.password:
                login.password = scramble411(self._address.password, seed).hex().encode()
            wire.send(packets.framed(pb.CLIENTAUTHENTICATION, login))
            self._refuse(wire.read())
            self._wire, self._epoch = wire, self._epoch + 1
            for client_id, text in self._filters.items():
                self._settle(pb.CLIENTROLLBACK, self._named(pb.ClientRollback, client_id))
                wire.send(packets.framed(pb.SUBSCRIPTION, self._named(pb.Sub, client_id, text)))
                self._refuse(wire.read())
        except BaseException:
            self._wire = None
            wire.close()
            raise
        return wire

    def _named(self, kind: Any, client_id: int, text: str = "") -> Any:
        body = kind(destination=self.destination, client_id=str(client_id))
        if text:
            body.filter = text
        return body

    def _ask(self, kind: int, body: Any, timeout_s: float | None = _READ_S) -> Any:
        """Send a request and return the packet that answers it. Raises what the answer says."""
        wire = self._open()
        wire.send(packets.framed(kind, body))
        answer = wire.read(timeout_s)
        self._refuse(answer)
        return answer

    def _settle(self, kind: int, body: Any) -> None:
        """Send a request without an answer, and wait until it was carried out."""
        wire = self._open()
        wire.send(packets.framed(kind, body) + packets.framed(pb.HEARTBEATS))
        answer = wire.read()
        failure = self._failure(answer)
        if failure is None or _UNKNOWN_PACKET in str(failure):
            return
        if isinstance(failure, InstanceRestarted):
            self._drop()  # its server closes now
        else:
            wire.read()  # the heartbeat's answer
        raise failure

    def _refuse(self, answer: Any) -> None:
        failure = self._failure(answer)
        if failure is not None:
            if isinstance(failure, InstanceRestarted):
                self._drop()
            raise failure

    def _failure(self, answer: Any) -> CanalError | None:
        """The error that an answer is."""
        if answer.type != pb.ACK:
            return None
        ack = packets.parsed(pb.Ack, answer.body)
        if not ack.error_code:
            return None
        text = ack.error_message or f"error {ack.error_code}"
        return _kind(ack.error_code, text)(text).at(destination=self.destination)

    # --- the calls ------------------------------------------------------------------------------

    def _subscribe(
        self,
        client_id: int,
        text: str,
        rollback: bool = True,
        wishes: Subscription = _NO_WISHES,
    ) -> int:
        if wishes != _NO_WISHES:
            raise ConfigError(
                "policy, transactions and start are not in Canal's protocol: connect by Ray "
                "(without address=), or set them for the destination"
            )
        self._open()
        self._settle(pb.CLIENTROLLBACK, self._named(pb.ClientRollback, client_id))
        self._outstanding.pop(client_id, None)
        self._ask(pb.SUBSCRIPTION, self._named(pb.Sub, client_id, text))
        self._filters[client_id] = text
        return self._epoch

    def _unsubscribe(self, client_id: int) -> None:
        self._ask(pb.UNSUBSCRIPTION, self._named(pb.Unsub, client_id))
        self._filters.pop(client_id, None)
        self._outstanding.pop(client_id, None)

    def _get_without_ack(self, client_id: int, batch_size: int, timeout: float | None) -> TcpHead:
        if self._wire is None and self._void():
            raise EOFError("the connection ended")
        self._take_back(client_id)
        body = self._named(pb.Get, client_id)
        body.fetch_size, body.unit = batch_size, _MILLISECONDS
        body.timeout = -1 if timeout is None else max(int(timeout * 1000), 1) if timeout else 0
        patience_s = None if timeout == 0 else (timeout or 0) + _READ_S
        packet = self._ask(pb.GET, body, patience_s)
        if packet.type != pb.MESSAGES:
            raise CorruptPacket(f"a get was answered by a packet of type {packet.type}")
        found = packets.parsed(pb.Messages, packet.body)
        if found.batch_id != EMPTY_BATCH:
            self._outstanding.setdefault(client_id, []).append(found.batch_id)
            self.not_received(client_id, found.batch_id)
        raw = tuple(found.messages)
        return TcpHead(found.batch_id, self._epoch, entry_count=len(raw), raw=raw)

    def _take_back(self, client_id: int) -> None:
        """Roll back the batches that did not reach the caller."""
        first = self._not_received.pop(client_id, None)
        known = self._outstanding.get(client_id, [])
        lost = [each for each in known if first is not None and each >= first]
        if lost:
            self._rollback(client_id, None if lost == known else lost[0], self._epoch)

    def _get_soon(
        self,
        client_id: int,
        batch_size: int,
        timeout: float,
        done: tuple[int, int] | None = None,
        lends: bool = False,
    ) -> TcpHead:
        if done is not None:
            try:
                self._ack(client_id, *done)
            except (InstanceRestarted, BatchNotFound):
                pass  # as the store does it
            except (OSError, EOFError, CorruptPacket):
                # Its reader has let go of it: that it may come again need not be told.
                self._settled(client_id, done[0])
                raise
        head = self._get_without_ack(client_id, batch_size, None)
        if head.id != EMPTY_BATCH:
            return head
        # One unit, as soon as there is one; the next get takes what came with it.
        return self._get_without_ack(client_id, 1, timeout)

    def _get(self, client_id: int, batch_size: int, timeout: float | None) -> TcpHead:
        self._take_back(client_id)
        if open_batches := self._outstanding.get(client_id):
            raise BatchesUnacked(
                f"clientId:{client_id} has unacked batches, the last is {open_batches[-1]}; "
                "ack or roll back before get()"
            )
        return self._get_without_ack(client_id, batch_size, timeout)

    def _ack(self, client_id: int, batch_id: int, epoch: int) -> None:
        if batch_id == EMPTY_BATCH:
            return
        self._refuse_void(batch_id, epoch)
        body = self._named(pb.ClientAck, client_id)
        body.batch_id = batch_id
        self._settle(pb.CLIENTACK, body)
        self._settled(client_id, batch_id)

    def _settled(self, client_id: int, batch_id: int) -> None:
        known = self._outstanding.get(client_id, [])
        if batch_id in known:
            known.remove(batch_id)

    _ack_and_keep = _ack  # a message has its entries with it

    def _rollback(self, client_id: int, batch_id: int | None, epoch: int) -> None:
        if self._wire is None and batch_id is None:
            self._outstanding.clear()
            return  # the next connection begins with one
        body = self._named(pb.ClientRollback, client_id)
        if batch_id is not None:
            self._refuse_void(batch_id, epoch)
            body.batch_id = batch_id
        self._settle(pb.CLIENTROLLBACK, body)
        known = self._outstanding.pop(client_id, [])
        if batch_id is not None:
            self._outstanding[client_id] = [kept for kept in known if kept < batch_id]

    def _list_batch_ids(self, client_id: int) -> list[int]:
        first = self._not_received.get(client_id)
        known = self._outstanding.get(client_id, [])
        return [each for each in known if first is None or each < first]

    def _refuse_void(self, batch_id: int, epoch: int) -> None:
        if self._wire is None or epoch != self._epoch:
            self._outstanding.clear()
            raise InstanceRestarted(
                f"batch {batch_id} came over a connection that is gone; it is void and will be "
                "delivered again"
            ).at(destination=self.destination)


def _kind(code: int, text: str) -> type[CanalError]:
    """The class of an error that a server sent: ours by its name, Canal's by its words."""
    _, _, named = text.partition("exception=")
    kind = getattr(errors, named.partition(":")[0], None)
    if isinstance(kind, type) and issubclass(kind, CanalError):
        return kind
    for words, known in _WORDS:
        if words in text:
            return known
    return ConsumerError if code in _IDENTITY_MISSING else InstanceError


_WORDS: tuple[tuple[str, type[CanalError]], ...] = (
    ("auth failed", AuthenticationFailed),
    ("should subscribe first", errors.NotSubscribed),
    ("should start first", errors.InstanceNotRunning),
    ("is not the firstly", BatchNotFirst),
    ("is not exist", BatchNotFound),
)
