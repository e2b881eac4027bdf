"""The subscribers of a destination that a catch-up serves: how they get there and come back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ray_canal.destination.catch_up import CatchUp, own_config
from ray_canal.destination.failures import error_text
from ray_canal.destination.log_pipeline import BeforeAppendTo, LogPipeline, nothing_noted
from ray_canal.destination.snapshot.rows_log import RowsLog
from ray_canal.destination.state import DestinationState
from ray_canal.errors import (
    UNUSABLE_CURSOR,
    CanalError,
    ConfigError,
    ConnectionLost,
    NotSubscribed,
    PositionNotFound,
)
from ray_canal.model.message import Payload
from ray_canal.model.position import EntryPosition, LogPosition
from ray_canal.model.reports import PlaceReport

logger = logging.getLogger(__name__)


class CatchUps:
    """The catch-ups of one destination, by client id."""

    def __init__(self, state: DestinationState) -> None:
        self._state = state
        self._catch_ups: dict[int, CatchUp] = {}
        self._unserved: dict[int, CanalError] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.note_replaced: BeforeAppendTo = nothing_noted

    @property
    def _main(self) -> LogPipeline | None:
        return self._state.log.pipeline

    def get(self, client_id: int) -> CatchUp | None:
        """Return a subscriber's catch-up; None: it has none."""
        return self._catch_ups.get(client_id)

    def detach(self, client_ids: list[int]) -> None:
        """Let the log go on without these subscribers, also those that were about to come back."""
        assert self._main is not None
        store = self._main.store
        for client_id in client_ids:
            if client_id in self._catch_ups:
                store.release_place(client_id)
                continue
            self.send(client_id, "it is a whole log behind")

    def send(self, client_id: int, why: str, failure: CanalError | None = None) -> None:
        """Serve a subscriber by a catch-up from its cursor on, once it asks. `failure`: why that
        cannot be yet."""
        assert self._main is not None
        name = self._state.destination
        how = "catches up by a stream of its own" if failure is None else "cannot be served"
        logger.warning("destination %s: subscriber %d %s: %s", name, client_id, how, why)
        catch_up = self.new(client_id, self._main.store.last_batch_id(client_id))
        self._unserved.pop(client_id, None)
        if failure is not None:
            catch_up.fail(failure)
        self._catch_ups[client_id] = catch_up
        self._main.store.send_away(client_id)

    @property
    def unserved(self) -> dict[int, CanalError]:
        """Subscribers whose cursors cannot be served, as far as is known, and why."""
        now = {
            client_id: catch_up.failure
            for client_id, catch_up in self._catch_ups.items()
            if isinstance(catch_up.failure, UNUSABLE_CURSOR)
        }
        return {**self._unserved, **now}

    def set_apart(self, failures: Mapping[int, CanalError]) -> None:
        """Note cursors that cannot be served: the next log begins without them."""
        self._unserved.update(failures)

    def forget_unserved(self) -> None:
        """Try all cursors again: another server's log may have what the last one's did not."""
        self._unserved.clear()

    def new(self, client_id: int, last_batch_id: int, **source: Any) -> CatchUp:
        """Return a catch-up that has not begun. `source`: what its upstream's configuration has
        other than the destination's."""
        config = self._state.config.now
        if self._main is not None:  # the server that the destination reads, of several perhaps
            config = config.at(self._main.identity.address)
        catch_up = CatchUp(self._state, own_config(config, **source), client_id, last_batch_id)
        catch_up.note_replaced = self.note_replaced
        return catch_up

    async def begin(
        self,
        client_id: int,
        last_batch_id: int,
        cursor: LogPosition | None = None,
        created_s: int = 0,
        **source: Any,
    ) -> LogPosition:
        """Begin one for a new subscriber, at a cursor or where `source` says; return its cursor.
        `created_s`: of the file that `source` names, 0: not known. Raises SourceError kinds."""
        if self._state.config.now.source.files and source.get("start") == "gtid":
            raise ConfigError("binlog files have no start by GTID set; give a position")
        catch_up = self.new(client_id, last_batch_id, **source)
        try:
            cursor = await catch_up.open(cursor)
            self._refuse_foreign(cursor)
            _refuse_other_file(cursor.position, created_s)
        except Exception as error:
            await catch_up.close()
            raise self._state.runtime.unwrap(error) from None
        self.close(client_id)
        self._catch_ups[client_id] = catch_up
        if self._main is not None:
            self._main.store.send_away(client_id)
        return cursor

    def _refuse_foreign(self, cursor: LogPosition) -> None:
        """Raise ConnectionLost unless the destination reads the log that a cursor is of: it may
        have gone to another server while that was looked for."""
        if self._main is None or cursor.is_foreign(self._main.identity):
            raise ConnectionLost(
                "the destination's source was opened again meanwhile: try again"
            ).at(destination=self._state.destination)

    def come_back(self, client_id: int) -> None:
        """Take a subscriber into the log, if that has all that it is still to get."""
        catch_up = self._catch_ups.get(client_id)
        if catch_up is None or catch_up.pipeline is None or self._main is None:
            return
        if isinstance(catch_up, RowsLog):
            return  # until its snapshot has ended
        table = self._state.subscribers
        terms = table.terms(table.get(client_id))
        if self._main.store.take_over(catch_up.pipeline.store, client_id, terms):
            self.close(client_id)

    def begin_rows_log(self, client_id: int) -> RowsLog:
        """Let a subscriber get the rows of one moment, and nothing else, until it is moved. Raises
        NotSubscribed."""
        assert self._main is not None
        start = self._state.subscribers.get(client_id).position or self._main.store.first_position
        self.close(client_id)
        last_id = self._main.store.last_batch_id(client_id)
        config = own_config(self._state.config.now)
        held = RowsLog(self._state, config, client_id, last_id, start)
        self._catch_ups[client_id] = held
        self._main.store.release_place(client_id)
        self._main.store.send_away(client_id)
        return held

    def rows_logs(self) -> dict[int, RowsLog]:
        """Return those that `begin_rows_log` made."""
        return {k: one for k, one in self._catch_ups.items() if isinstance(one, RowsLog)}

    def close(self, client_id: int) -> None:
        """End a subscriber's catch-up, if it has one. Its batches are counted on: an ack of one
        that comes late would be taken for that of another one with its id."""
        self._unserved.pop(client_id, None)
        catch_up = self._catch_ups.pop(client_id, None)
        if catch_up is not None:
            if self._main is not None:
                self._main.store.last_batch_ids.put(client_id, catch_up.last_batch_id)
            catch_up.leave()
            task = asyncio.create_task(catch_up.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close_all(self) -> None:
        """End all; which cursors could not be served is remembered."""
        unserved = self.unserved
        for client_id in list(self._catch_ups):
            self.close(client_id)
        self._unserved = unserved
        await asyncio.gather(*self._closing)

    async def check(self, references: Sequence[Payload]) -> None:
        """See DestinationApi.check_chunks."""
        for catch_up in list(self._catch_ups.values()):
            if catch_up.pipeline is not None:
                await catch_up.pipeline.check(references)

    def places(self) -> dict[str, PlaceReport]:
        """Return the state of each, by client id, with the keys of EventStore.stats."""
        found: dict[str, PlaceReport] = {}
        table = self._state.subscribers
        for client_id, catch_up in self._catch_ups.items():
            try:
                subscriber = table.get(client_id)
            except NotSubscribed:  # it is being removed
                continue
            terms, cursor = table.terms(subscriber), subscriber.cursor
            place: PlaceReport = {
                "filter": subscriber.filter,
                "policy": terms.policy,
                "transactions": terms.transactions,
                "acked": None if cursor is None else str(cursor.position),
                "unacked_batches": 0,
                "entries_behind": None,
                "bytes_behind": None,
                "waiting_since": None,
            }
            place.update(catch_up.places().get(str(client_id), {}))
            place["detached"] = True
            place["failure"] = None if catch_up.failure is None else error_text(catch_up.failure)
            found[str(client_id)] = place
        return found


def _refuse_other_file(place: EntryPosition, created_s: int) -> None:
    """Raise PositionNotFound if the file of a place is known to be another one than was meant."""
    if created_s and place.created_s and place.created_s != created_s:
        raise PositionNotFound(
            f"{place.journal_name} is another file than the one that the place is of: its log was "
            "reset, or is another server's"
        ).at(place.journal_name, place.position)
