"""A destination's cursors as its store has them: awaited, and written under its own epoch only.

All calls go through one thread, in order. So between a write and a takeover by this same process
(a new generation takes a new epoch) there is an order, too: what was written before the new epoch
is seen by the generation that took it, what comes later under the old epoch is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from ray_canal.actors.backend_thread import BackendThread
from ray_canal.config import MetaConfig
from ray_canal.errors import Fenced, InstanceRestarted, MetaUnavailable
from ray_canal.meta.manager import MetaManager, SubscriberMeta, open_backend

P = ParamSpec("P")
T = TypeVar("T")

_FRESH_S = 1.0
"""So long, at most, a confirmation counts that came while a call was already there."""


class Ownership:
    """Of one destination. `owner`: see MetaBackend.acquire."""

    def __init__(self, destination: str, config: MetaConfig, owner: str) -> None:
        self._destination = destination
        self._config = config
        self._owner = owner
        self._thread = BackendThread(f"cursors of {destination}")
        self._opened: MetaManager | None = None
        self._acquired: int | None = 0  # read and written in the thread alone
        self._confirmed = (0, 0.0)  # an epoch, and when it was the newest one
        self._asking: tuple[int, asyncio.Task[None]] | None = None

    async def open(self) -> None:
        """Before any other call. Raises ConfigError: damaged, refused; MetaUnavailable."""
        self._opened = await self._thread.run(lambda: MetaManager(open_backend(self._config)))

    @property
    def _manager(self) -> MetaManager:
        assert self._opened is not None
        return self._opened

    async def run(
        self,
        function: Callable[Concatenate[MetaManager, P], T],
        *values: P.args,
        **named: P.kwargs,
    ) -> T:
        """Call a function of the MetaManager, e.g. `run(MetaManager.load, "orders")`."""
        return await self._thread.run(lambda: function(self._manager, *values, **named))

    async def load(self) -> dict[int, SubscriberMeta]:
        """Subscribers by client id. Raises ConfigError: a record is damaged; MetaUnavailable."""
        return await self.run(MetaManager.load, self._destination)

    async def acquire(self, after: int | None = None) -> int:
        """A new epoch; see MetaBackend.acquire. Raises Fenced, MetaUnavailable."""

        return await self.run(self._acquire, after)

    def _acquire(self, manager: MetaManager, after: int | None) -> int:
        before, self._acquired = self._acquired, None
        try:
            self._acquired = manager.acquire(self._destination, self._owner, after)
        except Fenced:
            self._acquired = before
            raise
        return self._acquired

    async def save(self, epoch: int, subscriber: SubscriberMeta) -> None:
        """Durable when it returns. Raises Fenced, MetaUnavailable; InstanceRestarted: this process
        itself has taken a newer epoch."""
        await self.write(epoch, MetaManager.save, subscriber)

    async def remove(self, epoch: int, client_id: int) -> None:
        """The same."""
        await self.write(epoch, MetaManager.remove, client_id)

    async def write(
        self,
        epoch: int,
        function: Callable[Concatenate[MetaManager, str, int, P], T],
        *values: P.args,
        **named: P.kwargs,
    ) -> T:
        """Call a function of the MetaManager that begins with destination and epoch, under this
        epoch; see `save`."""

        def write(manager: MetaManager) -> tuple[T, float]:
            self._refuse_own_successor(epoch)
            began_s = time.monotonic()
            return function(manager, self._destination, epoch, *values, **named), began_s

        result, began_s = await self.run(write)
        self._confirmed = (epoch, began_s)
        return result

    async def confirm(self, epoch: int, since_s: float) -> None:
        """Return if this epoch was the destination's newest at some moment after `since_s`
        (monotonic seconds), and within the last second. Asks the backend only if no write and no
        other call has found that out. Raises Fenced, MetaUnavailable, InstanceRestarted."""
        since_s = max(since_s, time.monotonic() - _FRESH_S)
        while self._confirmed[0] != epoch or self._confirmed[1] < since_s:
            if self._asking is None or self._asking[0] != epoch or self._asking[1].done():
                task = asyncio.create_task(self.write(epoch, MetaManager.refuse_fenced))
                task.add_done_callback(_seen)
                self._asking = epoch, task
            asking = self._asking[1]
            await asyncio.wait({asking})
            asking.result()

    def _refuse_own_successor(self, epoch: int) -> None:
        if self._acquired is None:
            raise MetaUnavailable(
                "whether a new epoch was taken is not known: the answer was lost; it is asked again"
            ).at(destination=self._destination)
        if epoch != self._acquired:
            raise InstanceRestarted(
                "the instance has begun anew; what was handed out and not acked comes again"
            ).at(destination=self._destination)

    async def close(self) -> None:
        """Release the backend, if it was opened."""
        await self._thread.close(lambda: self._opened.close() if self._opened else None)


def _seen(asking: asyncio.Task[None]) -> None:
    """Whoever asked may have gone away; a failure is then nobody's."""
    if not asking.cancelled():
        asking.exception()
