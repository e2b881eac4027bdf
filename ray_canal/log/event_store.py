"""The event store: a byte-budgeted log with N subscribers (Canal: MemoryEventStoreWithBuffer).

Canal's put, get and ack sequences, kept per subscriber; accounting is per entry (ITEMSIZE) or by
binlog bytes (MEMSIZE), storage is per chunk. Payloads are opaque references. The log is trimmed by
the slowest subscriber; with none at all it keeps what it has, and is full when it is full. Chunks
may be moved to disk and read back: which ones is decided here, reading and writing is the caller's.
No threads, no clock, no I/O, no Python loop over entries: waiting and time-outs are the caller's,
by `ready`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ray_canal.config import StoreConfig
from ray_canal.errors import (
    CursorNotInLog,
    NotSubscribed,
    TransactionTooLarge,
)
from ray_canal.log import outstanding, pieces, whole
from ray_canal.log.batch import Batch, Taken, batch_of, take
from ray_canal.log.batch_ids import LastBatchIds
from ray_canal.log.log_order import LogOrder
from ray_canal.log.report import log_report
from ray_canal.log.ring import Ring, Slot, index_bytes_max
from ray_canal.log.snapshot_tag import SnapshotTag
from ray_canal.log.subscriber import Mark, Subscriber, Terms
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.position import EntryPosition

_RESTORED_MAX = 16
"""So many chunks that were read back from disk are kept; a get needs two at most."""


class EventStore:
    """The log of one generation of an instance, beginning at `start`.

    Holds acked ≤ next ≤ visible ≤ put for each subscriber; what lies between acked and next is
    outstanding, what lies between visible and put is a transaction that is still gathered. Batch
    ids count from `batch_ids_from` + 1; smaller ones belong to an earlier generation.
    """

    def __init__(
        self,
        config: StoreConfig,
        start: EntryPosition,
        *,
        batch_ids_from: int = 0,
        spill_bytes: int = 0,
    ) -> None:
        self._config = config
        self._spill_bytes = spill_bytes
        self._ring = Ring(config, start)
        self.payloads = self._ring.payloads
        self._unit = config.memunit_bytes if self._ring.by_memory else 1
        self._subscribers: dict[int, Subscriber] = {}
        self._batch_ids_from = batch_ids_from
        self._last_batch_ids = LastBatchIds(batch_ids_from)
        self._places: dict[int, int] = {}
        self._away: set[int] = set()
        self._visible = 0
        self._dropped: list[Any] = []
        self._restored: deque[Slot] = deque()
        self._disk_full = False

    # --- the producer's side ------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Return the capacity in bytes of binlog (MEMSIZE) or in entries (ITEMSIZE)."""
        return self._ring.capacity

    def has_room(self, extra_bytes: int) -> bool:
        """Return whether so many bytes of binlog more fit, once all, even who is away, have passed
        over what they had consumed before. An empty log takes a chunk of any size."""
        if self._ring.has_room(extra_bytes):
            return True
        for one in self._subscribers.values():
            self._pass_over(one, one.consumed_up_to(self._ring.since(one.next)))
        return self._ring.has_room(extra_bytes)

    def put(self, chunk: LogChunk, payload: Any) -> None:
        """Append a chunk."""
        self._ring.append(chunk, payload)
        self._visible = max(self._visible, self._ring.put_sequence - chunk.held)

    @property
    def order(self) -> LogOrder:
        """Return the order in which positions of this log are compared."""
        return self._ring.order

    def covers(self, position: EntryPosition) -> bool:
        """Return whether the log has everything behind this position."""
        order = self.order
        return order.knows(position) and order.key(position) >= order.key(self.first_position)

    def begin_reading(self, client_id: int, reading: str) -> None:
        """Let the subscriber see chunks of this reading, and of no other. Raises NotSubscribed."""
        self._subscriber(client_id).begin_reading(reading)

    def reading_of(self, client_id: int) -> str | None:
        """The reading whose chunks the subscriber sees; empty: of none. None: it is not here."""
        known = self._subscribers.get(client_id)
        return None if known is None else known.reading

    def read_chunks(self, client_id: int, batch_id: int) -> list[SnapshotTag]:
        """The chunks that were read for the subscriber and are done with once this batch is acked.
        Raises what `ack` would raise."""
        subscriber, mark = self._outstanding(client_id, batch_id)
        return self._ring.tags(mark.start, mark.end, subscriber.reading)

    def flush(self) -> bool:
        """Show what is still gathered: nothing more can come, or the log is full of it. Returns
        whether there was anything."""
        before, self._visible = self._visible, self._ring.put_sequence
        return before != self._visible

    @property
    def first_position(self) -> EntryPosition:
        """Return where the log's oldest entry begins: a new subscriber's cursor."""
        return self._ring.first_position

    # --- the disk -----------------------------------------------------------------------------

    def spillable(self) -> Slot | None:
        """The oldest chunk in memory, if all that still need it may read it from disk."""
        self._disk_full = False
        slot = self._ring.first_in_memory()
        if slot is None or slot.chunk is None:
            return None
        needing = [s for s in self._subscribers.values() if s.holds < slot.end]
        if not needing or not all(s.terms.may_spill for s in needing):
            return None
        ring, index_bytes = self._ring, slot.index_bytes_of(len(self._subscribers))
        self._disk_full = (
            ring.disk_bytes + slot.arena_bytes > self._spill_bytes
            or ring.index_bytes + index_bytes > index_bytes_max(self._spill_bytes)
        )
        return None if self._disk_full else slot

    def spilled(self, first: int, segment: Any, disk_bytes: int) -> bool:
        """The slot at `first` is on disk now, `segment` says where. False: nobody needs it any
        more."""
        slot = self._ring.at(first)
        if slot is None or slot.on_disk:
            return False
        for subscriber in self._subscribers.values():
            if subscriber.holds < slot.end:
                subscriber.view(slot)
                subscriber.reduce(slot)
        self._ring.move_to_disk(slot, segment, disk_bytes, len(self._subscribers))
        return True

    def missing(self, client_id: int, batch_size: int) -> Slot | None:
        """The slot that must be read back (`restore`) before the next get of this subscriber."""
        subscriber = self._subscriber(client_id)
        self.skip(client_id)
        if subscriber.terms.transactions:
            left = max(batch_size, 1) * self._unit
            return whole.plan(self._slots(subscriber), subscriber, left, self._isolated).missing
        slot, _ = next(self._slots(subscriber), (None, 0))
        return slot if slot is not None and slot.chunk is None else None

    def restore(self, first: int, chunk: LogChunk) -> None:
        """The chunk of a slot on disk was read. It may be forgotten again after the next get."""
        slot = self._ring.at(first)
        if slot is None or not slot.on_disk or slot.chunk is not None:
            return
        slot.chunk = chunk
        for subscriber in self._subscribers.values():
            if subscriber.next < slot.end:
                subscriber.view(slot)
        self._restored.append(slot)
        while len(self._restored) > _RESTORED_MAX:
            oldest = self._restored.popleft()
            oldest.chunk = None
            for subscriber in self._subscribers.values():
                subscriber.reduce(oldest)

    def take_dropped(self) -> list[Any]:
        """Segments that nobody needs any more; each is named once."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def detachable(self) -> list[int]:
        """Subscribers with the policy `detach` that alone keep the log from giving room."""
        slot = self._ring.first_in_memory()
        if slot is None:
            return []
        needing = [s for s in self._subscribers.values() if s.holds < slot.end]
        if any(s.terms.policy == "block" and not s.terms.may_spill for s in needing):
            return []
        found = [client_id for client_id, first in self._places.items() if first < slot.end]
        return found + [s.client_id for s in needing if s.terms.policy == "detach"]

    def held_by(self) -> list[int]:
        """The subscribers that need the oldest chunk in memory for the longest: who keeps a full
        log from giving room."""
        slot = self._ring.first_in_memory()
        if slot is None:
            return []
        needing = {s.client_id: s.holds for s in self._subscribers.values()} | self._places
        first = min(needing.values(), default=slot.end)
        return sorted(i for i, holds in needing.items() if holds == first < slot.end)

    # --- a subscriber that comes back from its own dump ------------------------------------------

    def send_away(self, client_id: int) -> None:
        """The subscriber goes by another log for now; this one goes on without it."""
        self._last_batch_ids.put(client_id, self.last_batch_id(client_id))
        self._away.add(client_id)
        if self._subscribers.pop(client_id, None) is not None:
            self._trim()

    def abandon(self) -> bool:
        """Forget the oldest chunk, with all subscribers away. Returns whether there was one."""
        if self._subscribers or self._places or not self._away or not len(self._ring):
            return False
        self._drop(self._ring.trim(self._ring.first_end))
        return True

    def hold_place(self, client_id: int) -> None:
        """Keep the log from its oldest entry on for a subscriber that is about to come."""
        self._places[client_id] = self._ring.first_sequence

    def has_place(self, client_id: int) -> bool:
        return client_id in self._places

    def release_place(self, client_id: int) -> None:
        """Give back the room of a chunk that does not come, or that the log needs."""
        if self._places.pop(client_id, None) is not None:
            self._trim()

    def take_over(self, other: EventStore, client_id: int, terms: Terms) -> bool:
        """Let a subscriber of another log of the same source go on in this one. False: it has
        batches out, or is still to get what this log does not have."""
        position = other.position_of(client_id)
        key = self.order.key
        covered = self.covers(position) and key(position) <= key(self.last_position)
        if other.batch_ids(client_id) or not covered:
            return False
        if terms.transactions and not self.has_room(0):
            return False  # the rest of its transaction might never fit
        last_id = other.last_batch_id(client_id)
        self.subscribe(client_id, terms, position, last_batch_id=last_id)
        return True

    def last_batch_id(self, client_id: int) -> int:
        """The id of the newest batch that it was given, in this log or another one."""
        known = self._subscribers.get(client_id)
        if known is not None:
            return known.last_batch_id
        return self._last_batch_ids.get(client_id)

    def position_of(self, client_id: int) -> EntryPosition:
        """Return the position after everything that this subscriber is done with."""
        subscriber = self._subscriber(client_id)
        known = [subscriber.cursor, subscriber.reached]
        position = self._ring.position_before(subscriber.acked)
        places = [position, *(place for place in known if place is not None)]
        return max(places, key=self.order.key)

    @property
    def acked(self) -> int:
        """Return the number of acked entries of all subscribers."""
        return sum(one.acked for one in self._subscribers.values())

    @property
    def is_drained(self) -> bool:
        """Return whether all subscribers are done with all that is in the log."""
        return self.acked == self._ring.put_sequence * len(self._subscribers)

    # --- subscriptions ------------------------------------------------------------------------

    def subscribe(
        self,
        client_id: int,
        terms: Terms,
        cursor: EntryPosition | None,
        *,
        last_batch_id: int | None = None,
    ) -> None:
        """Add a subscriber that has consumed everything up to `cursor` (None: nothing of this log).
        Its batch ids go on behind `last_batch_id`.

        For a known subscriber only its terms change, from the next get on. Raises CursorNotInLog:
        what lies behind the cursor is not in this log (any more), so there would be a gap.
        """
        known = self._subscribers.get(client_id)
        if known is not None:
            known.change(terms)
            return
        if cursor is not None and not self.covers(cursor):
            raise CursorNotInLog(
                f"the cursor of client {client_id} is {cursor}, the log begins at "
                f"{self._ring.first_position}: it needs a replication stream of its own"
            )
        first = self._ring.first_sequence
        last_id = self.last_batch_id(client_id) if last_batch_id is None else last_batch_id
        self._subscribers[client_id] = Subscriber(
            client_id, terms, cursor, self.order, self._ring.by_memory, first, first, last_id
        )
        self._places.pop(client_id, None)
        self._away.discard(client_id)
        self.skip(client_id)

    def unsubscribe(self, client_id: int) -> None:
        """Forget a subscriber; the log no longer waits for it."""
        self._away.discard(client_id)
        gone = self._subscribers.pop(client_id, None)
        if gone is not None:
            self._last_batch_ids.put(client_id, gone.last_batch_id)
        self._trim()

    def _subscriber(self, client_id: int) -> Subscriber:
        found = self._subscribers.get(client_id)
        if found is None:
            raise NotSubscribed(f"clientId:{client_id} should subscribe first")
        return found

    @property
    def tail_position(self) -> EntryPosition:
        """Return the position after the last complete transaction that is in the log; its first
        position, if that lies in a later one."""
        places = self.last_position.boundary, self._ring.first_position
        return max(places, key=self.order.key)

    @property
    def last_position(self) -> EntryPosition:
        """Return where one restarts who has consumed the whole log."""
        return self._ring.position_before(self._ring.put_sequence)

    # --- the consumer's side ------------------------------------------------------------------

    @property
    def _isolated(self) -> bool:
        return self._config.ddl_isolation

    def _slots(self, subscriber: Subscriber) -> Any:
        """(slot, index behind its last visible entry) from the subscriber's next entry on."""
        for slot in self._ring.since(subscriber.next):
            last = min(self._visible - slot.first, slot.count)
            if last <= 0:
                return
            yield slot, last

    def ready(self, client_id: int, batch_size: int, *, count_all: bool = False) -> bool:
        """Return whether a full batch is there; with `count_all`, whether so many entries are
        there.

        Under DDL isolation a DDL completes a batch; so does the end of a chunk on disk.
        """
        subscriber = self._subscriber(client_id)
        wanted = batch_size if count_all else batch_size * self._unit
        slots = self._slots(subscriber)
        if subscriber.terms.transactions:
            found = whole.ready(slots, subscriber, wanted, self._isolated, count_all=count_all)
            return found or self._is_stuck(subscriber)  # get tells it
        return pieces.ready(slots, subscriber, wanted, self._isolated, count_all=count_all)

    def get(self, client_id: int, batch_size: int) -> Batch | None:
        """The next batch, now outstanding; None when nothing is there for this subscriber, or
        something must be read back first (`missing`).

        At most `batch_size` entries (ITEMSIZE) or memory units of binlog (MEMSIZE), but at least
        one entry, or one whole transaction. Raises TransactionTooLarge.
        """
        subscriber = self._subscriber(client_id)
        self._let_go(subscriber)
        left = max(batch_size, 1) * self._unit
        if subscriber.terms.transactions:
            taken, end = self._take_whole(subscriber, left)
        else:
            slots = self._slots(subscriber)
            taken, end = pieces.taken(slots, subscriber, left, self._isolated)
        if not taken:
            self._pass_over(subscriber, end)
            return None
        mark = Mark(
            subscriber.next,
            end,
            self._ring.position_before(end),
            any(one.slot.on_disk for one in taken),
        )
        subscriber.last_batch_id += 1
        subscriber.marks[subscriber.last_batch_id] = mark
        subscriber.next = end
        return batch_of(subscriber, subscriber.last_batch_id, taken, mark.after)

    def _take_whole(self, subscriber: Subscriber, left: int) -> tuple[list[Taken], int]:
        """Take a batch of whole transactions."""
        plan = whole.plan(self._slots(subscriber), subscriber, left, self._isolated)
        if plan.missing is not None:
            return [], subscriber.next
        if plan.end is None:
            if self._is_stuck(subscriber):
                raise TransactionTooLarge(
                    f"the transaction at {self._ring.position_before(subscriber.next)} exceeds "
                    f"store.spill_bytes ({self._spill_bytes}); raise it, or subscribe "
                    "without transactions = true"
                )
            return [], subscriber.next
        taken = []
        for slot, _ in self._slots(subscriber):
            if slot.first >= plan.end:
                break
            found = take(subscriber, slot, min(plan.end - slot.first, slot.count))
            if found is not None:
                taken.append(found)
        return taken, plan.end

    def _is_stuck(self, subscriber: Subscriber) -> bool:
        """Return whether the log is full, and all of it lies behind where the subscriber stands."""
        return self._disk_full and subscriber.next < self._ring.first_end

    def _pass_over(self, subscriber: Subscriber, end: int) -> None:
        """Nothing up to `end` is for this subscriber: the log need not keep it for it."""
        subscriber.next = max(subscriber.next, end)
        if not subscriber.marks:
            subscriber.acked = subscriber.next
            self._trim()

    def skip(self, client_id: int) -> bool:
        """Pass over what lies next and is not for this subscriber, so that the log need not keep it
        for one who waits. Returns whether the log has become shorter."""
        subscriber, first = self._subscriber(client_id), self._ring.first_sequence
        end = subscriber.next
        for slot in self._ring.since(end):
            view = subscriber.view(slot)
            if view is None or (view.count and not view.whole):
                break
            if view.count and int(view.admitted[-1]) >= end - slot.first:
                break
            end = slot.end
        if end > subscriber.next:
            self._pass_over(subscriber, end)
        return self._ring.first_sequence > first

    def _let_go(self, subscriber: Subscriber) -> None:
        if subscriber.kept is not None:
            subscriber.kept = None
            self._trim()

    def refuse_unacked(self, client_id: int) -> None:
        """Raises BatchesUnacked while batches are outstanding: the rule of get-and-ack."""
        outstanding.refuse_any(self._subscriber(client_id))

    def batch_ids(self, client_id: int) -> list[int]:
        """Outstanding batches, smallest first."""
        return list(self._subscriber(client_id).marks)

    def cursor_after(self, client_id: int, batch_id: int) -> EntryPosition:
        """The cursor that an ack of this batch moves to. Raises what `ack` would raise."""
        return self._outstanding(client_id, batch_id)[1].after

    def _outstanding(self, client_id: int, batch_id: int) -> tuple[Subscriber, Mark]:
        subscriber = self._subscriber(client_id)
        return subscriber, outstanding.first(subscriber, batch_id, self._batch_ids_from)

    def ack(self, client_id: int, batch_id: int, *, keep: bool = False) -> None:
        """Confirm the smallest outstanding batch; `keep`: it will still be read, until the
        subscriber's next call. Raises BatchNotFirst, BatchNotFound, InstanceRestarted."""
        subscriber, mark = self._outstanding(client_id, batch_id)
        del subscriber.marks[batch_id]
        subscriber.reached = mark.after
        subscriber.kept = mark.start if keep and mark.on_disk else None
        # With no other batch open, what was passed over behind it is done with, too.
        subscriber.acked = mark.end if subscriber.marks else subscriber.next
        self._trim()

    def rollback(self, client_id: int, batch_id: int | None = None) -> None:
        """Take back all outstanding batches, or this one and those after it. Raises
        BatchNotFound, InstanceRestarted."""
        subscriber = self._subscriber(client_id)
        self._let_go(subscriber)
        outstanding.roll_back(subscriber, batch_id, self._batch_ids_from)

    def _trim(self) -> None:
        """Drop chunks that every subscriber is done with."""
        if not self._subscribers:
            return
        needed = min(s.holds for s in self._subscribers.values())
        self._drop(self._ring.trim(min([needed, *self._places.values()])))

    def _drop(self, slots: list[Slot]) -> None:
        for slot in slots:
            if slot.on_disk:
                self._dropped.append(slot.payload)
                if slot in self._restored:
                    self._restored.remove(slot)
            for subscriber in self._subscribers.values():
                subscriber.forget(slot)

    # --- for status ---------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Fill of the ring and each subscriber's place; plain values."""
        return log_report(self._config, self._ring, self._subscribers.values())
