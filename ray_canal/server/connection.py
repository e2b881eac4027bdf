"""One client: reads its requests, has them carried out in order, sends the answers.

While a request is carried out the socket is still read, so that a client that goes away is noticed,
and a get that waits for it ends. An answer is sent in slices, each within a time: a reader that
takes nothing is left, and sooner if others wait for the memory that its answer holds.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.canal.session import (
    Ack,
    Answer,
    Close,
    Get,
    Identity,
    Login,
    Request,
    Rollback,
    Session,
    Subscribe,
    Unsubscribe,
)
from ray_canal.destination.api import (
    AckRequest,
    ClientRequest,
    DestinationApi,
    GetRequest,
    RollbackRequest,
    SubscribeRequest,
)
from ray_canal.errors import (
    CanalError,
    InstanceNotFound,
    InstanceNotRunning,
    InstanceRestarted,
    NotSubscribed,
    SubscriberReplaced,
)
from ray_canal.model.message import EMPTY_BATCH, MessageHead
from ray_canal.model.subscription import TCP_HOLDER, Subscription
from ray_canal.server import frames
from ray_canal.server.access import EVERYBODY, User
from ray_canal.server.ports import Store
from ray_canal.server.shared import Shared
from ray_canal.server.turns import Superseded
from ray_canal.views.entries import EntryBytes

logger = logging.getLogger(__name__)

T = TypeVar("T")

_READ_BYTES = 64 << 10
_SLICE_BYTES = 256 << 10
_CONTENDED_STALL_S = 5.0
_CHECK_S = 1.0
_LINGER_S = 1.0


class Gone(Exception):
    """The peer is not there any more, or takes nothing; the text says which."""


@dataclass(slots=True)
class _Outstanding:
    """Batches of one subscriber that went over this connection, and whose epoch they have."""

    epoch: int
    batches: set[int] = field(default_factory=set)
    acked_by_us: int = EMPTY_BATCH


class Connection:
    """One client's connection, from its first byte to its last."""

    def __init__(
        self,
        shared: Shared,
        place: Hashable,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """`place`: by which it is known to `shared.places`."""
        self._shared = shared
        self._place = place
        self._reader = reader
        self._writer = writer
        self._session = Session(shared.config.packet_bytes_max, shared.config.requests_max)
        self._peer = _printed(writer.get_extra_info("peername"))
        self._outstanding: dict[Identity, _Outstanding] = {}
        self._name = TCP_HOLDER + uuid.uuid4().hex
        self._subscribed: set[Identity] = set()
        self._reading: asyncio.Task[bytes] | None = None
        self._user: User = EVERYBODY
        self._received_at = self._sent_at = time.monotonic()
        self._login_by: float | None = self._received_at + shared.config.login_timeout_s
        self._read_timeout_s = self._write_timeout_s = shared.config.idle_timeout_s
        writer.transport.set_write_buffer_limits(high=0)  # what is sent waits in the kernel alone

    async def serve(self) -> None:
        """Until either side ends it. Never raises but CancelledError."""
        try:
            await self._send(self._session.greeting())
            await self._answer_all()
        except Gone as error:
            logger.info("%s: %s", self._peer, error)
        except (ConnectionError, TimeoutError, asyncio.TimeoutError):
            logger.info("%s: the connection broke", self._peer)
        except Exception:
            logger.exception("%s: closed after an unexpected error", self._peer)
        finally:
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.wait({self._reading})
            self._writer.transport.abort() if self._unsent() else self._writer.close()

    def _unsent(self) -> bool:
        """Return whether something waits for a reader that does not read; it must not keep
        memory."""
        return self._writer.transport.get_write_buffer_size() > 0

    async def _answer_all(self) -> None:
        while True:
            step = self._session.next()
            if step is None:
                self._session.receive(await self._read())
            elif isinstance(step, Answer):
                await self._send(step.data)
            elif isinstance(step, Close):
                logger.info("%s: closed: %s", self._peer, step.reason)
                await self._linger()
                return
            elif isinstance(step, Login):
                await self._log_in(step)
            else:
                self._shared.requests += 1
                await self._answer(step)

    # --- reading and writing --------------------------------------------------------------------

    async def _read(self) -> bytes:
        """More bytes. Raises Gone at the end of the stream and when it is idle for too long."""
        reading = self._start_reading()
        while not reading.done():
            await asyncio.wait({reading}, timeout=self._patience_s())
            if not reading.done():
                self._refuse_idle()
        return self._finish_reading()

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
            self._received_at + self._read_timeout_s, self._sent_at + self._write_timeout_s
        )
        return max(left_s - now, 0.01)

    def _refuse_idle(self) -> None:
        now = time.monotonic()
        if self._login_by is not None and now >= self._login_by:
            raise Gone("no login in time")
        if self._login_by is None and (
            now >= self._received_at + self._read_timeout_s
            or now >= self._sent_at + self._write_timeout_s
        ):
            raise Gone("idle for too long")

    async def _while_there(self, call: Coroutine[Any, Any, T]) -> T:
        """The call's result; it is cancelled if the client goes away meanwhile."""
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
                    return task.result()  # what was read meanwhile is for the next step
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

    async def _send(self, data: bytes | memoryview) -> None:
        """Send, slice by slice. Raises Gone: the peer takes too long for one."""
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

    async def _linger(self) -> None:
        """Let the peer read the error: a close with bytes unread would throw it away at its
        side."""
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

    # --- the steps ------------------------------------------------------------------------------

    async def _log_in(self, login: Login) -> None:
        shared, config = self._shared, self._shared.config
        user = shared.access.login(login.username, self._session.seed, login.answer)
        if user is None:
            await self._send(self._session.deny(f"auth failed for user:{login.username[:64]}"))
            return
        if not shared.places.admit(self._place):
            text = f"too many connections (server.connections_max is {config.connections_max})"
            await self._send(self._session.deny(text))
            return
        self._user = user
        self._login_by = None
        if login.read_timeout_ms:
            self._read_timeout_s = min(config.idle_timeout_s, login.read_timeout_ms / 1000)
        if login.write_timeout_ms:
            self._write_timeout_s = min(config.idle_timeout_s, login.write_timeout_ms / 1000)
        admitted = self._session.admit()
        if login.subscribe is None:
            await self._send(admitted)
        else:
            await self._answer(login.subscribe)

    async def _answer(self, request: Request) -> None:
        try:
            self._user.refuse(request)
            if isinstance(request, Get):
                await self._get(request)
                return
            await self._while_there(self._carry_out(request))
            answer = self._session.done(request)
        except CanalError as error:
            answer = self._refusal(request, error)
        except Superseded:
            answer = self._session.done(request)
        if answer:
            await self._send(answer)

    def _refusal(self, request: Request, error: CanalError) -> bytes:
        """Canal's text around ours. After a restart that has made batches void the connection ends:
        the client's next one begins with a rollback, which is what it needs now."""
        text = str(error)
        if isinstance(error, InstanceNotFound | InstanceNotRunning):
            text = f"destination:{request.identity.destination} should start first; {text}"
        if isinstance(error, InstanceNotFound):
            self._shared.stores.pop(request.identity.destination, None)
        return self._session.failed(
            f"something goes wrong with channel:{self._peer}, "
            f"exception={type(error).__name__}: {text}",
            close=isinstance(error, InstanceRestarted),
        )

    async def _store(self, identity: Identity) -> Store:
        known = self._shared.stores.get(identity.destination)
        if known is None:
            known = await self._shared.open_store(identity.destination)
            self._shared.stores[identity.destination] = known
        return known

    async def _carry_out(self, request: Request) -> None:
        identity = request.identity
        store = await self._store(identity)
        if isinstance(request, Ack):
            await self._ack(store, request)
        elif isinstance(request, Subscribe):
            await self._shared.turns.connect(identity, self._subscribe(store, request))
        elif isinstance(request, Rollback):
            await self._shared.turns.connect(identity, self._roll_back(store, request))
        elif isinstance(request, Unsubscribe):
            call = store.call_async(DestinationApi.unsubscribe, self._request(identity))
            await self._shared.turns.connect(identity, call)
            self._outstanding.pop(identity, None)
            self._subscribed.discard(identity)

    def _request(self, identity: Identity) -> ClientRequest:
        return ClientRequest(client_id=identity.client_id, holder=self._holder(identity))

    def _holder(self, identity: Identity) -> str:
        """Whom the store sees: this connection, if it has subscribed, else any of them."""
        return self._name if identity in self._subscribed else TCP_HOLDER

    async def _subscribe(self, store: Store, request: Subscribe) -> None:
        """Batches that are outstanding stay so: Canal's clients roll back by themselves."""
        identity = request.identity
        tables = request.filter  # empty: the destination's own
        if not self._user.may("subscribe"):
            shown = await store.call_async(DestinationApi.filter_of, self._request(identity))
            if shown is None or request.filter not in ("", shown):
                self._user.refuse_without("subscribe", identity)
            tables = shown or ""
        # A message is one packet here: it ends where the batch is full.
        wishes = Subscription(transactions=False)
        epoch = await store.call_async(
            DestinationApi.subscribe,
            SubscribeRequest(
                client_id=identity.client_id,
                holder=self._name,
                filter=tables,
                rollback=False,
                wishes=wishes,
            ),
        )
        self._subscribed.add(identity)
        known = self._outstanding.setdefault(identity, _Outstanding(epoch))
        if not known.batches:
            known.epoch = epoch

    async def _ack(self, store: Store, request: Ack) -> None:
        known = self._outstanding.get(request.identity)
        if known is not None and request.batch_id == known.acked_by_us:
            return
        epoch = None if known is None else known.epoch
        await store.call_async(
            DestinationApi.ack,
            AckRequest(
                client_id=request.identity.client_id,
                holder=self._holder(request.identity),
                batch_id=request.batch_id,
                epoch=epoch,
            ),
        )
        if known is not None:
            known.batches.discard(request.batch_id)

    async def _roll_back(self, store: Store, request: Rollback) -> None:
        known = self._outstanding.get(request.identity)
        epoch = None if known is None or request.batch_id is None else known.epoch
        batch_id = request.batch_id
        rollback = DestinationApi.rollback_all if batch_id is None else DestinationApi.rollback
        try:
            await store.call_async(
                rollback, self._rollback_request(request.identity, batch_id, epoch)
            )
        except (NotSubscribed, SubscriberReplaced):
            if request.identity in self._subscribed:
                raise
            # Canal's clients roll back when they connect, before they subscribe.
        if batch_id is None:
            self._outstanding.pop(request.identity, None)
        elif known is not None:
            known.batches = {kept for kept in known.batches if kept < batch_id}

    def _rollback_request(
        self, identity: Identity, batch_id: int | None, epoch: int | None
    ) -> RollbackRequest:
        return RollbackRequest(
            client_id=identity.client_id,
            holder=self._holder(identity),
            batch_id=batch_id,
            epoch=epoch,
        )

    async def _get(self, request: Get) -> None:
        store = await self._while_there(self._store(request.identity))
        head = await self._while_there(self._take(store, request))
        if head.id == EMPTY_BATCH:
            await self._send(self._session.done(request))
            return
        await self._refuse_mixed_epochs(store, request.identity, head)
        held = 0
        try:
            chunks = await self._while_there(
                store.load_async([part.payload for part in head.parts])
            )
            wanted = frames.expected_bytes(head, chunks)
            held = await self._while_there(self._shared.budget.take(wanted))
            async with self._shared.rendering:
                await self._while_there(self._shared.budget.settled())
                parts = await self._rendered(head, chunks)
                held = self._shared.budget.correct(held, sum(part.held_bytes for part in parts))
            buffers = frames.framed(head, parts)
            del chunks, parts
            while buffers:
                await self._send(buffers.pop(0))
        finally:
            self._shared.budget.give(held)
        if request.auto_ack:
            await self._ack(store, Ack(request.identity, head.id))
            self._outstanding[request.identity].acked_by_us = head.id

    async def _rendered(self, head: MessageHead, chunks: list[DecodedChunk]) -> list[EntryBytes]:
        """Each part in a thread of its own, as far as there are threads: kernels hold no GIL."""
        loop, executor = asyncio.get_running_loop(), self._shared.executor
        return await asyncio.gather(
            *(
                loop.run_in_executor(executor, frames.rendered, head, number, chunk)
                for number, chunk in enumerate(chunks)
            )
        )

    async def _take(self, store: Store, request: Get) -> MessageHead:
        identity = request.identity
        began = time.monotonic()
        head = await self._shared.turns.get(
            identity,
            store.take(
                GetRequest(
                    client_id=identity.client_id,
                    holder=self._holder(identity),
                    batch_size=request.fetch_size,
                    timeout=request.timeout_s,
                )
            ),
        )
        if head.id == EMPTY_BATCH and head.finished and request.timeout_s is not None:
            # Binlog files that are at their end answer at once; Canal's clients count on the wait.
            until = began + (request.timeout_s or self._write_timeout_s)
            await asyncio.sleep(max(until - time.monotonic(), 0))
        return head

    async def _refuse_mixed_epochs(
        self, store: Store, identity: Identity, head: MessageHead
    ) -> None:
        """Batches of before a restart are void: a client that goes on to ack them is refused for
        ever, so it learns it at once."""
        known = self._outstanding.setdefault(identity, _Outstanding(head.epoch))
        if known.epoch != head.epoch and known.batches:
            given_back = self._rollback_request(identity, head.id, head.epoch)
            await store.call_async(DestinationApi.rollback, given_back)
            raise InstanceRestarted(
                "the instance restarted; connect again: what was not acked will be delivered again"
            )
        known.epoch = head.epoch
        known.batches.add(head.id)


def _printed(peer: Any) -> str:
    if not peer:
        return "unknown"
    host, port = peer[0], peer[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
