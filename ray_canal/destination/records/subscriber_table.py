"""The subscribers of a destination in memory; a change is durable before it is here."""

from __future__ import annotations

import asyncio
import dataclasses
import weakref
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from ray_canal.destination.current_config import CurrentConfig
from ray_canal.destination.epoch_guard import EpochGuard
from ray_canal.destination.failures import not_subscribed_error, subscriber_replaced_error
from ray_canal.destination.records.records import DestinationRecords
from ray_canal.destination.wakeup import to_its_end
from ray_canal.errors import CanalError
from ray_canal.log.subscriber import Terms
from ray_canal.meta.manager import MetaManager, SubscriberMeta
from ray_canal.model.position import LogPosition
from ray_canal.model.snapshot_ledger import restarted
from ray_canal.model.subscription import Policy, shares


class SubscriberTable:
    """`known`: subscribers by client id. `blocking`: those whose cursors keep the destination from
    its start, and why."""

    def __init__(
        self, config: CurrentConfig, records: DestinationRecords, guard: EpochGuard
    ) -> None:
        self._config = config
        self._cursors = records.cursors
        self._schemas = records.schemas
        self._guard = guard
        self._known: dict[int, SubscriberMeta] = {}
        self._removed_attempts = 0
        self._turns: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
        self._writes: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
        self.known: Mapping[int, SubscriberMeta] = MappingProxyType(self._known)
        self.blocking: dict[int, CanalError] = {}

    def turn(self, client_id: int) -> asyncio.Lock:
        """Return the lock of calls that change what is durable of a subscriber, one after another.
        A get does not take it: it may wait long, and changes nothing durable."""
        return self._turns.setdefault(client_id, asyncio.Lock())

    def get(self, client_id: int) -> SubscriberMeta:
        """Return a subscriber. Raises NotSubscribed."""
        if client_id not in self._known:
            raise not_subscribed_error(client_id)
        return self._known[client_id]

    async def recorded(self, client_id: int) -> SubscriberMeta:
        """Return a subscriber; while the destination begins, as its record says. Raises
        NotSubscribed, MetaUnavailable."""
        if client_id not in self._known:
            found = await self._cursors.load()
            if client_id in found:
                return found[client_id]
        return self.get(client_id)

    def is_paused(self, client_id: int) -> bool:
        """Return whether it gets nothing until it is resumed."""
        known = self._known.get(client_id)
        return known is not None and known.paused > 0

    def refuse_replaced(self, client_id: int, holder: str) -> None:
        """Raises SubscriberReplaced: the subscription is another connection's now."""
        known = self._known.get(client_id)
        if known is not None and not shares(holder, known.holder):
            raise subscriber_replaced_error(client_id).at(destination=self._config.destination)

    def attempts(self) -> int:
        """Return the highest number of a snapshot attempt so far, of any subscriber, also of those
        that were removed: the next snapshot counts on from there, so that its rows have row ids
        that no rows at this place of the log have had."""
        return max([self._removed_attempts, *(one.attempt for one in self._known.values())])

    def terms(self, subscriber: SubscriberMeta) -> Terms:
        """Return what the subscriber asked for, else what the destination is configured to give. No
        log waits for a paused one."""
        config, whole = self._config.now, subscriber.transactions
        policy = "detach" if subscriber.paused else subscriber.policy or config.store.policy
        return Terms(
            config.filter.of_subscriber(subscriber.filter),
            cast(Policy, policy),
            config.store.transactions if whole is None else whole,
        )

    async def load(self, *, keep: bool = False) -> list[SubscriberMeta]:
        """Read all subscribers from their records. `keep`: those that have none stay; return them.
        Raises ConfigError: damaged; MetaUnavailable."""
        attempts = await self._cursors.run(MetaManager.load_attempts, self._config.destination)
        self._removed_attempts = max(self._removed_attempts, attempts)
        found = await self._cursors.load()  # nothing is awaited from here on: who subscribes stays
        kept = {i: one for i, one in self._known.items() if keep and i not in found}
        self._known.clear()
        self._known.update({**found, **kept})
        return [*kept.values()]

    async def save(
        self,
        subscriber: SubscriberMeta,
        epoch: int | None = None,
        *,
        of: SubscriberMeta | None = None,
    ) -> None:
        """Write a subscriber, then remember it; both, also if the caller is cancelled meanwhile.
        `of`: the one that it was made of, None is the one that is known now; what is written of
        that one until its turn comes, stays. `epoch`: None is the present one. Raises Fenced,
        MetaUnavailable; InstanceRestarted: a new generation has begun."""
        base = self._known.get(subscriber.client_id) if of is None else of
        await to_its_end(
            self._save(subscriber, base, self._guard.epoch if epoch is None else epoch)
        )

    async def _save(
        self, subscriber: SubscriberMeta, base: SubscriberMeta | None, epoch: int
    ) -> None:
        async with self._writing(subscriber.client_id):
            known = self._known.get(subscriber.client_id)
            if base is not None and known is not None and known is not base:
                subscriber = _on_top(known, base, subscriber)
            await self._write(subscriber, epoch)

    def _writing(self, client_id: int) -> asyncio.Lock:
        """Return the lock of writes of one record: a cursor is moved in nobody's turn."""
        return self._writes.setdefault(client_id, asyncio.Lock())

    async def _write(self, subscriber: SubscriberMeta, epoch: int) -> None:
        if (mark := self._schemas.newest) is not None:
            subscriber = dataclasses.replace(subscriber, schemas=mark)
        await self._guard.run(self._cursors.save(epoch, subscriber))
        if epoch == self._guard.epoch:  # else a new generation has loaded what was just saved
            self._known[subscriber.client_id] = subscriber

    async def remove(self, client_id: int, epoch: int) -> None:
        """Remove a subscriber durably, then forget it; see `save`."""
        await to_its_end(self._remove(client_id, epoch))

    async def _remove(self, client_id: int, epoch: int) -> None:
        async with self._writing(client_id):
            await self._guard.run(self._cursors.remove(epoch, client_id))
            if epoch == self._guard.epoch:
                known = self._known.pop(client_id, None)
                attempt = 0 if known is None else known.attempt
                self._removed_attempts = max(self._removed_attempts, attempt)

    async def move_cursor(
        self, client_id: int, was: LogPosition, now: LogPosition, leaves_out: bool = False
    ) -> None:
        """Put a cursor where it is in the log that is read now, if it was elsewhere. `leaves_out`:
        changes between the two may be missing, so a snapshot that goes on begins again."""
        await to_its_end(self._move_cursor(client_id, was, now, leaves_out))

    async def _move_cursor(
        self, client_id: int, was: LogPosition, now: LogPosition, leaves_out: bool
    ) -> None:
        async with self._writing(client_id):
            subscriber = self._known.get(client_id)
            moved = now.position != was.position or was.is_foreign(now.identity)
            if moved and subscriber is not None and subscriber.cursor == was:
                snapshot = restarted(subscriber.snapshot) if leaves_out else subscriber.snapshot
                found = dataclasses.replace(subscriber, cursor=now, snapshot=snapshot)
                await self._write(found, self._guard.epoch)


def _on_top(
    known: SubscriberMeta, base: SubscriberMeta, wanted: SubscriberMeta
) -> SubscriberMeta:
    """Return the known record with what was changed from `base` to `wanted`."""
    names = [field.name for field in dataclasses.fields(wanted)]
    changes = {
        name: getattr(wanted, name)
        for name in names
        if getattr(wanted, name) != getattr(base, name)
    }
    return dataclasses.replace(known, **changes)
