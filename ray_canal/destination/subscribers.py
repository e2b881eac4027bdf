"""Subscriptions of a destination: who subscribes, leaves, comes back; which pipeline has its place.

What is durable of a subscriber is written first, memory follows. Gets and acks are in store.py, the
life of the destination is in instance.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from ray_canal.config import InstanceConfig, MetaConfig
from ray_canal.destination.attendance import TICK_S, Attendance
from ray_canal.destination.catch_up import source_start
from ray_canal.destination.failures import subscriber_replaced_error
from ray_canal.destination.full_log import FullLogWarning
from ray_canal.destination.lifecycle import Instance
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.ownership import Claim
from ray_canal.destination.ports import Runtime
from ray_canal.destination.supervisor import FAILED, RUNNING, STARTING, STOPPED
from ray_canal.errors import (
    UNUSABLE_CURSOR,
    CanalError,
    ConfigError,
    CursorNotInLog,
    InstanceNotRunning,
    NotSubscribed,
)
from ray_canal.filter import split_patterns
from ray_canal.meta.manager import MetaManager, SubscriberMeta
from ray_canal.meta.subscribers import described
from ray_canal.model.position import LogPosition
from ray_canal.model.subscription import (
    EPHEMERAL_S,
    HEAD,
    TAIL,
    TCP_HOLDER,
    Subscription,
    may_unsubscribe,
    refuse_client_id,
    refuse_wishes,
    shares,
)

logger = logging.getLogger(__name__)

_NOTED_S_MIN = 60.0
"""The time without a call is written no more often."""


class Subscriptions(Instance):
    """Calls of clients that are about their subscription, and of people about any."""

    def __init__(
        self,
        config: InstanceConfig,
        meta: MetaConfig,
        runtime: Runtime,
        claim: Claim | None = None,
    ) -> None:
        super().__init__(config, meta, runtime, claim)
        self._attendance = Attendance()
        self._beats.append(asyncio.create_task(self._watch_subscribers()))

    async def subscribe(
        self,
        client_id: int,
        filter_text: str,
        rollback: bool = True,
        wishes: Subscription | None = None,
        holder: str = "",
    ) -> int:
        """Subscribe, or change filter and wishes; `rollback` what is outstanding. Returns the
        epoch.

        From now on calls that name another `holder` are refused with SubscriberReplaced."""
        refuse_client_id(client_id)
        wishes = wishes or Subscription()
        self._refuse_filter(client_id, filter_text)  # before anything is started for it
        refuse_wishes(wishes)
        try:
            await self._admit(client_id)
        except UNUSABLE_CURSOR:
            with contextlib.suppress(CanalError):
                await self._take_hold(client_id, holder)
            raise
        async with self._turn(client_id):
            await self._ready_pipeline(wanted=True)
            known = self._subscribers.get(client_id)
            if known is not None and known.holder and not shares(holder, known.holder):
                rollback = True  # nobody else has what was handed out to it
            if known is None or known.cursor is None:
                cursor = await self._start_of(client_id, wishes)
                known = SubscriberMeta(client_id, filter_text, cursor)
            whole = wishes.transactions
            subscriber = known.seen(
                filter=filter_text,
                holder=holder,
                policy=known.policy if wishes.policy is None else wishes.policy,
                transactions=known.transactions if whole is None else whole,
                ephemeral=wishes.ephemeral,
            )
            if subscriber != self._subscribers.get(client_id):
                try:
                    await self._save(subscriber)
                except CanalError:
                    if client_id not in self._subscribers:
                        await self._forget(client_id)  # what was opened for it
                    raise
        self._arrived(client_id, holder)
        await self._join(client_id, holder, rollback=rollback)
        return self._epoch

    async def _take_hold(self, client_id: int, holder: str) -> None:
        """The cursor is of no use, but from now on it is this holder's, who may remove it."""
        async with self._turn(client_id):
            known = (await self._known()).get(client_id)
            if known is not None and known.holder != holder:
                epoch = await self._epoch_to_write()
                held = dataclasses.replace(known, holder=holder)
                await asyncio.shield(self._saved(held, epoch))

    def _arrived(self, client_id: int, holder: str) -> None:
        """A connection of Canal's protocol has come: gets of others that still wait are over. Their
        clients may be gone, at another server, which has not noticed it."""
        if holder.startswith(TCP_HOLDER):
            self._arrivals[client_id] = self._arrivals.get(client_id, 0) + 1

    def _is_left(self, client_id: int, holder: str, arrivals: int) -> bool:
        """Whether another connection has come since there were so many."""
        return holder.startswith(TCP_HOLDER) and self._arrivals.get(client_id, 0) != arrivals

    async def _admit(self, client_id: int) -> None:
        """Wait for the log. Where the cursors of others keep the destination from its start, it
        begins without them: they are no reason to refuse somebody else."""
        while True:
            failed = self._supervisor.state == FAILED
            if failed and self._hopeless and client_id not in self._hopeless:
                self._catch_ups.set_apart(self._hopeless)
                self._hopeless = {}
                await self._supervisor.set(STARTING, None)
                self._supervisor.retry_now()
            try:
                await self._ready_pipeline(wanted=True)
                return
            except UNUSABLE_CURSOR:
                if not self._hopeless or client_id in self._hopeless:
                    raise

    async def _join(self, client_id: int, holder: str = "", *, rollback: bool = False) -> None:
        """Let the subscriber in at its cursor, at the pipeline that has what lies behind it."""
        while not await self._joined(client_id, holder, rollback):
            continue
        await self._changed.wake()

    async def _joined(self, client_id: int, holder: str, rollback: bool) -> bool:
        async with self._turn_at_pipeline(client_id) as pipeline:
            self._refuse_replaced(client_id, holder)
            subscriber = self.subscriber(client_id)
            try:
                pipeline.store.subscribe(client_id, self.terms(subscriber), subscriber.position)
            except CursorNotInLog as error:
                if pipeline is not self._pipeline or self._catch_ups.get(client_id) is not None:
                    raise
                self._catch_ups.send(client_id, str(error))
                return False  # it is not there yet
            if rollback:
                pipeline.store.rollback(client_id)
            return True

    async def change_filter(self, client_id: int, filter_text: str, holder: str = "") -> None:
        """Change a subscriber's filter from the next get on; what is outstanding stays so. Raises
        NotSubscribed."""
        self._refuse_filter(client_id, filter_text)
        async with self._turn_at_pipeline(client_id):
            subscriber = self.subscriber(client_id)
            self._refuse_replaced(client_id, holder)
            await self._save(dataclasses.replace(subscriber, filter=filter_text))
        await self._join(client_id)

    def _refuse_filter(self, client_id: int, text: str) -> None:
        """Raises ConfigError: it is none, or nothing that the destination shows can pass it. Where
        that is so of a part of it, the log tells."""
        where = self._config.filter
        hidden = where.hidden_of(text)
        if not hidden:
            return
        why = (
            f"what {', '.join(hidden)} admits is left out by the destination's own filter (tables "
            f"{where.tables!r}, black_tables {where.black_tables!r}); widen that with `ray-canal "
            f"filter {self._destination} --instance`, or let filters replace it with "
            'filter.subscribers = "replace" (black_tables counts in any case)'
        )
        if len(hidden) == len(split_patterns(text)):
            raise ConfigError(f"filter {text!r} would show nothing: {why}").at(
                destination=self._destination
            )
        logger.warning("%s: client %d subscribes in part to nothing: %s", self._destination,
                       client_id, why)  # fmt: skip

    async def filter_of(self, client_id: int) -> str | None:
        """A subscriber's filter; None: there is no such subscriber."""
        with contextlib.suppress(NotSubscribed):  # it rests
            await self._ready_pipeline()
        known = self._subscribers.get(client_id)
        return None if known is None else known.filter

    async def _start_of(self, client_id: int, wishes: Subscription) -> LogPosition:
        """The first cursor of a new subscriber. Elsewhere than in the log it begins catch_up."""
        store = (await self._ready_pipeline(wanted=True)).store
        start, whole = wishes.start, wishes.transactions
        if start is None or start in (HEAD, TAIL):
            place = store.tail_position if start == TAIL else store.first_position
            whole = self._config.store.transactions if whole is None else whole
            if not whole or place == place.boundary:
                return LogPosition(self._identity, place)
            # The log lacks the beginning of a transaction. As a cursor it is looked at like others:
            # the server may have another log by now.
            begin = LogPosition(self._identity, place.boundary)
            return await self._catch_ups.begin(client_id, store.last_batch_id(client_id), begin)
        last_id = store.last_batch_id(client_id)
        return await self._catch_ups.begin(client_id, last_id, **source_start(start))

    async def unsubscribe(self, client_id: int, holder: str = "") -> bool:
        """Forget the subscriber and its cursor, also while the destination starts or has failed.
        Durably first: if that fails, it is still one. Returns whether there was one. Raises
        SubscriberReplaced: it is somebody else's now."""
        refuse_client_id(client_id)
        async with self._turn(client_id):
            known = await self._to_remove(client_id)
            if known is None:
                return False
            if not may_unsubscribe(holder, known.holder):
                raise subscriber_replaced_error(client_id).at(destination=self._destination)
            await self._remove(client_id)
        if self._hopeless.pop(client_id, None) is not None and self._supervisor.state == FAILED:
            # Whoever comes now waits for how it goes without it.
            await self._supervisor.set(STARTING, None)
        self._supervisor.retry_now()  # it may be what kept the destination from its start
        return True

    async def _remove(self, client_id: int) -> None:
        """In the subscriber's turn: forget it, durably first."""
        epoch = await self._epoch_to_write()
        await self._keep_start(epoch, client_id)
        await asyncio.shield(self._removed(client_id, epoch))
        await self._forget(client_id)
        if not self._subscribers and self._pumping and self._config.runs == "while_subscribed":
            self._deserted = True
            self._pumping.cancel()

    async def _keep_start(self, epoch: int, leaving: int) -> None:
        """If nobody else is left: note where the log begins for whoever subscribes next."""
        others = (one for i, one in self._subscribers.items() if i != leaving and not one.expired)
        if self._pipeline is None or not self._keeps_start or any(others):
            return
        began = LogPosition(self._identity, self._pipeline.store.first_position)
        await self._owned(self._records.cursors.keep(epoch, self._records.start.save, began))

    async def subscribers(self) -> list[dict[str, Any]]:
        """Each subscriber, also while the destination starts or has failed: plain values."""
        places = self._stats().get("subscribers", {})
        known = await self._known()
        return [described(known[i], places.get(str(i), {})) for i in sorted(known)]

    async def _to_remove(self, client_id: int) -> SubscriberMeta | None:
        try:
            return (await self._known()).get(client_id)
        except ConfigError:  # a record is damaged: this one, perhaps
            ids = await self._records.cursors.run(MetaManager.client_ids, self._destination)
            return SubscriberMeta(client_id, "", None) if client_id in ids else None

    async def _known(self) -> dict[int, SubscriberMeta]:
        """Who has subscribed, by client id, whether there is a log or not."""
        if self._supervisor.state == STOPPED:
            raise InstanceNotRunning("the instance was stopped, should start first").at(
                destination=self._destination
            )
        await self._open_backends()
        if self._pipeline is not None:
            return self._subscribers
        return await self._records.cursors.load()

    def _stats(self) -> dict[str, Any]:
        if self._pipeline is None:
            return {}
        stats = {**self._pipeline.store.stats(), **self._pipeline.disk_report()}
        stats["full_s"] = self._pipeline.full_s
        stats["held_by"] = self._pipeline.store.held_by() if self._pipeline.full_s else []
        stats["subscribers"].update(self._catch_ups.places())
        for client_id, place in stats["subscribers"].items():
            place["last_call_s"] = self._attendance.since_call_s(int(client_id))
            place["failed"] = place["failure"] is not None
            place["expired"] = self._subscribers[int(client_id)].expired or None
        return stats

    # --- who does not call any more -------------------------------------------------------------

    async def _watch_subscribers(self) -> None:
        """Tell who keeps a full log from going on, and give up who has not called for too long."""
        limit_s = self._config.store.subscriber_expire_hours * 3600
        pause_s = min(TICK_S, limit_s / 10) if limit_s else TICK_S
        warning = FullLogWarning(self._destination)
        while True:
            await asyncio.sleep(pause_s)
            for client_id, subscriber in self._subscribers.items():
                self._attendance.remember(client_id, subscriber.idle_s)
            serves = self._supervisor.state == RUNNING and self._pipeline is not None
            self._attendance.tick(self._subscribers, serves=serves)
            if not serves or self._pipeline is None:
                continue
            full_s, held_by = self._pipeline.full_s, self._pipeline.store.held_by()
            warning.look(full_s, held_by, ", ".join(map(self._last_call, held_by)))
            for client_id in list(self._subscribers):
                try:
                    await self._expire(client_id, limit_s)
                except CanalError as error:  # the server of the cursors: the next time, then
                    logger.warning("destination %s: %s", self._destination, error)

    def _last_call(self, client_id: int) -> str:
        since_s = self._attendance.since_call_s(client_id)
        when = "no call in this life" if since_s is None else f"last call {since_s:.0f} s ago"
        return f"{client_id}: {when}"

    async def touch(self, client_id: int, holder: str = "") -> None:
        """An ephemeral subscriber is still there. Raises NotSubscribed, SubscriberReplaced."""
        if self._pipeline is not None:
            self.subscriber(client_id)
        self._refuse_replaced(client_id, holder)
        self._attendance.came(client_id)

    async def _expire(self, client_id: int, limit_s: float) -> None:
        """Note how long a subscriber has not called; give it up after so many seconds (0: never).
        An ephemeral one ends then."""
        async with self._turn(client_id):
            known, idle_s = self._subscribers.get(client_id), self._attendance.idle_s(client_id)
            if known is not None and known.ephemeral:
                limit_s = EPHEMERAL_S
            if known is None or known.expired or not limit_s:
                return
            if known.paused and not known.ephemeral:
                return  # it makes no call because somebody said so
            if known.ephemeral and idle_s > limit_s:
                logger.warning(
                    "destination %s: the ephemeral subscriber %d has been silent for %.0f s; it is "
                    "removed", self._destination, client_id, idle_s,
                )  # fmt: skip
                await self._remove(client_id)
                return
            if idle_s <= limit_s:
                if abs(idle_s - known.idle_s) > max(limit_s / 10, _NOTED_S_MIN):
                    await self._save(dataclasses.replace(known, idle_s=int(idle_s)))
                return
            why = f"it made no call for {idle_s / 3600:.3g} h (store.subscriber_expire_hours)"
            await self._give_up(dataclasses.replace(known, idle_s=int(idle_s)), why)
        await self._changed.wake()

    async def _give_up(self, known: SubscriberMeta, why: str) -> None:
        """In the subscriber's turn: let the log not wait for it any more, durably first."""
        client_id, epoch = known.client_id, await self._epoch_to_write()
        await self._keep_start(epoch, client_id)
        expired = dataclasses.replace(known, expired=int(time.time()))
        await asyncio.shield(self._saved(expired, epoch))
        if self._pipeline is not None:
            self._catch_ups.close(client_id)
            self._pipeline.store.release_place(client_id)
            self._catch_ups.send(client_id, f"{why}; the log does not wait for it any more")
            self._pipeline.sweep()

    async def _forget(self, client_id: int) -> None:
        """Let go of what is in memory for who is no subscriber (any more)."""
        self._catch_ups.close(client_id)
        if self._pipeline is not None:
            self._pipeline.store.release_place(client_id)
            self._pipeline.store.unsubscribe(client_id)
            self._pipeline.sweep()
        await self._changed.wake()

    async def _removed(self, client_id: int, epoch: int) -> None:
        self._arrivals.pop(client_id, None)
        await self._owned(self._records.cursors.remove(epoch, client_id))
        if epoch == self._epoch:
            self._subscribers.pop(client_id, None)

    async def _pipeline_of(self, client_id: int) -> LogPipeline:
        """The pipeline that the subscriber is at, once it is there. Raises ConfigError: no id."""
        refuse_client_id(client_id)
        self._attendance.came(client_id)
        while True:
            pipeline = await self._ready_pipeline()
            catch_up = self._catch_ups.get(client_id)
            if catch_up is None:
                return pipeline
            if catch_up.pipeline is not None:
                return catch_up.pipeline
            catch_up.run()
            if catch_up.failure is not None:
                raise catch_up.failure
            await self._changed.wait()

    @contextlib.asynccontextmanager
    async def _turn_at_pipeline(self, client_id: int) -> AsyncIterator[LogPipeline]:
        """The subscriber's pipeline, and its turn (see `_turn`). Whoever waits for a pipeline, long
        perhaps, holds up nobody."""
        while True:
            pipeline = await self._pipeline_of(client_id)
            async with self._turn(client_id):
                if pipeline is self._pipeline_now(client_id):
                    yield pipeline
                    return

    def _pipeline_now(self, client_id: int) -> LogPipeline | None:
        catch_up = self._catch_ups.get(client_id)
        return self._pipeline if catch_up is None else catch_up.pipeline

    def _refuse_replaced(self, client_id: int, holder: str) -> None:
        known = self._subscribers.get(client_id)
        if known is not None and not shares(holder, known.holder):
            raise subscriber_replaced_error(client_id).at(destination=self._destination)
