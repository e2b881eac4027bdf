"""The server's half of one connection of Canal's protocol, as a table. No I/O, no clock.

Bytes go in by `receive`, which takes any cut of the stream. `next` hands out the requests, one at a
time and in order; what it returns is one of:

    Answer        bytes to send, because the session itself has decided
    Request       Subscribe, Unsubscribe, Get, Ack, Rollback: to be carried out by the caller, who
                  then sends what `done`, `no_data` or `failed` returns, if it is not empty
    Login         to be checked by the caller, who then calls `admit` or `deny`
    Close         the connection is over; nothing is read any more
    None          nothing to do before more bytes arrive

    state           packet                what becomes of it
    AUTHENTICATING  CLIENTAUTHENTICATION  Login; admit: ACK, SERVING; deny: error 400, CLOSED
                    any other             error 400, CLOSED
    SERVING         SUBSCRIPTION          Subscribe, then ACK
                    UNSUBSCRIPTION        Unsubscribe, then ACK
                    GET                   Get, then MESSAGES (the caller renders them)
                    CLIENTACK             Ack, then nothing; batch -1: nothing at all; 0: error 402
                    CLIENTROLLBACK        Rollback, then nothing
                    HEARTBEATS            ACK
                    any other             error 400
    either          bytes that are no packet, a length out of range, too many requests waiting:
                                          error 400, CLOSED
    CLOSED          anything              ignored

Codes are Canal's: 400 for whatever goes wrong, 401 destination or client id missing, 402 an ack
without a batch id. An error of a CLIENTACK or CLIENTROLLBACK is sent although these have no answer:
the client meets it at its next read.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ray_canal.canal import packet as packets
from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.canal.scramble import SEED_BYTES
from ray_canal.errors import CorruptPacket

SOMETHING_WRONG = 400
IDENTITY_MISSING = 401
BATCH_MISSING = 402

LOGIN_BYTES_MAX = 64 << 10
"""Largest packet in bytes before the login: strangers may hold little memory."""

_NO_BATCH = -1
_CLIENT_ID_MAX = 1 << 31


class State(Enum):
    AUTHENTICATING = "authenticating"
    SERVING = "serving"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class ReplyBytes:
    data: bytes


@dataclass(frozen=True, slots=True)
class Close:
    reason: str


@dataclass(frozen=True, slots=True)
class Identity:
    """The key of a subscriber."""

    destination: str
    client_id: int


@dataclass(frozen=True, slots=True)
class Subscribe:
    identity: Identity
    filter: str


@dataclass(frozen=True, slots=True)
class Login:
    """`answer`: hexadecimal digits of the scrambled password. Timeouts of 0: the server's own."""

    username: str
    answer: bytes
    read_timeout_ms: int
    write_timeout_ms: int
    subscribe: Subscribe | None


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    identity: Identity


@dataclass(frozen=True, slots=True)
class Get:
    """`timeout_s` as in Connector.get_without_ack; `polls`: wait for anything, not for a full
    batch. `done`: a batch that is acked first; 0: none."""

    identity: Identity
    fetch_size: int
    timeout_s: float | None
    auto_ack: bool
    polls: bool = False
    done: int = 0


@dataclass(frozen=True, slots=True)
class Ack:
    identity: Identity
    batch_id: int


@dataclass(frozen=True, slots=True)
class Rollback:
    """`batch_id` None: all outstanding batches."""

    identity: Identity
    batch_id: int | None


Request = Subscribe | Unsubscribe | Get | Ack | Rollback
Step = ReplyBytes | Close | Login | Request


