"""The client of one destination: subscribe, get, ack, rollback (Canal: CanalConnector).

`Connector` blocks, `AsyncConnector` awaits; both say the same over the same transport.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from types import TracebackType
from typing import Any

from ray_canal.client.message import Message
from ray_canal.client.transport import Transport
from ray_canal.config import secret
from ray_canal.errors import ConfigError, InstanceRestarted
from ray_canal.protocol.message import MessageHead
from ray_canal.protocol.subscription import (
    DEFAULT_CLIENT_ID,
    Policy,
    Start,
    Subscription,
    refuse_client_id,
)
from ray_canal.views.transform import Columns, Keys, Masks, Transform, Where

ALL_TABLES = r".*\..*"
_POLL_S = 10.0
"""So long a call waits for rows: each costs both sides a thousandth of a CPU second, and more."""
_POLL_STOPPABLE_S = 1.0


class _Session:
    """What both connectors remember: who we are, and which epoch our batches belong to."""

    def __init__(self, transport: Transport, client_id: int) -> None:
        refuse_client_id(client_id)
        self.transport = transport
        self.destination = transport.destination
        self.client_id = client_id
        self.epoch = 0
        self._transform: Transform | None = None

    def message(self, head: MessageHead) -> Message:
        self.epoch = head.epoch
        message = self.transport.message(head)
        message.transform = self._transform
        return message

    def use(
        self,
        where: Where | None,
        columns: Columns | None,
        mask: Masks | None,
        hash: Keys | None,
    ) -> None:
        """Take the row steps of a subscription. Raises ConfigError."""
        transform = Transform(where, columns, mask, _with_keys(hash))
        if transform and not self.transport.has_batches:
            raise ConfigError(
                "where, columns, mask and hash work on Arrow batches, which Canal's TCP protocol "
                "does not carry; connect without an address"
            )
        self._transform = transform or None


def _with_keys(hash: Keys | None) -> dict[str, Any]:
    """The keys behind `env:NAME` and `file:PATH`."""
    return {
        name: _with_keys(key) if isinstance(key, Mapping) else secret(key)
        for name, key in (hash or {}).items()
    }


def _is_held(message: Message) -> bool:
    """Whether its chunks could be fetched: those of a log that has ended since are gone."""
    try:
        message.hold()
    except InstanceRestarted:
        return False
    return True


class Connector:
    """A subscriber of one destination.

    Delivery is at least once and in order: what is not acked comes again after `rollback()`, a new
    connection, or a restart. Raises ConsumerError when the get/ack contract is broken,
    InstanceError when the instance is not there, SourceError / DecodeError when the instance has
    failed.
    """

    def __init__(self, transport: Transport, client_id: int = DEFAULT_CLIENT_ID) -> None:
        self._session = _Session(transport, client_id)

    @property
    def destination(self) -> str:
        return self._session.destination

    @property
    def client_id(self) -> int:
        return self._session.client_id

    def subscribe(
        self,
        filter: str = ALL_TABLES,
        *,
        policy: Policy | None = None,
        transactions: bool | None = None,
        start: Start | None = None,
        where: Where | None = None,
        columns: Columns | None = None,
        mask: Masks | None = None,
        hash: Keys | None = None,
    ) -> None:
        """Become a subscriber, or change what was asked for. `filter`: Canal's regex list over
        `schema.table`.

        `policy` says what happens when this subscriber is a whole log behind: the log waits for it
        ("block"), goes to disk ("spill"), or goes on without it ("detach": it then reads by a dump
        of its own until it is back). `transactions`: messages hold whole transactions, of any size.
        None: as it was, the first time as the configuration has it.

        The first time, the subscriber starts at `start`: "head" (the default), the oldest entry of
        the log; "tail", behind the newest transaction; an EntryPosition; a GTID set of what was
        consumed already; a datetime. Later it starts at its durable cursor. Batches that an earlier
        connection left unacked are rolled back. Raises ConfigError: a bad filter, policy,
        start or step; SourceError kinds: a start that the server does not have.

        `where`, `columns`, `mask` and `hash` are steps on the rows of `batches`, done here
        (docs/filters.md): a SQL condition over before and after, the columns that are shown, what
        stands in place of a column's values, and columns whose values are hashed, each with its key
        (or `env:NAME`, `file:PATH`; empty: without one). Each is for all tables or, as a dict, by
        table pattern. A step that does not fit a table is told by ConfigError when its rows come.
        """
        session = self._session
        session.use(where, columns, mask, hash)
        wishes = Subscription(policy, transactions, start)
        session.epoch = session.transport.call(
            "subscribe", session.client_id, filter, True, wishes, repeat=True
        )

    def unsubscribe(self) -> None:
        """Stop being a subscriber: the cursor is forgotten, the log no longer waits for this
        client."""
        session = self._session
        session.transport.call("unsubscribe", session.client_id, repeat=True)

    def get_without_ack(self, batch_size: int = 1000, timeout: float | None = None) -> Message:
        """The next batch; it stays outstanding until `ack` or `rollback`.

        `batch_size`: memory units (store.memunit_bytes of binlog each) under MEMSIZE, entries under
        ITEMSIZE. `timeout` in seconds has Canal's three meanings: None returns what is there now, 0
        waits until a full batch is there, > 0 waits up to so long for a full batch, then returns
        what is there. An empty message has id -1 and needs no ack. Several batches may be
        outstanding.
        """
        session = self._session
        return session.message(
            session.transport.call(
                "get_without_ack", session.client_id, batch_size, timeout, repeat=True
            )
        )

    def get(self, batch_size: int = 1000, timeout: float | None = None) -> Message:
        """The next batch, acked at once. Raises BatchesUnacked while batches are outstanding."""
        session = self._session
        return session.message(
            session.transport.call("get", session.client_id, batch_size, timeout, repeat=False)
        )

    def ack(self, batch_id: int) -> None:
        """Confirm a batch: the cursor moves behind it, durably, before this returns.

        Raises BatchNotFirst: not the smallest outstanding; BatchNotFound: not outstanding;
        InstanceRestarted: handed out before a restart (it comes again).
        """
        session = self._session
        session.transport.call("ack", session.client_id, batch_id, session.epoch, repeat=False)

    def rollback(self, batch_id: int | None = None) -> None:
        """Give back all outstanding batches, or this one and those after it; they come again."""
        session = self._session
        session.transport.call("rollback", session.client_id, batch_id, session.epoch, repeat=False)

    def list_batch_ids(self) -> list[int]:
        """Outstanding batches, smallest first."""
        session = self._session
        ids: list[int] = session.transport.call("list_batch_ids", session.client_id, repeat=True)
        return ids

    def messages(
        self,
        batch_size: int = 1000,
        poll: float | None = None,
        stopped: threading.Event | None = None,
    ) -> Iterator[Message]:
        """Messages for ever, each acked when the loop asks for the next one.

        Each has what is there, at most `batch_size` of it (see get_without_ack), and waits for
        nothing but chunks that are being decoded already and fit, up to 0.1 s. If the loop's body
        raises, or the loop is left, the message in hand is rolled back. Ends when a source of
        binlog files is at its end, or within `poll` seconds (1) after `stopped` is set.
        """
        if poll is None:
            poll = _POLL_S if stopped is None else _POLL_STOPPABLE_S
        session, done, held = self._session, None, True
        while stopped is None or not stopped.is_set():
            lends = held and session.transport.lends
            message = session.message(
                session.transport.call(
                    "get_soon", session.client_id, batch_size, poll, done, lends, repeat=True
                )
            )
            done, held = None, _is_held(message)
            if not held:
                self._give_back()  # the next one is not lent, so its reader sees what is wrong
            elif message:
                try:
                    yield message
                    done = message.id, message.head.epoch
                finally:
                    if done is None:
                        self._give_back()
            elif message.finished:
                return
        if done is not None:
            with contextlib.suppress(InstanceRestarted):  # it comes again
                self.ack(message.id)

    def _give_back(self) -> None:
        try:
            self.rollback()
        except InstanceRestarted:
            return

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
        connect."""
        self._session.transport.close()


