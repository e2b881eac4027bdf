"""The client of one destination: subscribe, get, ack, rollback (Canal: CanalConnector).

`AsyncConnector` has the calls; `Connector` makes the same ones and blocks until each is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeVar

from ray_canal.client.message import Message
from ray_canal.client.port import Transport
from ray_canal.client.session import ClientSession
from ray_canal.client.waiting import InThread, OnLoop, Waiting
from ray_canal.destination.api import (
    DestinationApi,
    GetRequest,
    Method,
    PollRequest,
    SubscribeRequest,
)
from ray_canal.destination.blocking import complete
from ray_canal.errors import BatchNotFound, CanalError, InstanceRestarted, MetaUnavailable
from ray_canal.model.message import MessageHead
from ray_canal.model.snapshot_wish import SnapshotStart
from ray_canal.model.subscription import DEFAULT_CLIENT_ID, Policy, StartWish

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ray_canal.views.transform import RowSteps

ALL_TABLES = r".*\..*"
_POLL_S = 10.0
"""So long a call waits for rows: each costs both sides a thousandth of a CPU second, and more."""
_POLL_STOPPABLE_S = 1.0
_VAIN_MAX = 5
"""So many messages in a row may a loop give back because their chunks are gone; then it shows one,
whose reader sees what is wrong."""
UNSURE = (InstanceRestarted, MetaUnavailable)
"""Errors that an ack may raise although it was carried out."""

logger = logging.getLogger(__name__)
G = TypeVar("G", bound=GetRequest)


class Stopped(Protocol):
    """Says that a loop is to end: an asyncio.Event or a threading.Event."""

    def is_set(self) -> bool:
        """Return whether the caller wants to end."""
        ...


class AsyncConnector:
    """A subscriber of one destination, for asyncio. Each call may be cancelled.

    Delivery is at least once and in order: what is not acked comes again after `rollback()`, a new
    connection, or a restart. Raises ConsumerError when the get/ack contract is broken,
    InstanceError when the destination is not there, SourceError / DecodeError when it has failed.
    """

    def __init__(
        self,
        transport: Transport,
        client_id: int | None = DEFAULT_CLIENT_ID,
        waiting: Waiting | None = None,
    ) -> None:
        self._session = ClientSession(transport, client_id)
        self._waiting = waiting or OnLoop(transport)
        self._acking: asyncio.Task[None] | None = None  # of the last `get`

    @property
    def destination(self) -> str:
        """Name of the destination."""
        return self._session.destination

    @property
    def client_id(self) -> int:
        """Id of this subscriber."""
        return self._session.client_id

    async def subscribe(
        self,
        filter: str = ALL_TABLES,
        *,
        policy: Policy | None = None,
        transactions: bool | None = None,
        start: StartWish | None = None,
        snapshot: SnapshotStart | None = None,
        **steps: Unpack[RowSteps],
    ) -> None:
        """Become a subscriber, or change what was asked for; see Connector.subscribe."""
        session = self._session
        session.use(steps)
        wishes = session.wishes(policy, transactions, start, snapshot)
        await self._acked()
        session.epoch = await self._waiting.call(
            DestinationApi.subscribe,
            SubscribeRequest(client_id=session.client_id, filter=filter, wishes=wishes),
        )
        session.subscribed()

    async def unsubscribe(self) -> None:
        """Stop being a subscriber: the cursor is forgotten, the log no longer waits for this
        client."""
        await self._acked()
        await self._waiting.call(DestinationApi.unsubscribe, self._session.me)

    async def get_without_ack(
        self, batch_size: int = 1000, timeout: float | None = None
    ) -> Message:
        """Return the next batch; it stays outstanding until `ack` or `rollback`.

        `batch_size`: memory units (store.memunit_bytes of binlog each) under MEMSIZE, entries under
        ITEMSIZE. `timeout` in seconds has Canal's three meanings: None returns what is there now, 0
        waits until a full batch is there, > 0 waits up to so long for a full batch, then returns
        what is there. An empty message has id -1 and needs no ack. Several batches may be
        outstanding.

        Whatever becomes of a call (an answer that is lost, an exception, a cancellation), a batch
        that did not arrive here comes with the next one. So gets of one connector are made one
        after the other.
        """
        request = self._session.get(batch_size, timeout)
        return await self._get(DestinationApi.get_without_ack, request)

    async def get(self, batch_size: int = 1000, timeout: float | None = None) -> Message:
        """Return the next batch, which is acked as it has arrived. If it cannot be told whether the
        ack was carried out, the message may come again. Raises BatchesUnacked while batches are
        outstanding.

        The ack is on its way when this returns, so that no cancellation can come between; it is
        done when the next call, or the `async with` block, has ended."""
        message = await self._get(DestinationApi.get, self._session.get(batch_size, timeout))
        if message:
            await self._fetch(message, always=True)
            self._acking = await self._waiting.start(self._ack_arrived(message))
        return message

    async def _fetch(self, message: Message, *, always: bool) -> None:
        """Have a message's chunks here. If that fails, it comes again: InstanceRestarted says that
        they are gone, with their log or the node that had them."""
        try:
            await self._waiting.fetch(message, always=always)
        except BaseException:
            self._session.not_received(message.id)
            raise

    async def _ack_arrived(self, message: Message) -> None:
        session = self._session
        try:
            await self._waiting.call(DestinationApi.ack, session.ack_of(message))
            session.settle_acked(message.id)
        except UNSURE as error:
            session.unacked(message, error)
        except BaseException:  # an interrupt, or the event loop ends
            session.not_received(message.id)
            raise

    async def _acked(self) -> None:
        """Wait for the ack of the last `get`. Raises what it raised."""
        acking = self._acking
        if acking is not None:
            if not acking.done():
                await asyncio.wait({acking})
            self._acking = None
            if not acking.cancelled():
                acking.result()

    async def _get(self, method: Method[G, MessageHead], request: G) -> Message:
        session = self._session
        async with self._waiting.turn:
            await self._acked()
            if session.done is not None and not isinstance(request, PollRequest):
                await self._ack_done()
            return session.message(await self._waiting.call(method, request))

    async def _ack_done(self) -> None:
        """Ack the last message of a loop that has ended before its next get."""
        session, done = self._session, self._session.done
        if done is not None:
            with contextlib.suppress(InstanceRestarted, BatchNotFound):  # it comes again; acked
                await self._waiting.call(DestinationApi.ack, session.ack(*done))
            session.settle_done()

    async def ack(self, batch_id: int, mark: str = "") -> None:
        """Confirm a batch: the cursor moves after it, durably, before this returns. `mark`: a
        text that is kept with the cursor, until the next one or a `seek`.

        Raises BatchNotFirst: not the smallest outstanding; BatchNotFound: not outstanding;
        InstanceRestarted: handed out before a restart (it comes again).
        """
        session = self._session
        await self._acked()
        await self._waiting.call(DestinationApi.ack, session.ack(batch_id, session.epoch, mark))
        session.settle_acked(batch_id)

    async def rollback(self, batch_id: int | None = None) -> None:
        """Give back all outstanding batches, or this one and those after it; they come again."""
        session = self._session
        await self._acked()
        request = session.rollback(batch_id)
        session.settle(batch_id)
        await self._waiting.call(DestinationApi.rollback, request)

    async def list_batch_ids(self) -> list[int]:
        """Return the ids of outstanding batches, smallest first."""
        session = self._session
        await self._acked()
        ids = await self._waiting.call(DestinationApi.list_batch_ids, session.me)
        return session.transport.arrived_ids(session.client_id, ids)

    async def messages(
        self,
        batch_size: int = 1000,
        poll: float | None = None,
        stopped: Stopped | None = None,
    ) -> AsyncGenerator[Message, None]:
        """Yield messages indefinitely, each acked when the loop asks for the next one.

        Each has what is there, at most `batch_size` of it (see get_without_ack), and waits for
        nothing but chunks that are being decoded already and fit, up to 0.1 s. If the loop's body
        raises, or the loop is left, the message in hand is rolled back: at once within
        `contextlib.aclosing`, else when asyncio gets to it, or with the next loop's first get. Ends
        when a source of binlog files is at its end, or within `poll` seconds (1) after `stopped` is
        set.
        """
        if poll is None:
            poll = _POLL_S if stopped is None else _POLL_STOPPABLE_S
        session, vain = self._session, 0
        session.leave_loop()
        while stopped is None or not stopped.is_set():
            untracked = not vain and session.transport.untracked
            request = session.poll(batch_size, poll, untracked=untracked)
            message = await self._get(DestinationApi.poll, request)
            session.settle_done()
            try:
                await self._fetch(message, always=0 < vain < _VAIN_MAX)
            except InstanceRestarted:
                vain += 1
                await self._give_back(message)
                continue
            vain = 0
            if message:
                session.yielded = message.id
                try:
                    yield message
                    session.done = message.id, message.head.epoch
                finally:
                    if session.leave(message.id):
                        await self._give_back(message)
            elif message.finished:
                return
        await self._ack_done()

    async def _give_back(self, message: Message) -> None:
        """Roll back, without hiding why. Where that fails, the next get does it."""
        self._session.not_received(message.id)
        try:
            await self.rollback()
        except CanalError as error:
            logger.info("batch %d was not rolled back now: %s", message.id, error)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    async def __aenter__(self) -> AsyncConnector:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave. The subscription and its cursor stay; unacked batches come again on the next
        connect. An ephemeral subscription ends."""
        try:
            await self._acked()
        finally:
            await self._waiting.close(self._session)


