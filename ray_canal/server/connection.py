"""Serve one client: read its requests, carry them out in order, send the answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Hashable

from ray_canal.binlog.chunk import DecodedChunk
from ray_canal.canal.session import (
    Ack,
    Close,
    Get,
    Identity,
    Login,
    ReplyBytes,
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
    PollRequest,
    RollbackRequest,
    SubscribeRequest,
)
from ray_canal.errors import (
    BatchesUnacked,
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
from ray_canal.server.outstanding import VOID, Outstanding
from ray_canal.server.peer import Gone, Peer
from ray_canal.server.ports import Store
from ray_canal.server.shared import Shared
from ray_canal.server.turns import Superseded
from ray_canal.views.entries import EntryBytes

logger = logging.getLogger(__name__)

_SMALL_BYTES = 64 << 10


class Connection:
    """One client's connection, from its first byte to its last."""

    def __init__(
        self,
        shared: Shared,
        place: Hashable,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """`place`: its key in `shared.places`."""
        self._shared = shared
        self._place = place
        self._session = Session(shared.config.packet_bytes_max, shared.config.requests_max)
        self._peer = Peer(shared, self._session, reader, writer)
        self._outstanding: dict[Identity, Outstanding] = {}
        self._name = TCP_HOLDER + uuid.uuid4().hex
        self._subscribed: set[Identity] = set()
        self._user: User = EVERYBODY

    async def serve(self) -> None:
        """Answer until either side ends the connection. Raises nothing but CancelledError."""
        try:
            await self._peer.send(self._session.greeting())
            await self._answer_all()
        except Gone as error:
            logger.info("%s: %s", self._peer, error)
            await self._ack_what_waits()
        except (ConnectionError, TimeoutError, asyncio.TimeoutError):
            logger.info("%s: the connection broke", self._peer)
            await self._ack_what_waits()
        except Exception:
            logger.exception("%s: closed after an unexpected error", self._peer)
        finally:
            await self._peer.close()

    async def _answer_all(self) -> None:
        while True:
            step = self._session.next()
            if step is None:
                await self._peer.receive()
            elif isinstance(step, ReplyBytes):
                await self._peer.send(step.data)
            elif isinstance(step, Close):
                logger.info("%s: closed: %r", self._peer, step.reason)  # it has the name given
                await self._peer.linger()
                return
            elif isinstance(step, Login):
                await self._log_in(step)
            else:
                self._shared.requests += 1
                await self._answer(step)

    # --- the steps ------------------------------------------------------------------------------

    async def _log_in(self, login: Login) -> None:
        shared, config = self._shared, self._shared.config
        user = shared.access.login(login.username, self._session.seed, login.answer)
        if user is None:
            await self._peer.send(self._session.deny(f"auth failed for user:{login.username[:64]}"))
            return
        if not shared.places.admit(self._place):
            text = f"too many connections (server.connections_max is {config.connections_max})"
            await self._peer.send(self._session.deny(text))
            return
        self._user = user
        self._peer.logged_in(login.read_timeout_ms / 1000, login.write_timeout_ms / 1000)
        admitted = self._session.admit()
        if login.subscribe is None:
            await self._peer.send(admitted)
        else:
            await self._answer(login.subscribe)

    async def _answer(self, request: Request) -> None:
        try:
            self._user.refuse(request)
            if isinstance(request, Get):
                await self._get(request)
                return
            carrying_out = self._carry_out(request)
            # Acks have no answer: their client need not be there any more.
            is_ack = isinstance(request, Ack)
            await (carrying_out if is_ack else self._peer.while_there(carrying_out))
            answer = self._session.done(request)
        except CanalError as error:
            answer = self._refusal(request, error)
        except Superseded:
            answer = self._session.done(request)
        if answer:
            await self._peer.send(answer)

    async def _ack_what_waits(self) -> None:
        """Carry out the acks that the client sent before it went away, up to a rollback."""
        try:
            for identity in list(self._outstanding):
                await self._make_failed_ack(await self._store(identity), identity)
            while isinstance(step := self._session.next(), Ack | Get | ReplyBytes):
                if isinstance(step, Ack):
                    self._user.refuse(step)
                    await self._carry_out(step)
        except CanalError as error:  # what is not acked comes again
            logger.info("%s: an ack was not made: %s", self._peer, error)

    def _refusal(self, request: Request, error: CanalError) -> bytes:
        """Return the answer for an error: Canal's text around ours. After a restart that has made
        batches stale the connection ends: the client's next one begins with a rollback, which is
        what it needs now."""
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
        """Return the holder that the store sees: this connection, if it has subscribed, else
        any."""
        return self._name if identity in self._subscribed else TCP_HOLDER

    async def _subscribe(self, store: Store, request: Subscribe) -> None:
        """Subscribe without a rollback: Canal's clients roll back by themselves."""
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
        known = self._outstanding.setdefault(identity, Outstanding(epoch))
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
            known.to_ack = None  # it was the smallest

    async def _make_failed_ack(self, store: Store, identity: Identity) -> None:
        """Ack what was sent with auto_ack, and was not acked then."""
        known = self._outstanding.get(identity)
        if known is None or known.to_ack is None:
            return
        batch_id = known.to_ack
        try:
            await self._ack(store, Ack(identity, batch_id))
        except VOID:
            known.to_ack = None
            raise
        known.acked_by_us = batch_id

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
            known.rolled_back(batch_id)

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
        store = await self._peer.while_there(self._store(request.identity))
        await self._make_failed_ack(store, request.identity)
        await self._peer.while_there(self._before_get(store, request))
        head = await self._peer.while_there(self._take(store, request))
        if head.id == EMPTY_BATCH:
            await self._peer.send(self._session.done(request))
            return
        await self._refuse_mixed_epochs(store, request.identity, head)
        held = 0
        try:
            chunks = await self._peer.while_there(
                store.load_async([part.payload for part in head.parts])
            )
            wanted = frames.expected_bytes(head, chunks)
            held = await self._peer.while_there(self._shared.budget.take(wanted))
            async with self._shared.rendering:
                await self._peer.while_there(self._shared.budget.settled())
                parts = await self._rendered(head, chunks, wanted)
                held = self._shared.budget.correct(held, sum(part.held_bytes for part in parts))
            buffers = frames.framed(head, parts)
            del chunks, parts
            while buffers:
                await self._peer.send(buffers.pop(0))
        except CanalError:  # its client is told, and goes on with what it has not got
            await self._give_back(store, request.identity, head)
            raise
        finally:
            self._shared.budget.give(held)
        if request.auto_ack:
            await self._ack_sent(store, request.identity, head.id)

    async def _ack_sent(self, store: Store, identity: Identity, batch_id: int) -> None:
        """Ack a batch that was sent. An error is the next get's, for this one has its answer."""
        known = self._outstanding[identity]
        try:
            await self._ack(store, Ack(identity, batch_id))
            known.acked_by_us = batch_id
        except CanalError as error:
            known.to_ack = batch_id
            logger.warning("%s: batch %d is not acked yet: %s", self._peer, batch_id, error)

    async def _before_get(self, store: Store, request: Get) -> None:
        """Give back what could not be given back before, and refuse what could not be acked."""
        known = self._outstanding.get(request.identity)
        if known is None:
            return
        if known.to_give_back is not None:
            await self._roll_back_one(store, request.identity, known)
        if request.auto_ack and known.batches:
            call = self._request(request.identity)
            out = await store.call_async(DestinationApi.list_batch_ids, call)
            if out:
                raise BatchesUnacked(
                    f"clientId:{request.identity.client_id} has last batch:[{out[-1]}] isn't ack , "
                    "maybe loss data"
                )

    async def _rendered(
        self, head: MessageHead, chunks: list[DecodedChunk], size_bytes: int
    ) -> list[EntryBytes]:
        """Render each part in a thread of its own, if there is one free: kernels hold no GIL. What
        is small takes less time than its way to a thread."""
        if size_bytes <= _SMALL_BYTES and self._shared.renders_at_once:
            return [frames.rendered(head, *numbered) for numbered in enumerate(chunks)]
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
        head = await self._shared.turns.get(identity, store.take(self._wanted(request)))
        if head.id == EMPTY_BATCH and head.finished and request.timeout_s is not None:
            # Binlog files that are at their end answer at once; Canal's clients count on the wait.
            until = began + (request.timeout_s or self._peer.write_timeout_s)
            await asyncio.sleep(max(until - time.monotonic(), 0))
        return head

    def _wanted(self, request: Get) -> GetRequest:
        """Return the call that a GET is. A batch that it acks and that did not go over this
        connection is of no epoch, so it comes again."""
        identity, known = request.identity, self._outstanding.get(request.identity)
        client_id, holder = identity.client_id, self._holder(identity)
        size, timeout = request.fetch_size, request.timeout_s
        if not request.polls:
            return GetRequest(
                client_id=client_id, holder=holder, batch_size=size, timeout=timeout
            )
        done = (request.done, 0 if known is None else known.epoch) if request.done else None
        if known is not None:
            known.batches.discard(request.done)
        return PollRequest(
            client_id=client_id, holder=holder, batch_size=size, timeout=timeout, done=done
        )

    async def _give_back(self, store: Store, identity: Identity, head: MessageHead) -> None:
        """Roll back a batch that its client does not get: now, or else before the next get."""
        known = self._outstanding[identity]
        known.batches.discard(head.id)
        known.to_give_back = head.id, head.epoch
        try:
            await self._roll_back_one(store, identity, known)
        except CanalError as error:  # the client is told why it does not get the batch
            logger.warning("%s: batch %d is still outstanding: %s", self._peer, head.id, error)

    async def _roll_back_one(self, store: Store, identity: Identity, known: Outstanding) -> None:
        assert known.to_give_back is not None
        with contextlib.suppress(*VOID):
            request = self._rollback_request(identity, *known.to_give_back)
            await store.call_async(DestinationApi.rollback, request)
        known.to_give_back = None

    async def _refuse_mixed_epochs(
        self, store: Store, identity: Identity, head: MessageHead
    ) -> None:
        """Raise InstanceRestarted if the client has batches of before a restart: they are stale,
        and every ack of them would be refused."""
        known = self._outstanding.setdefault(identity, Outstanding(head.epoch))
        if known.epoch != head.epoch and known.batches:
            await self._give_back(store, identity, head)
            raise InstanceRestarted(
                "the destination restarted; connect again: what was not acked is delivered again"
            )
        known.epoch = head.epoch
        known.batches.add(head.id)