class AsyncConnector:
    """`Connector` for asyncio: the same calls, awaited."""

    def __init__(self, transport: Transport, client_id: int = DEFAULT_CLIENT_ID) -> None:
        self._session = _Session(transport, client_id)

    async def subscribe(
        self,
        filter: str = ALL_TABLES,
        *,
        policy: Policy | None = None,
        transactions: bool | None = None,
        start: Start | None = None,
        where: Where | None = None,
        columns: Columns | None = None,
        mask: Masks | None = None,
        hash: Keys | None = None,
    ) -> None:
        """See Connector.subscribe."""
        session = self._session
        session.use(where, columns, mask, hash)
        wishes = Subscription(policy, transactions, start)
        session.epoch = await session.transport.call_async(
            "subscribe", session.client_id, filter, True, wishes, repeat=True
        )

    async def unsubscribe(self) -> None:
        """See Connector.unsubscribe."""
        session = self._session
        await session.transport.call_async("unsubscribe", session.client_id, repeat=True)

    async def get_without_ack(
        self, batch_size: int = 1000, timeout: float | None = None
    ) -> Message:
        """See Connector.get_without_ack."""
        session = self._session
        return session.message(
            await session.transport.call_async(
                "get_without_ack", session.client_id, batch_size, timeout, repeat=True
            )
        )

    async def get(self, batch_size: int = 1000, timeout: float | None = None) -> Message:
        """See Connector.get."""
        session = self._session
        return session.message(
            await session.transport.call_async(
                "get", session.client_id, batch_size, timeout, repeat=False
            )
        )

    async def ack(self, batch_id: int) -> None:
        """See Connector.ack."""
        session = self._session
        await session.transport.call_async(
            "ack", session.client_id, batch_id, session.epoch, repeat=False
        )

    async def rollback(self, batch_id: int | None = None) -> None:
        """See Connector.rollback."""
        session = self._session
        await session.transport.call_async(
            "rollback", session.client_id, batch_id, session.epoch, repeat=False
        )

    async def messages(
        self, batch_size: int = 1000, poll: float = _POLL_S
    ) -> AsyncIterator[Message]:
        """See Connector.messages."""
        session, done = self._session, None
        while True:
            message = session.message(
                await session.transport.call_async(
                    "get_soon", session.client_id, batch_size, poll, done, repeat=True
                )
            )
            done = None
            if message:
                try:
                    yield message
                    done = message.id, message.head.epoch
                finally:
                    if done is None:
                        await self.rollback()
            elif message.finished:
                return

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
        self._session.transport.close()
