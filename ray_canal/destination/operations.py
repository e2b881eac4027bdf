"""Operations on a subscriber of a running, starting or failed destination.

The record is written first, under the owner's epoch; the log follows at once, before any other call
of that subscriber is served. Where there is no log, the next generation begins with the record.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from ray_canal.destination.catch_ups import CatchUps
from ray_canal.destination.departures import Departures
from ray_canal.destination.lifecycle import Lifecycle
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.pipeline_lookup import PipelineLookup
from ray_canal.destination.state import DestinationState
from ray_canal.destination.status.log_stats import LogStats
from ray_canal.destination.subscribers import SubscriberService
from ray_canal.errors import ConfigError, ConnectionLost, CursorNotInLog
from ray_canal.logs import tell
from ray_canal.meta.manager import SubscriberMeta
from ray_canal.meta.operations import Argument, changed, copied, moved, refuse_action, sought
from ray_canal.meta.subscribers import subscriber_report
from ray_canal.model.position import LogPosition
from ray_canal.model.reports import SubscriberReport
from ray_canal.model.subscription import HEAD, TAIL, refuse_client_id

logger = logging.getLogger(__name__)


class SubscriberOperations:
    """Calls of people (and of their programs) about a subscriber that is not theirs."""

    def __init__(
        self,
        state: DestinationState,
        *,
        service: SubscriberService,
        lifecycle: Lifecycle,
        catch_ups: CatchUps,
        lookup: PipelineLookup,
        departures: Departures,
        stats: LogStats,
    ) -> None:
        self._state = state
        self._service = service
        self._lifecycle = lifecycle
        self._catch_ups = catch_ups
        self._lookup = lookup
        self._departures = departures
        self._stats = stats

    async def operate(
        self, client_id: int, action: str, argument: Argument = None
    ) -> SubscriberReport | None:
        """Show, pause, resume, seek, expire, copy, rename, label or remove a subscriber; see
        SubscriberControl. Return its record; None: it was removed. Durable when it returns. Raises
        NotSubscribed, ConfigError, Fenced, MetaUnavailable; of seek SourceError kinds."""
        refuse_client_id(client_id)
        refuse_action(action, argument)
        await self._service.record(client_id)  # no search of a log for nobody
        cursor = await self._sought(client_id, str(argument)) if action == "seek" else None
        new_id = int(argument or 0) if action in ("copy", "rename") else client_id
        async with contextlib.AsyncExitStack() as turns:
            for each in sorted({client_id, new_id}):  # in one order: two of them cannot cross
                await turns.enter_async_context(self._state.subscribers.turn(each))
            log = self._state.log.pipeline
            one = await self._service.record(client_id)
            if action == "remove":
                await self._departures.remove(client_id)
            elif cursor is not None:
                self._refuse_foreign(cursor)  # its turn may have come late
                await self.move(moved(one, cursor), log)
            elif action == "expire":
                await self._departures.expire(one, "an operator has expired it")
            elif action in ("copy", "rename"):
                made = copied(one, action, new_id, await self._service.records())
                await self.move(made, None if self._catch_ups.get(client_id) else log)
                if action == "rename":
                    await self._departures.remove(client_id)
            else:
                await self._change(client_id, action, argument)
        tell(logger, "subscriber", "client %d: %s", client_id, action,
             client_id=client_id, action=action, argument=argument)  # fmt: skip
        if action in ("seek", "expire", "remove", "rename"):
            await self._lifecycle.unblock(client_id)
        await self._state.changed.wake()
        return None if action == "remove" else await self._shown(new_id)

    async def _shown(self, client_id: int) -> SubscriberReport:
        place = self._stats.place(client_id)
        return subscriber_report(await self._service.record(client_id), place)

    async def _write(self, one: SubscriberMeta) -> None:
        epoch = await self._state.guard.for_writing()
        await self._state.subscribers.save(one, epoch)

    async def _change(self, client_id: int, action: str, argument: Argument) -> None:
        epoch = await self._state.guard.for_writing()
        one = await self._service.record(client_id)
        now = changed(one, action, argument)
        if now == one:
            return
        await self._state.subscribers.save(now, epoch)
        pipeline = self._lookup.now(client_id)
        if pipeline is not None:
            now = self._state.subscribers.known.get(client_id, now)
            terms = self._state.subscribers.terms(now)
            with contextlib.suppress(CursorNotInLog):  # it is not in there yet
                pipeline.store.subscribe(client_id, terms, now.position)

    async def _sought(self, client_id: int, text: str) -> LogPosition:
        """Return a place as a cursor of the log that is read. Raises ConfigError, PositionPurged,
        PositionNotFound, SourceError kinds."""
        log, destination = self._state.log, self._state.destination
        place, pipeline = text.strip(), log.pipeline
        if place == HEAD and pipeline is None:
            raise ConfigError(
                "the destination has no log now, so there is no head; say earliest (of the "
                "server's log), a position, a GTID set or a time"
            ).at(destination=destination)
        if place in (HEAD, TAIL) and pipeline is not None:
            store = pipeline.store
            found = store.tail_position if place == TAIL else store.first_position
            one = await self._service.record(client_id)
            whole = self._state.subscribers.terms(one).transactions
            return LogPosition(log.identity, found.boundary if whole else found)
        config = self._state.config.now
        if pipeline is not None:  # the server that is read now, where it may be one of several
            config = config.at(log.identity.address)
        cursor = await asyncio.to_thread(sought, config, place)
        self._refuse_foreign(cursor)
        return cursor

    def _refuse_foreign(self, cursor: LogPosition) -> None:
        """Raise ConnectionLost for a place in another server's log than the one that is read."""
        if self._is_foreign(cursor) and not self._lifecycle.is_refused:
            log = self._state.log
            raise ConnectionLost(
                f"{cursor.identity.address} is server {cursor.identity.server_uuid}, the "
                f"destination reads {log.identity.server_uuid} now: try again"
            ).at(destination=self._state.destination)

    def _is_foreign(self, cursor: LogPosition) -> bool:
        log = self._state.log
        return log.pipeline is not None and cursor.is_foreign(log.identity)

    async def move(self, one: SubscriberMeta, log: LogPipeline | None) -> None:
        """Move a subscriber to its new cursor, in the log or by a catch-up; what it was handed is
        void. `log`: the one that its cursor is known to be of. While it is written, the log of
        another server may begin."""
        await self._write(one)
        if one.cursor is not None and self._is_foreign(one.cursor) and self._lifecycle.is_refused:
            await self._lifecycle.end_log()
        client_id, pipeline = one.client_id, self._state.log.pipeline
        self._catch_ups.close(client_id)
        if pipeline is None:
            return
        store = pipeline.store
        store.release_place(client_id)
        store.unsubscribe(client_id)
        if pipeline is not log:
            self._catch_ups.send(client_id, "nobody has looked for its cursor in this log")
        else:
            try:
                store.subscribe(client_id, self._state.subscribers.terms(one), one.position)
            except CursorNotInLog as error:
                self._catch_ups.send(client_id, str(error))
        pipeline.sweep()
