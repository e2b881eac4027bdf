"""A destination's cursors as its store has them: awaited, and written under its own epoch only.

All calls go through one thread, in order. So between a write and a takeover by this same process
(a new generation takes a new epoch) there is an order, too: what was written before the new epoch
is seen by the generation that took it, what comes later under the old epoch is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from ray_canal.config import MetaConfig
from ray_canal.destination.backend_thread import BackendThread
from ray_canal.destination.wakeup import seen
from ray_canal.errors import (
    Fenced,
    InstanceNotRunning,
    InstanceRestarted,
    MetaDamaged,
    MetaUnavailable,
)
from ray_canal.meta.manager import MetaManager, SubscriberMeta
from ray_canal.meta.open import open_backend

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)

_TAKEOVER_TRIES = 10
_FRESH_S = 1.0
"""So long, at most, a confirmation counts that came while a call was already there."""


class Claim:
    """The things that an owner must not forget while it restarts: its name, which nobody else has,
    and the newest epoch that it knows of. This one is in memory; see actors/placement_table.py for
    one that lasts."""

    def __init__(self, owner: str = "") -> None:
        self.owner = owner or uuid.uuid4().hex
        self._epoch: int | None = None

    def epoch(self) -> int | None:
        """Return the epoch that this owner has taken; None: it has not taken the destination
        yet."""
        return self._epoch

    def note(self, epoch: int) -> None:
        """Raises InstanceNotRunning: it cannot be kept now."""
        self._epoch = epoch


class Ownership:
    """The ownership of one destination. Whoever takes it for the first time takes it from whoever
    has it; after that, a restart included, only if nobody else has taken it since."""

    def __init__(self, destination: str, config: MetaConfig, claim: Claim) -> None:
        self._destination = destination
        self._config = config
        self._claim = claim
        self._thread = BackendThread(f"cursors of {destination}")
        self._opened: MetaManager | None = None
        self.damaged = self._away = False
        self._acquired: int | None = 0  # read and written in the thread alone
        self._reopened = False
        self._confirmed = (0, 0.0)  # an epoch, and when it was the newest one
        self._asking: tuple[int, asyncio.Task[None]] | None = None

    async def open(self) -> None:
        """Read what is kept; to be called before any other call, and again when it is `damaged`: a
        file that somebody has put back is used then. Raises ConfigError: damaged, removed, refused;
        MetaUnavailable."""
        await self._thread.run(self._open)
        self.damaged = False

    def _open(self) -> None:
        before = self._opened
        self._opened = MetaManager(open_backend(self._config, must_exist=before is not None))
        if before is not None:
            self._reopened = True
            before.close()

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
        try:
            found = await self._thread.run(lambda: function(self._manager, *values, **named))
        except MetaDamaged:
            self.damaged = True
            raise
        except MetaUnavailable as error:
            self._tell(str(error))
            raise
        self._tell("")
        return found

    def _tell(self, why: str) -> None:
        """Log once that cursors are away (`why`), and that they are back (empty): reading
        goes on meanwhile, so no state shows it."""
        name, was_away, self._away = self._destination, self._away, bool(why)
        if why and not was_away:
            logger.warning(
                "destination %s: its cursors can be neither read nor written, and acks wait: %s",
                name, why,
            )  # fmt: skip
        elif was_away and not why:
            logger.warning("destination %s: its cursors are back", name)

    async def load(self) -> dict[int, SubscriberMeta]:
        """Subscribers by client id. Raises ConfigError: a record is damaged; MetaUnavailable."""
        return await self.run(MetaManager.load, self._destination)

    async def acquire(self) -> int:
        """A new epoch. Raises Fenced: another owner has taken the destination; MetaUnavailable."""
        return await self.run(self._acquire)

    async def has_forgotten(self, epoch: int) -> bool:
        """Return whether what is kept is older than this owner's epoch, or may be, as another file
        was put in the place of the one that was written. Raises MetaUnavailable."""

        def look(manager: MetaManager) -> bool:
            return self._reopened or manager.epoch(self._destination) < epoch

        return await self.run(look)

    def _acquire(self, manager: MetaManager) -> int:
        if self._acquired == 0 and self._config.backend != "memory":
            self._refuse_emptied(manager)
        before, self._acquired = self._acquired, None
        try:
            epoch = self._taken(manager)
        except Fenced:
            self._acquired = before
            raise
        self._acquired, self._reopened = epoch, False
        with contextlib.suppress(InstanceNotRunning):  # the backend knows whose epoch it is
            self._claim.note(epoch)
        return epoch

    def _refuse_emptied(self, manager: MetaManager) -> None:
        """Raises MetaDamaged: an earlier process of this owner has written, and nothing of it is
        there. A log that begins at source.start would leave out what came meanwhile."""
        known = self._claim.epoch()
        if known is None or manager.epoch(self._destination) >= known:
            return
        if not manager.client_ids(self._destination):
            raise MetaDamaged(
                f"{manager.where}: nothing of this destination is there any more, though its epoch "
                f"{known} was: it was emptied, or lost its last writes. Put back a copy; without "
                "one `ray-canal stop` and `start` it: subscribers then start where the "
                "configuration says"
            ).at(destination=self._destination)

    def _taken(self, manager: MetaManager) -> int:
        known, owner = self._claim.epoch(), self._claim.owner
        if known is not None:
            return manager.acquire(self._destination, owner, known)
        for _ in range(_TAKEOVER_TRIES):
            # What is replaced is noted first: whoever dies here knows after its restart what it
            # was about to replace, and that it may replace nothing newer.
            known = manager.epoch(self._destination)
            self._claim.note(known)
            with contextlib.suppress(Fenced):  # its owner took a new epoch just now
                return manager.acquire(self._destination, owner, known)
        return manager.acquire(self._destination, owner)

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

    async def keep(
        self,
        epoch: int,
        function: Callable[Concatenate[MetaManager, int, P], T],
        *values: P.args,
        **named: P.kwargs,
    ) -> T:
        """Call a function that begins with the MetaManager and this epoch, and may write under it;
        see `save`."""

        def keep(manager: MetaManager) -> T:
            self._refuse_own_successor(epoch)
            return function(manager, epoch, *values, **named)

        return await self.run(keep)

    async def confirm(self, epoch: int, since_s: float) -> None:
        """Return if this epoch was the destination's newest at some moment after `since_s`
        (monotonic seconds), and within the last second. Asks the backend only if no write and no
        other call has found that out, and during its calls where it can be asked at once. Raises
        Fenced, MetaUnavailable, InstanceRestarted."""
        since_s = max(since_s, time.monotonic() - _FRESH_S)
        if self._confirmed[0] != epoch or self._confirmed[1] < since_s:
            self._glance(epoch)
        while self._confirmed[0] != epoch or self._confirmed[1] < since_s:
            if self._asking is None or self._asking[0] != epoch or self._asking[1].done():
                task = asyncio.create_task(self.write(epoch, MetaManager.refuse_fenced))
                task.add_done_callback(seen)
                self._asking = epoch, task
            asking = self._asking[1]
            await asyncio.wait({asking})
            asking.result()

    def _glance(self, epoch: int) -> None:
        """Confirm the epoch if that can be told at once: calls that are before it in the thread
        may write, and wait for the disk."""
        opened, began_s = self._opened, time.monotonic()
        if opened is not None and opened.is_newest(self._destination, epoch):
            self._confirmed = (epoch, began_s)

    def _refuse_own_successor(self, epoch: int) -> None:
        if self._acquired is None:
            raise MetaUnavailable(
                "whether a new epoch was taken is not known: the answer was lost; it is asked again"
            ).at(destination=self._destination)
        if epoch != self._acquired:
            raise InstanceRestarted(
                "the destination has started again; what was handed out and not acked comes again"
            ).at(destination=self._destination)

    async def close(self) -> None:
        """Release the backend, if it was opened."""
        await self._thread.close(lambda: self._opened.close() if self._opened else None)
