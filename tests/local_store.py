"""A destination in this process: a real EventStore over really decoded binlog files, no Ray.

What the TCP server asks of a store (ray_canal/server/ports.py), with the waits, epochs and restarts
of destination/delivery.py. So the server's tests need neither a cluster nor a MySQL.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.config import StoreConfig
from ray_canal.destination.api import (
    AckRequest,
    ClientRequest,
    GetRequest,
    Method,
    Q,
    R,
    RollbackRequest,
    SubscribeRequest,
)
from ray_canal.errors import (
    InstanceNotFound,
    InstanceNotRunning,
    InstanceRestarted,
    SubscriberReplaced,
)
from ray_canal.filter import TableFilter
from ray_canal.log.event_store import EventStore
from ray_canal.log.subscriber import Terms
from ray_canal.log.transaction_buffer import TransactionBuffer
from ray_canal.model.message import EMPTY_BATCH, MessageHead, MessagePart
from ray_canal.model.position import EntryPosition
from ray_canal.model.subscription import may_unsubscribe, shares
from ray_canal.offline import decode_chunks

Decoded = Sequence[tuple[ChunkInfo, DecodedChunk]]


def decoded(files: Sequence[Path]) -> Decoded:
    return list(decode_chunks(files))


class LocalStore:
    """One destination. `release(n)` lets n more chunks into the log; `restart()` is a takeover."""

    def __init__(self, chunks: Decoded, *, released: int | None = None, **config: Any) -> None:
        self._chunks = chunks
        self._config = StoreConfig(**config)
        self._released = len(chunks) if released is None else released
        self._filters: dict[int, str] = {}
        self._cursors: dict[int, EntryPosition | None] = {}
        self.holders: dict[int, str] = {}
        self._changed = asyncio.Event()
        self.epoch = 0
        self.takes = 0
        self.running = True
        self._recover()

    def _recover(self) -> None:
        self.epoch += 1
        head = self._chunks[0][0].head
        start = EntryPosition(head.journal_name, 4)
        self.store = EventStore(self._config, start)
        self._buffer = TransactionBuffer(start, "")
        for client_id, text in self._filters.items():
            self.store.subscribe(client_id, Terms(TableFilter(text, "")), self._cursors[client_id])
        for info, chunk in self._chunks[: self._released]:
            self.store.put(self._buffer.add(info), chunk)

    async def release(self, count: int) -> None:
        for info, chunk in self._chunks[self._released : self._released + count]:
            self.store.put(self._buffer.add(info), chunk)
        self._released += count
        await self._wake()

    async def restart(self) -> None:
        self._recover()
        await self._wake()

    async def _wake(self) -> None:
        happened, self._changed = self._changed, asyncio.Event()
        happened.set()

    # --- the port -------------------------------------------------------------------------------

    async def call_async(self, method: Method[Q, R], request: Q) -> R:
        await asyncio.sleep(0)
        if not self.running:
            raise InstanceNotRunning("the instance was stopped")
        found: R = await getattr(self, "_" + method.__name__)(request)
        return found

    async def _subscribe(self, request: SubscribeRequest) -> int:
        client_id, text, holder = request.client_id, request.filter, request.holder
        rollback = request.rollback
        self.holders[client_id] = holder
        self._filters[client_id] = text
        self._cursors.setdefault(client_id, None)
        self.store.subscribe(client_id, Terms(TableFilter(text, "")), self._cursors[client_id])
        if rollback:
            self.store.rollback(client_id)
        await self._wake()
        return self.epoch

    async def _filter_of(self, request: ClientRequest) -> str | None:
        return self._filters.get(request.client_id)

    async def _unsubscribe(self, request: ClientRequest) -> None:
        client_id, holder = request.client_id, request.holder
        if not may_unsubscribe(holder, self.holders.pop(client_id, "")):
            raise SubscriberReplaced("another connection has subscribed")
        self.store.unsubscribe(client_id)
        self._filters.pop(client_id, None)
        self._cursors.pop(client_id, None)

    async def _ack(self, request: AckRequest) -> None:
        client_id, batch_id = request.client_id, request.batch_id
        epoch, holder = request.epoch, request.holder
        self._refuse_replaced(client_id, holder)
        self._refuse_void(epoch)
        cursor = self.store.cursor_after(client_id, batch_id)
        self.store.ack(client_id, batch_id)
        self._cursors[client_id] = cursor

    async def _rollback_all(self, request: RollbackRequest) -> None:
        await self._rollback(request)

    async def _rollback(self, request: RollbackRequest) -> None:
        client_id, batch_id = request.client_id, request.batch_id
        epoch, holder = request.epoch, request.holder
        self._refuse_replaced(client_id, holder)
        if batch_id is not None:
            self._refuse_void(epoch)
        self.store.rollback(client_id, batch_id)
        await self._wake()

    def _refuse_void(self, epoch: int | None) -> None:
        if epoch is not None and epoch != self.epoch:
            raise InstanceRestarted("handed out before the instance restarted")

    def _refuse_replaced(self, client_id: int, holder: str) -> None:
        if not shares(holder, self.holders.get(client_id, "")):
            raise SubscriberReplaced("another client has subscribed")

    async def take(self, request: GetRequest) -> MessageHead:
        client_id, holder = request.client_id, request.holder
        batch_size, timeout = request.batch_size, request.timeout
        self._refuse_replaced(client_id, holder)
        if not self.running:
            raise InstanceNotRunning("the instance was stopped")
        self.takes += 1
        if timeout is not None:
            deadline = time.monotonic() + (timeout or 1e9)
            while not self.store.ready(client_id, batch_size):
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                try:
                    await asyncio.wait_for(self._changed.wait(), left_s)
                except asyncio.TimeoutError:
                    break
        batch = self.store.get(client_id, batch_size)
        if batch is None:
            return MessageHead(EMPTY_BATCH, self.epoch)
        parts = tuple(
            MessagePart(
                p.payload, p.first, p.last, p.mask, p.gtid_set, open=p.open, tables=p.tables
            )
            for p in batch.parts
        )
        return MessageHead(batch.id, self.epoch, parts, batch.entry_count, batch.row_count)

    async def load_async(self, payloads: list[Any]) -> list[DecodedChunk]:
        return payloads

    def outstanding(self, client_id: int) -> list[int]:
        return self.store.batch_ids(client_id)


def opener(stores: dict[str, LocalStore]) -> Any:
    """The server's way to a store by name."""

    async def open_store(destination: str) -> LocalStore:
        if destination not in stores:
            raise InstanceNotFound(f"no destination {destination!r} is running")
        return stores[destination]

    return open_store
