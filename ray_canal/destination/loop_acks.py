"""Acks of loops over messages: each is made while the loop's next call waits for rows.

That call may be answered before the ack is durable: under load the disk takes as long as a row's
whole way here. The call after it waits for the ack, so that at most two messages come again after
a crash.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ray_canal.destination.api import AckRequest
from ray_canal.destination.wakeup import seen
from ray_canal.errors import BatchNotFound, InstanceRestarted, MetaUnavailable
from ray_canal.model.subscription import shares


@dataclass(frozen=True, slots=True)
class Acking:
    """The acks that are under way for a call; `is_late`: one of them is an earlier call's."""

    task: asyncio.Task[None]
    is_late: bool

    @property
    def has_failed(self) -> bool:
        task = self.task
        return task.done() and not task.cancelled() and task.exception() is not None


class LoopAcks:
    """Acks of each subscriber's loop that are not durable yet. For one event loop."""

    def __init__(
        self, ack: Callable[[AckRequest], Awaitable[None]], failed: Callable[[], Awaitable[None]]
    ) -> None:
        """`failed`: called when an ack was not made, for the call that waits."""
        self._ack = ack
        self._failed = failed
        self._owed: dict[int, deque[AckRequest]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def begin(self, client_id: int, holder: str, request: AckRequest | None) -> Acking | None:
        """Begin to ack, with what could not be written before. None: there is nothing to ack."""
        owed = deque(each for each in self._owed.get(client_id, ()) if each.holder == holder)
        is_late = bool(owed)
        if request is not None and request not in owed:
            owed.append(request)
        if not owed:
            self._owed.pop(client_id, None)
            return None
        self._owed[client_id] = owed
        return Acking(self._working(client_id), is_late)

    async def settle(self, client_id: int, holder: str) -> None:
        """Return when everything of this holder is acked. Raises what an ack raised. (What one that
        was replaced has not acked comes again.)"""
        owed = self._owed.get(client_id)
        if owed and shares(holder, owed[0].holder):  # all are of one
            await asyncio.shield(self._working(client_id))

    def forget(self, client_id: int, batch_id: int | None) -> None:
        """Ack nothing from this batch on (None: nothing at all): it was given back."""
        owed = self._owed.get(client_id, ())
        kept = deque(each for each in owed if batch_id is not None and each.batch_id < batch_id)
        if kept:
            self._owed[client_id] = kept
        else:
            self._owed.pop(client_id, None)

    def _working(self, client_id: int) -> asyncio.Task[None]:
        task = self._tasks.get(client_id)
        if task is None or task.done():
            task = self._tasks[client_id] = asyncio.create_task(self._work_off(client_id))
            # A write that failed is made, or raises, with the next call; a batch whose ack was
            # refused stays outstanding.
            task.add_done_callback(seen)
            task.add_done_callback(lambda done: self._forget_task(client_id, done))
        return task

    def _forget_task(self, client_id: int, task: asyncio.Task[None]) -> None:
        if self._tasks.get(client_id) is task:
            del self._tasks[client_id]

    async def _work_off(self, client_id: int) -> None:
        while owed := self._owed.get(client_id):
            request = owed[0]
            try:
                await self._ack(request)
            except MetaUnavailable:  # it stays owed
                await self._failed()
                raise
            except (InstanceRestarted, BatchNotFound):
                pass  # it comes again; it is acked
            except BaseException:
                self._done(client_id, request)
                await self._failed()
                raise
            self._done(client_id, request)

    def _done(self, client_id: int, request: AckRequest) -> None:
        owed = self._owed.get(client_id)
        if owed and owed[0] is request:
            owed.popleft()
        if not owed:
            self._owed.pop(client_id, None)
