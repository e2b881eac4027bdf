"""Which subscribers the log of a generation serves, and which go by a stream of their own. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ray_canal.errors import SourceError
from ray_canal.log.log_order import LogOrder
from ray_canal.meta.manager import SubscriberMeta
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.start import Start


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why a subscriber is not in the log. `failure`: it cannot be served at all, for now."""

    why: str
    failure: SourceError | None = None


class Admission:
    """Admission of subscribers to the log of one generation. `cursors`: what its upstream is opened
    with. `apart`: who is not even tried, as its cursor could not be served lately. `read_to`: how
    far the log was read that is served until then, if one is."""

    def __init__(
        self,
        known: Mapping[int, SubscriberMeta],
        apart: Collection[int],
        read_to: EntryPosition | None = None,
    ) -> None:
        self.read_to = read_to
        self.apart = frozenset(apart) & known.keys()
        self.cursors = {
            client_id: subscriber.cursor
            for client_id, subscriber in known.items()
            if subscriber.cursor is not None and client_id not in self.apart
        }

    def placed(self, start: Start) -> Iterator[tuple[int, LogPosition, EntryPosition]]:
        """Client id, cursor, and where that is in the log that was opened."""
        left_out = self.left_out(start)
        for (client_id, cursor), place in zip(self.cursors.items(), start.cursors, strict=True):
            if client_id not in left_out or left_out[client_id].failure is None:
                yield client_id, cursor, place

    def left_out(
        self, start: Start, known: Mapping[int, SubscriberMeta] | None = None
    ) -> dict[int, LeftOut]:
        """Return the subscribers whose cursors the log that begins there does not serve,
        and why. `known`: as they are now; of one that was moved meanwhile, no failure counts."""
        found = {}
        for (client_id, cursor), failure, behind in zip(
            self.cursors.items(), start.failures, start.behind, strict=False
        ):
            now = None if known is None else known.get(client_id)
            if failure is not None and (now is None or now.cursor == cursor):
                found[client_id] = LeftOut(str(failure), failure)
            elif failure is None and behind:
                found[client_id] = LeftOut(f"it is {behind} bytes of binlog behind the others")
        return found

    def is_outdated(
        self, known: Mapping[int, SubscriberMeta], start: Start, here: SourceIdentity
    ) -> bool:
        """Return whether somebody has subscribed, or acked in the old log, while the upstream was
        opened, so that its cursor may not be taken into this log."""
        away = self.apart | self.left_out(start, known).keys()
        placed = frozenset(place for _, _, place in self.placed(start))
        return any(
            client_id not in away
            and self._is_misplaced(client_id, subscriber.cursor, start, here, placed)
            for client_id, subscriber in known.items()
        )

    def _is_misplaced(
        self,
        client_id: int,
        cursor: LogPosition | None,
        start: Start,
        here: SourceIdentity,
        placed: frozenset[EntryPosition],
    ) -> bool:
        if cursor is None:
            return False
        if cursor.is_foreign(here):
            return True
        order = LogOrder(start.position)
        if order.key(cursor.position) < order.key(start.position):
            return True
        asked = self.cursors.get(client_id)
        changed = asked is None or (cursor != asked and cursor.position not in placed)
        return changed and not (start.same_log and self._was_read(cursor.position, order))

    def _was_read(self, place: EntryPosition, order: LogOrder) -> bool:
        """Return whether it is a place of the log that was served, as one that was acked is; one
        that somebody has moved to may have been looked up in yet another log."""
        return self.read_to is not None and order.key(place) <= order.key(self.read_to)


def oldest_in(
    known: Mapping[int, SubscriberMeta], here: SourceIdentity, start: EntryPosition
) -> EntryPosition:
    """Return the oldest place of this log that a cursor is at, or `start`."""
    cursors = (subscriber.cursor for subscriber in known.values())
    places = [
        cursor.position
        for cursor in cursors
        if cursor is not None and cursor.identity.server_uuid == here.server_uuid
    ]
    return min([start, *places], key=EntryPosition.key)


def waited_for(known: Mapping[int, SubscriberMeta]) -> dict[int, SubscriberMeta]:
    """Return those who were not given up."""
    return {client_id: one for client_id, one in known.items() if not one.expired}


def oldest_cursor(
    known: Mapping[int, SubscriberMeta], start: EntryPosition | None
) -> EntryPosition | None:
    """Return the smallest cursor; without any, where the log began."""
    places = (one.position for one in known.values())
    return min((p for p in places if p is not None), key=EntryPosition.key, default=start)
