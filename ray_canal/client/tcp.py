"""A connector's transport over Canal's TCP protocol: outside the cluster, without Ray.

It serves Connector with its usual promises, which the protocol alone does not give: a CLIENTACK has
no answer, so a HEARTBEATS is sent behind it, and the answer to that says that the ack was carried
out (ray_canal's server acknowledges it; Canal's own refuses the packet, which says the same). A
connection that breaks is opened again, as Canal's clients do it: handshake, login, rollback of what
was outstanding, subscription.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from ray_canal import errors
from ray_canal.canal import packet as packets
from ray_canal.canal.generated import CanalProtocol_pb2 as pb
from ray_canal.canal.scramble import scramble411
from ray_canal.client.message import Message
from ray_canal.client.tcp_message import TcpHead, TcpMessage
from ray_canal.client.tcp_wire import READ_S, Address, Wire, lacking
from ray_canal.destination.api import (
    AckRequest,
    ClientRequest,
    GetRequest,
    Method,
    PollRequest,
    Q,
    R,
    RollbackRequest,
    SubscribeRequest,
    is_repeatable,
)
from ray_canal.errors import (
    AuthenticationFailed,
    BatchesUnacked,
    BatchNotFirst,
    BatchNotFound,
    CanalError,
    ConnectionLost,
    ConsumerError,
    CorruptPacket,
    InstanceError,
    InstanceRestarted,
)
from ray_canal.model.message import EMPTY_BATCH, MessageHead
from ray_canal.model.subscription import Subscription

M = TypeVar("M", bound=packets.Body)

_REPEAT_S = 60.0
_PAUSE_S, _PAUSE_S_MAX = 0.2, 1.0
_MILLISECONDS = 2
_LESS_S = 0.25
"""So long at most a loop waits for rows that are less than a memory unit."""
_NO_WISHES = Subscription()
_IDENTITY_MISSING = (401, 402)
_UNKNOWN_PACKET = "is NOT supported"


class TcpTransport:
    """Canal's protocol for one connector. Calls are made one at a time, from any thread."""

    has_batches = untracked = False

    def __init__(self, destination: str, address: Address) -> None:
        self.destination = destination
        self._address = address
        self._lock = threading.Lock()
        self._callers = ThreadPoolExecutor(1, "ray_canal tcp")  # a loop's own threads are few
        self._wire: Wire | None = None
        self._epoch = 0
        self._filters: dict[int, str] = {}
        self._outstanding: dict[int, list[int]] = {}
        self._not_received: dict[int, int] = {}  # from this batch on they did not reach the caller
        self._given_up: threading.Event | None = None  # of the call that is made now
        self._is_ours = False  # our server acknowledges heartbeats; it knows polls, too
        with self._lock:
            self._open()

    # --- what connectors call -------------------------------------------------------------------

    def call(self, method: Method[Q, R], request: Q, *, once: bool = False) -> R:
        """Call and wait. What is repeatable (and not wanted `once`) is made again over a new
        connection, up to a minute. A connection that is refused is tried again for as long,
        whatever the call: nothing was done yet.

        Raises InstanceRestarted: the connection broke, and batches with it, or the call may not be
        repeated. ConnectionLost: there was none to be had for a minute.
        """
        repeat = is_repeatable(method) and not once
        answer: R = self._call(method, request, repeat)
        return self._received(request, answer)

    def _received(self, request: ClientRequest, answer: R) -> R:
        if isinstance(answer, MessageHead) and answer.id != EMPTY_BATCH:
            self._not_received.pop(request.client_id, None)
        return answer

    def _call(
        self,
        method: Method[Q, R],
        request: Q,
        repeat: bool,
        given_up: threading.Event | None = None,
    ) -> Any:
        carry_out = getattr(self, "_" + method.__name__)
        deadline = time.monotonic() + _REPEAT_S
        pause_s = _PAUSE_S
        while True:
            failure: CanalError
            with self._lock:
                self._given_up = given_up
                try:
                    self._refuse_given_up()
                    return carry_out(request)
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
                except CanalError:
                    raise  # it was the answer
                except BaseException:  # an interrupt: the answer is nobody's, and still to come
                    self._drop()
                    raise
            if given_up is not None and given_up.is_set():
                again = False
            if not again or time.monotonic() > deadline:
                raise failure.at(destination=self.destination)
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _PAUSE_S_MAX)

    async def call_async(self, method: Method[Q, R], request: Q) -> R:
        """The same, in a thread. A get that is cancelled leaves no batch outstanding: what it
        brings after that is rolled back by the next one."""
        given_up = threading.Event()
        try:
            repeat = is_repeatable(method)
            call = partial(self._call, method, request, repeat, given_up)
            answer = await asyncio.get_running_loop().run_in_executor(self._callers, call)
        except asyncio.CancelledError:
            given_up.set()
            if isinstance(request, GetRequest):
                self._interrupt(request.client_id, request.timeout)
            raise
        found: R = self._received(request, answer)
        return found

    def _refuse_given_up(self) -> None:
        """Raise InstanceRestarted if nobody waits for the call any more: it would have the batch of
        a call that was made since."""
        if self._given_up is not None and self._given_up.is_set():
            raise InstanceRestarted("the call was given up").at(destination=self.destination)

    def arrived_ids(self, client_id: int, batch_ids: list[int]) -> list[int]:
        """See Transport."""
        first = self._not_received.get(client_id)
        return [each for each in batch_ids if first is None or each < first]

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
        """Return whether batches were outstanding on a connection that is gone; they are void
        now."""
        lost = any(self._outstanding.values())
        self._outstanding.clear()
        return lost

    def _drop(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _open(self) -> Wire:
        if self._wire is not None:
            return self._wire
        try:
            wire = Wire(self._address)
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
            self._wire, self._epoch, self._is_ours = wire, self._epoch + 1, False
            for client_id, text in self._filters.items():
                self._settle(pb.CLIENTROLLBACK, self._named(pb.ClientRollback, client_id))
                wanted = self._named(pb.Sub, client_id, filter=text)
                wire.send(packets.framed(pb.SUBSCRIPTION, wanted))
                self._refuse(wire.read())
        except BaseException:
            self._wire = None
            wire.close()
            raise
        return wire

    def _named(self, kind: type[M], client_id: int, **fields: str) -> M:
        return kind(destination=self.destination, client_id=str(client_id), **fields)

    def _ask(
        self, kind: pb.PacketType, body: packets.Body, timeout_s: float | None = READ_S
    ) -> pb.Packet:
        """Send a request and return the packet that answers it. Raises what the answer says."""
        wire = self._open()
        self._refuse_given_up()  # `_interrupt` sees the connection from here on
        wire.send(packets.framed(kind, body))
        answer = wire.read(timeout_s)
        self._refuse(answer)
        return answer

    def _settle(self, kind: pb.PacketType, body: packets.Body) -> None:
        """Send a request without an answer, and wait until it was carried out."""
        wire = self._open()
        wire.send(packets.framed(kind, body) + packets.framed(pb.HEARTBEATS))
        answer = wire.read()
        failure = self._failure(answer)
        if failure is None or _UNKNOWN_PACKET in str(failure):
            self._is_ours = failure is None
            return
        if isinstance(failure, InstanceRestarted):
            self._drop()  # its server closes now
        else:
            wire.read()  # the heartbeat's answer
        raise failure

    def _refuse(self, answer: pb.Packet) -> None:
        failure = self._failure(answer)
        if failure is not None:
            if isinstance(failure, InstanceRestarted):
                self._drop()
            raise failure

    def _failure(self, answer: pb.Packet) -> CanalError | None:
        """The error that an answer is."""
        if answer.type != pb.ACK:
            return None
        ack = packets.parsed(pb.Ack, answer.body)
        if not ack.error_code:
            return None
        text = ack.error_message or f"error {ack.error_code}"
        return _kind(ack.error_code, text)(text).at(destination=self.destination)

    # --- the calls ------------------------------------------------------------------------------

    def _subscribe(self, request: SubscribeRequest) -> int:
        client_id, text = request.client_id, request.filter
        if request.wishes != _NO_WISHES:
            raise lacking("policy, transactions, start or snapshot")
        self._open()
        self._settle(pb.CLIENTROLLBACK, self._named(pb.ClientRollback, client_id))
        self._outstanding.pop(client_id, None)
        self._ask(pb.SUBSCRIPTION, self._named(pb.Sub, client_id, filter=text))
        self._filters[client_id] = text
        return self._epoch

    def _unsubscribe(self, request: ClientRequest) -> None:
        client_id = request.client_id
        self._ask(pb.UNSUBSCRIPTION, self._named(pb.Unsub, client_id))
        self._filters.pop(client_id, None)
        self._outstanding.pop(client_id, None)

    def _get_without_ack(self, request: GetRequest) -> TcpHead:
        return self._take(request.client_id, request.batch_size, request.timeout)

    def _take(
        self,
        client_id: int,
        batch_size: int,
        timeout: float | None,
        *,
        polls: bool = False,
        done: int = 0,
    ) -> TcpHead:
        if self._wire is None and self._void():
            raise EOFError("the connection ended")
        self._take_back(client_id)
        body = self._named(pb.Get, client_id)
        body.fetch_size, body.unit = batch_size, _MILLISECONDS
        body.poll, body.done = polls, done
        body.timeout = -1 if timeout is None else max(int(timeout * 1000), 1) if timeout else 0
        patience_s = None if timeout == 0 else (timeout or 0) + READ_S
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
            self._give_back(client_id, None if lost == known else lost[0], self._epoch)

    def _poll(self, request: PollRequest) -> TcpHead:
        """Return what there is as soon as there is anything: of our own server by one GET, which
        acks, too."""
        client_id, done = request.client_id, request.done
        if self._is_ours and self._wire is not None:
            self._take_back(client_id)
            acked = done[0] if done is not None and done[1] == self._epoch else 0
            self._settled(client_id, acked)  # its reader is done with it: see below
            size, timeout = request.batch_size, request.timeout
            return self._take(client_id, size, timeout, polls=True, done=acked)
        if done is not None:
            try:
                self._confirm(client_id, *done)
            except (InstanceRestarted, BatchNotFound):
                pass  # as the store does it
            except (OSError, EOFError, CorruptPacket):
                # Its reader is done with it: that it may come again need not be told.
                self._settled(client_id, done[0])
                raise
        head = self._take(client_id, request.batch_size, None)
        if head.id != EMPTY_BATCH:
            return head
        # One unit, as soon as there is one; the next get takes what came with it. What is less than
        # one (1 KiB) counts as no full batch, so Canal's protocol gives it when the wait is over.
        left_s = request.timeout or 0.0
        while left_s > _LESS_S:
            head = self._take(client_id, 1, _LESS_S)
            if head.id != EMPTY_BATCH:
                return head
            left_s -= _LESS_S
        return self._take(client_id, 1, left_s or request.timeout)

    def _get(self, request: GetRequest) -> TcpHead:
        client_id = request.client_id
        self._take_back(client_id)
        if open_batches := self._outstanding.get(client_id):
            raise BatchesUnacked(
                f"clientId:{client_id} has unacked batches, the last is {open_batches[-1]}; "
                "ack or roll back before get()"
            )
        return self._get_without_ack(request)

    def _ack(self, request: AckRequest) -> None:
        if request.mark:
            raise lacking("mark")
        self._confirm(request.client_id, request.batch_id, request.epoch)

    def _confirm(self, client_id: int, batch_id: int, epoch: int | None) -> None:
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

    def _rollback(self, request: RollbackRequest) -> None:
        self._give_back(request.client_id, request.batch_id, request.epoch)

    def _give_back(self, client_id: int, batch_id: int | None, epoch: int | None) -> None:
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

    def _list_batch_ids(self, request: ClientRequest) -> list[int]:
        return list(self._outstanding.get(request.client_id, []))

    def _refuse_void(self, batch_id: int, epoch: int | None) -> None:
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