class _Refused(Exception):
    """A packet that is answered by an error and changes nothing."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class _Named(Protocol):
    @property
    def destination(self) -> str: ...
    @property
    def client_id(self) -> str: ...


def _identity(body: _Named) -> Identity:
    if not body.destination or not body.client_id:
        raise _Refused(IDENTITY_MISSING, "destination or clientId is null")
    try:
        client_id = int(body.client_id)
    except ValueError:
        client_id = _CLIENT_ID_MAX
    if not 0 <= client_id < _CLIENT_ID_MAX:
        text = f"clientId {body.client_id[:20]!r} is no number from 0 to {_CLIENT_ID_MAX - 1}"
        raise _Refused(SOMETHING_WRONG, text)
    return Identity(body.destination, client_id)


def _subscribe(packet: pb.Packet) -> Step:
    body = packets.parsed(pb.Sub, packet.body)
    return Subscribe(_identity(body), body.filter)


def _unsubscribe(packet: pb.Packet) -> Step:
    return Unsubscribe(_identity(packets.parsed(pb.Unsub, packet.body)))


def _get(packet: pb.Packet) -> Step:
    body = packets.parsed(pb.Get, packet.body)
    timeout_s = packets.timeout_s(body.timeout, body.unit)
    return Get(
        _identity(body), body.fetch_size, timeout_s, body.auto_ack, body.poll, body.done
    )


def _ack(packet: pb.Packet) -> Step | None:
    body = packets.parsed(pb.ClientAck, packet.body)
    identity = _identity(body)
    if body.batch_id == 0:
        raise _Refused(BATCH_MISSING, "batchId should assign value")
    return None if body.batch_id == _NO_BATCH else Ack(identity, body.batch_id)


def _rollback(packet: pb.Packet) -> Step:
    body = packets.parsed(pb.ClientRollback, packet.body)
    return Rollback(_identity(body), body.batch_id or None)


def _heartbeat(packet: pb.Packet) -> Step:
    return ReplyBytes(packets.acknowledged())


def _login(packet: pb.Packet) -> Step:
    body = packets.parsed(pb.ClientAuth, packet.body)
    subscribe = None
    if body.destination and body.client_id:
        subscribe = Subscribe(_identity(body), body.filter)
    return Login(
        body.username,
        body.password,
        max(body.net_read_timeout, 0),
        max(body.net_write_timeout, 0),
        subscribe,
    )


TRANSITIONS: dict[tuple[State, int], Callable[[pb.Packet], Step | None]] = {
    (State.AUTHENTICATING, pb.CLIENTAUTHENTICATION): _login,
    (State.SERVING, pb.SUBSCRIPTION): _subscribe,
    (State.SERVING, pb.UNSUBSCRIPTION): _unsubscribe,
    (State.SERVING, pb.GET): _get,
    (State.SERVING, pb.CLIENTACK): _ack,
    (State.SERVING, pb.CLIENTROLLBACK): _rollback,
    (State.SERVING, pb.HEARTBEATS): _heartbeat,
}


class Session:
    """One connection, from the server's side."""

    def __init__(self, packet_bytes_max: int, requests_max: int) -> None:
        self.state = State.AUTHENTICATING
        self.seed = secrets.token_bytes(SEED_BYTES)
        self._frames = packets.FrameReader(min(packet_bytes_max, LOGIN_BYTES_MAX))
        self._packet_bytes_max = packet_bytes_max
        self._requests_max = requests_max
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._corrupt: CorruptPacket | None = None
        self._close: Close | None = None

    def greeting(self) -> bytes:
        """Return what the server sends first."""
        return packets.handshake(self.seed)

    @property
    def waiting(self) -> int:
        """Return how many whole requests `next` has not handed out yet."""
        return len(self._waiting)

    @property
    def wants_more(self) -> bool:
        """Return whether `receive` has any use for more bytes."""
        return self.state is not State.CLOSED and self._corrupt is None

    def receive(self, data: bytes) -> None:
        """Bytes from the client, cut anywhere. What is wrong with them, `next` says in its turn."""
        if not self.wants_more:
            return
        try:
            for frame in self._frames.feed(data):
                self._waiting.append(frame)
                self._waiting_bytes += len(frame)
                if len(self._waiting) > self._requests_max:
                    raise CorruptPacket(
                        f"more than {self._requests_max} requests wait on this connection "
                        "(server.requests_max)"
                    )
                if self._waiting_bytes > self._packet_bytes_max:
                    raise CorruptPacket(
                        f"more than {self._packet_bytes_max} bytes of requests wait on this "
                        "connection (server.packet_bytes_max)"
                    )
        except CorruptPacket as error:
            self._corrupt = error

    def next(self) -> Step | None:
        """The next thing to do; see the module's text."""
        while self.state is not State.CLOSED:
            if self._waiting:
                frame = self._waiting.popleft()
                self._waiting_bytes -= len(frame)
                step = self._step(frame)
            elif self._corrupt is not None:
                step = self._end(str(self._corrupt))
            else:
                return None
            if step is not None:
                return step
        close, self._close = self._close, None
        return close

    def _step(self, frame: bytes) -> Step | None:
        try:
            packet = packets.parsed_packet(frame)
            transition = TRANSITIONS.get((self.state, packet.type))
            if transition is not None:
                return transition(packet)
        except CorruptPacket as error:
            return self._end(str(error))
        except _Refused as error:
            return ReplyBytes(packets.refused(error.code, error.message))
        if self.state is State.AUTHENTICATING:
            return self._end(f"packet type={_name(packet.type)} before the authentication")
        text = f"packet type={_name(packet.type)} is NOT supported!"
        return ReplyBytes(packets.refused(SOMETHING_WRONG, text))

    def _end(self, reason: str) -> ReplyBytes:
        """The error goes out, then `next` gives Close."""
        self.state = State.CLOSED
        self._waiting.clear()
        self._close = Close(reason)
        return ReplyBytes(packets.refused(SOMETHING_WRONG, reason))

    # --- what became of what `next` handed out --------------------------------------------------

    def admit(self) -> bytes:
        """Answer a login that was right: requests may follow."""
        self.state = State.SERVING
        self._frames.bytes_max = self._packet_bytes_max
        return packets.acknowledged()

    def deny(self, message: str) -> bytes:
        """Answer a login that was wrong, and end the connection."""
        return self._end(message).data

    def done(self, request: Request) -> bytes:
        """Answer a request that was carried out. A Get with entries is answered by the caller."""
        if isinstance(request, Ack | Rollback):
            return b""
        return packets.no_messages() if isinstance(request, Get) else packets.acknowledged()

    def failed(self, message: str, *, close: bool = False) -> bytes:
        """Answer a request that could not be carried out. `close`: end the connection, as no later
        one can be."""
        if close:
            return self._end(message).data
        return packets.refused(SOMETHING_WRONG, message)


def _name(packet_type: int) -> str:
    known = pb.PacketType.values()
    return pb.PacketType.Name(packet_type) if packet_type in known else str(packet_type)
