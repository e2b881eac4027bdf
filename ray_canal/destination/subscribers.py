"""Subscriptions of a destination: who subscribes, changes a filter, leaves, comes back.

What is durable of a subscriber is written first, memory follows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging

from ray_canal.config import InstanceConfig
from ray_canal.destination.api import ClientRequest, SubscribeRequest
from ray_canal.destination.arrivals import Arrivals
from ray_canal.destination.attendance import Attendance
from ray_canal.destination.catch_up import source_start
from ray_canal.destination.catch_ups import CatchUps
from ray_canal.destination.departures import Departures
from ray_canal.destination.failures import subscriber_replaced_error, unknown_subscriber_error
from ray_canal.destination.lifecycle import Lifecycle
from ray_canal.destination.pipeline_lookup import PipelineLookup
from ray_canal.destination.snapshot.snapshot_home import new_ledger
from ray_canal.destination.state import DestinationState
from ray_canal.destination.status.log_stats import LogStats
from ray_canal.destination.supervisor import FAILED
from ray_canal.destination.wakeup import to_its_end
from ray_canal.errors import (
    UNUSABLE_CURSOR,
    CanalError,
    ConfigError,
    CursorNotInLog,
    NotSubscribed,
)
from ray_canal.filter import split_patterns
from ray_canal.logs import tell
from ray_canal.meta.manager import MetaManager, SubscriberMeta
from ray_canal.meta.subscribers import subscriber_report
from ray_canal.model.position import EntryPosition, LogPosition
from ray_canal.model.reports import SubscriberReport
from ray_canal.model.subscription import (
    HEAD,
    TAIL,
    Subscription,
    may_unsubscribe,
    refuse_client_id,
    refuse_wishes,
    shares,
)

logger = logging.getLogger(__name__)


class SubscriberService:
    """Calls of clients about their own subscription, and lists of all."""

    def __init__(
        self,
        state: DestinationState,
        *,
        lifecycle: Lifecycle,
        catch_ups: CatchUps,
        lookup: PipelineLookup,
        departures: Departures,
        arrivals: Arrivals,
        attendance: Attendance,
        stats: LogStats,
    ) -> None:
        self._state = state
        self._table = state.subscribers
        self._lifecycle = lifecycle
        self._catch_ups = catch_ups
        self._lookup = lookup
        self._departures = departures
        self._arrivals = arrivals
        self._attendance = attendance
        self._stats = stats

    async def subscribe(self, request: SubscribeRequest) -> int:
        """Subscribe, or change filter and wishes. Return the epoch.

        From now on calls that name another `holder` are refused with SubscriberReplaced."""
        client_id, holder, rollback = request.client_id, request.holder, request.rollback
        refuse_client_id(client_id)
        refuse_filter(self._state.config.now, client_id, request.filter)  # before anything starts
        refuse_wishes(request.wishes)
        try:
            await self._admit(client_id)
        except UNUSABLE_CURSOR:
            with contextlib.suppress(CanalError):
                await self._assign(client_id, holder)
            raise
        async with self._table.turn(client_id):
            await self._lifecycle.ready_pipeline(wanted=True)
            known = self._table.known.get(client_id)
            if known is not None and known.holder and not shares(holder, known.holder):
                rollback = True  # nobody else has what was handed out to it
            await self._save(request, known)
        self._arrivals.note(client_id, holder)
        await self._join(client_id, holder, rollback=rollback)
        return self._state.guard.epoch

    async def _save(self, request: SubscribeRequest, known: SubscriberMeta | None) -> None:
        """Write what the subscriber asks for, with its first cursor if it has none."""
        client_id, wishes = request.client_id, request.wishes
        if known is None or known.cursor is None:
            ledger = self._first_snapshot(wishes)
            if ledger and wishes.start is None:
                wishes = dataclasses.replace(wishes, start=TAIL)
            cursor = await self._first_cursor(client_id, wishes)
            known = SubscriberMeta(client_id, request.filter, cursor, snapshot=ledger)
        whole = wishes.transactions
        subscriber = known.seen(
            filter=request.filter,
            holder=request.holder,
            policy=known.policy if wishes.policy is None else wishes.policy,
            transactions=known.transactions if whole is None else whole,
            ephemeral=wishes.ephemeral,
        )
        if subscriber == self._table.known.get(client_id):
            return
        is_new = client_id not in self._table.known
        try:
            await self._table.save(subscriber)
        except CanalError:
            if is_new:
                await self._departures.forget(client_id)  # what was opened for it
            raise
        if is_new and not wishes.ephemeral:
            tell(logger, "subscriber", "client %d: subscribe", client_id,
                 client_id=client_id, action="subscribe")  # fmt: skip

    def _first_snapshot(self, wishes: Subscription) -> str:
        """Return the record of a new subscriber's snapshot; empty: it gets none. An
        ephemeral one gets one if it says so."""
        source = self._state.config.now.source
        by_default = "never" if wishes.ephemeral else source.snapshot
        if (wishes.snapshot or by_default) != "initial":
            return ""
        if not source.address:
            raise ConfigError(
                "the source is binlog files: a snapshot is read from a server; subscribe with "
                'snapshot="never"'
            ).at(destination=self._state.destination)
        mode = self._state.config.now.snapshot.mode
        return new_ledger(reason="initial", mode=mode, attempts=self._table.attempts()).to_json()

    async def _assign(self, client_id: int, holder: str) -> None:
        """Make this the holder of a subscriber whose cursor is of no use; it may remove that."""
        async with self._table.turn(client_id):
            known = (await self.records()).get(client_id)
            if known is not None and known.holder != holder:
                epoch = await self._state.guard.for_writing()
                held = dataclasses.replace(known, holder=holder)
                await self._table.save(held, epoch, of=known)

    async def _admit(self, client_id: int) -> None:
        """Wait for the log. Where the cursors of others keep the destination from its start, it
        begins without them: they are no reason to refuse somebody else."""
        table = self._table
        while True:
            failed = self._state.supervisor.state == FAILED
            if failed and table.blocking and client_id not in table.blocking:
                await self._lifecycle.start_without_blocking()
            try:
                await self._lifecycle.ready_pipeline(wanted=True)
                return
            except UNUSABLE_CURSOR:
                if not table.blocking or client_id in table.blocking:
                    raise

    async def _join(self, client_id: int, holder: str = "", *, rollback: bool = False) -> None:
        """Let the subscriber in at its cursor, at the pipeline that has what comes after it."""
        while not await self._try_to_join(client_id, holder, rollback):
            continue
        await self._state.changed.wake()

    async def _try_to_join(self, client_id: int, holder: str, rollback: bool) -> bool:
        async with self._lookup.turn(client_id) as pipeline:
            self._table.refuse_replaced(client_id, holder)
            subscriber = self._table.get(client_id)
            terms = self._table.terms(subscriber)
            try:
                pipeline.store.subscribe(client_id, terms, subscriber.position)
            except CursorNotInLog as error:
                main = self._state.log.pipeline
                if pipeline is not main or self._catch_ups.get(client_id) is not None:
                    raise
                self._catch_ups.send(client_id, str(error))
                return False  # it is not there yet
            if rollback:
                pipeline.store.rollback(client_id)
            return True

    async def _first_cursor(self, client_id: int, wishes: Subscription) -> LogPosition:
        """Return the first cursor of a new subscriber. Elsewhere than in the log, that begins a
        catch-up."""
        store = (await self._lifecycle.ready_pipeline(wanted=True)).store
        start, whole = wishes.start, wishes.transactions
        if start is None or start in (HEAD, TAIL):
            place = store.tail_position if start == TAIL else store.first_position
            whole = self._state.config.now.store.transactions if whole is None else whole
            identity = self._state.log.identity
            if not whole or place == place.boundary:
                return LogPosition(identity, place)
            # The log lacks the beginning of a transaction. As a cursor it is looked at like others:
            # the server may have another log by now.
            begin = LogPosition(identity, place.boundary)
            return await self._catch_ups.begin(client_id, store.last_batch_id(client_id), begin)
        created_s = start.created_s if isinstance(start, EntryPosition) else 0
        return await self._catch_ups.begin(
            client_id, store.last_batch_id(client_id), created_s=created_s, **source_start(start)
        )

    async def change_filter(self, client_id: int, filter_text: str) -> None:
        """Change a subscriber's filter from the next get on; what is outstanding stays so. Raises
        NotSubscribed."""
        refuse_filter(self._state.config.now, client_id, filter_text)
        async with self._lookup.turn(client_id):
            subscriber = self._table.get(client_id)
            self._table.refuse_replaced(client_id, "")
            await self._table.save(dataclasses.replace(subscriber, filter=filter_text))
        await self._join(client_id)

    async def filter_of(self, client_id: int) -> str | None:
        """Return a subscriber's filter; None: there is no such subscriber."""
        with contextlib.suppress(NotSubscribed):  # the destination is idle
            await self._lifecycle.ready_pipeline()
        known = self._table.known.get(client_id)
        return None if known is None else known.filter

    async def unsubscribe(self, request: ClientRequest) -> bool:
        """Forget the subscriber and its cursor, also while the destination starts or has failed.
        Durably first: if that fails, it is still one. Return whether there was one. Raises
        SubscriberReplaced: it is somebody else's now."""
        # Made whole, also if its caller goes: a log would wait for a subscriber that nobody has.
        return await to_its_end(self._unsubscribe(request))

    async def _unsubscribe(self, request: ClientRequest) -> bool:
        client_id = request.client_id
        refuse_client_id(client_id)
        async with self._table.turn(client_id):
            known = await self._to_remove(client_id)
            if known is None:
                return False
            if not may_unsubscribe(request.holder, known.holder):
                error = subscriber_replaced_error(client_id)
                raise error.at(destination=self._state.destination)
            await self._departures.remove(client_id)
        if not known.ephemeral:
            tell(logger, "subscriber", "client %d: unsubscribe", client_id,
                 client_id=client_id, action="unsubscribe")  # fmt: skip
        await self._lifecycle.unblock(client_id)
        return True

    async def _to_remove(self, client_id: int) -> SubscriberMeta | None:
        try:
            return (await self.records()).get(client_id)
        except ConfigError:  # a record is damaged: this one, perhaps
            cursors = self._state.records.cursors
            ids = await cursors.run(MetaManager.client_ids, self._state.destination)
            return SubscriberMeta(client_id, "", None) if client_id in ids else None

    async def touch(self, request: ClientRequest) -> None:
        """Note that an ephemeral subscriber is still there. Raises NotSubscribed,
        SubscriberReplaced."""
        if self._state.log.pipeline is not None:
            self._table.get(request.client_id)
        self._table.refuse_replaced(request.client_id, request.holder)
        self._attendance.came(request.client_id)

    async def records(self) -> dict[int, SubscriberMeta]:
        """Return the subscribers by client id, whether there is a log or not."""
        self._lifecycle.refuse_stopped()
        await self._lifecycle.open_records()
        if self._state.log.pipeline is not None:
            return dict(self._table.known)
        return await self._state.records.cursors.load()

    async def record(self, client_id: int) -> SubscriberMeta:
        """Return one of them, for its operator. Raises NotSubscribed."""
        known, destination = await self.records(), self._state.destination
        if client_id not in known:
            raise unknown_subscriber_error(client_id, destination).at(destination=destination)
        return known[client_id]

    async def list_all(self) -> list[SubscriberReport]:
        """Return each subscriber, also while the destination starts or has failed: plain values."""
        places = self._stats.report().get("subscribers", {})
        known = await self.records()
        return [subscriber_report(known[i], places.get(str(i), {})) for i in sorted(known)]


def refuse_filter(config: InstanceConfig, client_id: int, text: str) -> None:
    """Raises ConfigError: the text is no filter, or nothing that the destination shows can pass it.
    Where that is so of a part of it, the program's log tells."""
    if not isinstance(text, str):  # a program may give a list
        raise ConfigError(f"filter {text!r} is no text: give patterns with commas between them")
    where, destination = config.filter, config.destination
    hidden = where.hidden_of(text)
    if not hidden:
        return
    why = (
        f"what {', '.join(hidden)} admits is left out by the destination's own filter (tables "
        f"{where.tables!r}, black_tables {where.black_tables!r}); widen that with `ray-canal "
        f"filter {destination} --instance`, or let filters replace it with "
        'filter.subscribers = "replace" (black_tables counts in any case)'
    )
    if len(hidden) == len(split_patterns(text)):
        raise ConfigError(f"filter {text!r} would show nothing: {why}").at(destination=destination)
    logger.warning(
        "%s: client %d subscribes in part to nothing: %s", destination, client_id, why
    )