class Connector:
    """A subscriber of one destination, for code that blocks: the calls of AsyncConnector, each of
    which returns when it is done."""

    def __init__(
        self, transport: Transport, client_id: int | None = DEFAULT_CLIENT_ID
    ) -> None:
        self._core = AsyncConnector(transport, client_id, InThread(transport))

    @property
    def destination(self) -> str:
        """Name of the destination."""
        return self._core.destination

    @property
    def client_id(self) -> int:
        """Id of this subscriber."""
        return self._core.client_id

    def subscribe(
        self,
        filter: str = ALL_TABLES,
        *,
        policy: Policy | None = None,
        transactions: bool | None = None,
        start: StartWish | None = None,
        snapshot: SnapshotStart | None = None,
        **steps: Unpack[RowSteps],
    ) -> None:
        """Become a subscriber, or change what was asked for. `filter`: Canal's regex list over
        `schema.table`.

        `policy` says what happens when this subscriber is a whole log behind: the log waits for it
        ("block"), goes to disk ("spill"), or goes on without it ("detach": it then reads by a dump
        of its own until it is back). `transactions`: messages hold whole transactions, of any size.
        None: as it was, the first time as the configuration has it.

        The first time, the subscriber starts at `start`: "head" (the default), the oldest entry of
        the log; "tail", after the newest transaction; an EntryPosition; a GTID set of what was
        consumed already; a datetime. Later it starts at its durable cursor. Batches that an earlier
        connection left unacked are rolled back. Raises ConfigError: a bad filter, policy,
        start or step; SourceError kinds: a start that the server does not have.

        `snapshot` "initial": a new subscriber gets the rows that tables hold now, too, between the
        changes, each as `event_type` READ (docs/how-to/snapshots.md); it then starts at the tail.
        "never": it does not. None: as source.snapshot says.

        `where`, `columns`, `mask` and `hash` are steps on the rows of `batches`, done here
        (docs/reference/filters.md): a SQL condition over before and after, the columns that are
        shown, what stands in place of a column's values, and columns whose values are hashed, each
        with its key (or `env:NAME`, `file:PATH`; empty: without one). Each is for all tables or, as
        a dict, by table pattern. A step that does not fit a table is told by ConfigError when its
        rows come.
        """
        complete(
            self._core.subscribe(
                filter,
                policy=policy,
                transactions=transactions,
                start=start,
                snapshot=snapshot,
                **steps,
            )
        )

    def unsubscribe(self) -> None:
        """Stop being a subscriber: the cursor is forgotten, the log no longer waits for this
        client."""
        complete(self._core.unsubscribe())

    def get_without_ack(self, batch_size: int = 1000, timeout: float | None = None) -> Message:
        """Return the next batch, which stays outstanding until `ack` or `rollback`; see
        AsyncConnector.get_without_ack for `batch_size` and the three meanings of `timeout`."""
        return complete(self._core.get_without_ack(batch_size, timeout))

    def get(self, batch_size: int = 1000, timeout: float | None = None) -> Message:
        """Return the next batch, acked when it has arrived. If it cannot be told whether the ack
        was carried out, the message may come again. Raises BatchesUnacked while batches are
        outstanding."""
        return complete(self._core.get(batch_size, timeout))

    def ack(self, batch_id: int, mark: str = "") -> None:
        """Confirm a batch: the cursor moves after it, durably, before this returns; see
        AsyncConnector.ack for `mark`, and for what it raises."""
        complete(self._core.ack(batch_id, mark))

    def rollback(self, batch_id: int | None = None) -> None:
        """Give back all outstanding batches, or this one and those after it; they come again."""
        complete(self._core.rollback(batch_id))

    def list_batch_ids(self) -> list[int]:
        """Return the ids of outstanding batches, smallest first."""
        return complete(self._core.list_batch_ids())

    def messages(
        self,
        batch_size: int = 1000,
        poll: float | None = None,
        stopped: Stopped | None = None,
    ) -> Generator[Message, None, None]:
        """Yield messages indefinitely, each acked when the loop asks for the next one; see
        AsyncConnector.messages. If the loop's body raises, or the loop is left, the message in hand
        is rolled back."""
        messages = self._core.messages(batch_size, poll, stopped)
        try:
            while True:
                try:
                    message = complete(messages.__anext__())
                except StopAsyncIteration:
                    return
                yield message
        finally:
            complete(messages.aclose())

    def __iter__(self) -> Iterator[Message]:
        return self.messages()

    def __enter__(self) -> Connector:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave. The subscription and its cursor stay; unacked batches come again on the next
        connect. An ephemeral subscription ends."""
        complete(self._core.close())
