"""What an operator does to a subscriber of a running, starting or failed destination.

The record is written first, under the owner's epoch; the log follows at once, before any other call
of that subscriber is served. Where there is no log, the next generation begins with the record.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from ray_canal.destination.failures import not_subscribed_error
from ray_canal.destination.subscribers import Subscriptions
from ray_canal.destination.supervisor import FAILED, STARTING
from ray_canal.errors import ConfigError, ConnectionLost, CursorNotInLog
from ray_canal.meta.manager import SubscriberMeta
from ray_canal.meta.operations import Argument, changed, copied, moved, refuse_action, sought
from ray_canal.meta.subscribers import described
from ray_canal.model.position import LogPosition
from ray_canal.model.subscription import HEAD, TAIL, refuse_client_id


class Operations(Subscriptions):
    """Calls of people (and of their programs) about a subscriber that is not theirs."""

    async def operate(
        self, client_id: int, action: str, argument: Argument = None
    ) -> dict[str, Any] | None:
        """Show, pause, resume, seek, expire, copy, rename, label or remove a subscriber; see
        SubscriberControl. Returns its record; None: it was removed. Durable when it returns. Raises
        NotSubscribed, ConfigError, Fenced, MetaUnavailable; of seek SourceError kinds."""
        refuse_client_id(client_id)
        refuse_action(action, argument)
        await self._record_of(client_id)  # no search of a log for nobody
        cursor = await self._sought(client_id, str(argument)) if action == "seek" else None
        new_id = int(argument or 0) if action in ("copy", "rename") else client_id
        async with contextlib.AsyncExitStack() as turns:
            for each in sorted({client_id, new_id}):  # in one order: two of them cannot cross
                await turns.enter_async_context(self._turn(each))
            one = await self._record_of(client_id)
            if action == "remove":
                await self._remove(client_id)
            elif cursor is not None:
                await self._move(moved(one, cursor))
            elif action == "expire":
                await self._give_up(one, "an operator has expired it")
            elif new_id != client_id:
                await self._move(copied(one, new_id, await self._known()))
                if action == "rename":
                    await self._remove(client_id)
            else:
                await self._change(one, changed(one, action, argument))
        if action in ("seek", "expire", "remove", "rename"):
            await self._unhinder(client_id)
        await self._changed.wake()
        return None if action == "remove" else await self._shown(new_id)

    async def _record_of(self, client_id: int) -> SubscriberMeta:
        """Raises NotSubscribed."""
        known = await self._known()
        if client_id not in known:
            raise not_subscribed_error(client_id).at(destination=self._destination)
        return known[client_id]

    async def _shown(self, client_id: int) -> dict[str, Any]:
        places = self._stats().get("subscribers", {})
        return described(await self._record_of(client_id), places.get(str(client_id), {}))

    async def _write(self, one: SubscriberMeta) -> None:
        epoch = await self._epoch_to_write()
        await asyncio.shield(self._saved(one, epoch))

    async def _change(self, one: SubscriberMeta, now: SubscriberMeta) -> None:
        if now == one:
            return
        await self._write(now)
        pipeline = self._pipeline_now(now.client_id)
        if pipeline is not None:
            with contextlib.suppress(CursorNotInLog):  # it is not in there yet
                pipeline.store.subscribe(now.client_id, self.terms(now), now.position)

    async def _sought(self, client_id: int, text: str) -> LogPosition:
        """Return a place as a cursor of the log that is read. Raises ConfigError, PositionPurged,
        PositionNotFound, SourceError kinds."""
        place, pipeline = text.strip(), self._pipeline
        if place == HEAD and pipeline is None:
            raise ConfigError(
                "the destination has no log now, so there is no head; say earliest (of the "
                "server's log), a position, a GTID set or a time"
            ).at(destination=self._destination)
        if place in (HEAD, TAIL) and pipeline is not None:
            store = pipeline.store
            found = store.tail_position if place == TAIL else store.first_position
            whole = self.terms(await self._record_of(client_id)).transactions
            return LogPosition(self._identity, found.boundary if whole else found)
        config = self._config
        if pipeline is not None:  # the server that is read now, where it may be one of several
            config = config.at(self._identity.address)
        cursor = await asyncio.to_thread(sought, config, place)
        if self._pipeline is not None and cursor.is_foreign(self._identity):
            raise ConnectionLost(
                f"{cursor.identity.address} is server {cursor.identity.server_uuid} now, the "
                f"destination reads {self._identity.server_uuid}: try again"
            ).at(destination=self._destination)
        return cursor

    async def _move(self, one: SubscriberMeta) -> None:
        """To its new cursor, in the log or by a catch-up; what it was handed is void."""
        await self._write(one)
        client_id, pipeline = one.client_id, self._pipeline
        there = self._pipeline_now(client_id)
        self._catch_ups.close(client_id)
        if pipeline is None:
            return
        store = pipeline.store
        last_id = store.last_batch_id(client_id)
        if there is not None and there is not pipeline:
            last_id = max(last_id, there.store.last_batch_id(client_id))
        store.release_place(client_id)
        store.unsubscribe(client_id)
        try:
            store.subscribe(client_id, self.terms(one), one.position, last_batch_id=last_id)
        except CursorNotInLog as error:
            self._catch_ups.send(client_id, str(error), last_batch_id=last_id)
        pipeline.sweep()

    async def _unhinder(self, client_id: int) -> None:
        """Its cursor may be what kept the destination from its start."""
        if self._hopeless.pop(client_id, None) is not None and self._supervisor.state == FAILED:
            await self._supervisor.set(STARTING, None)
        self._supervisor.retry_now()
