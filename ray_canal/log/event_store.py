"""The event store: a byte-budgeted log with N subscribers (Canal: MemoryEventStoreWithBuffer).

Canal's put, get and ack sequences, kept per subscriber; accounting is per entry (ITEMSIZE) or by
binlog bytes (MEMSIZE), storage is per chunk. Payloads are opaque references. The log is trimmed by
the slowest subscriber; with none at all it keeps what it has, and is full when it is full. Chunks
may be moved to disk and read back: which ones is decided here, reading and writing is the caller's.
No threads, no clock, no I/O, no Python loop over entries: who waits, and how long, is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator

from ray_canal.config import StoreConfig
from ray_canal.errors import CursorNotInLog, NotSubscribed, TransactionTooLarge
from ray_canal.log import by_size, by_transaction, outstanding
from ray_canal.log.batch import Batch, ChunkSlice, batch_of, slice_of
from ray_canal.log.batch_ids import LastBatchIds
from ray_canal.log.log_order import LogOrder
from ray_canal.log.report import log_report
from ray_canal.log.ring import Ring, Slot
from ray_canal.log.snapshot_tag import SnapshotTag
from ray_canal.log.spilling import Spilling
from ray_canal.log.subscriber import Mark, Subscriber, Terms
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.message import Payload
from ray_canal.model.position import EntryPosition
from ray_canal.model.reports import LogReport


class EventStore:
    """The log of one generation of a destination, beginning at `start`.

    Holds acked ≤ next ≤ visible ≤ put for each subscriber; from acked to next it is outstanding,
    from visible to put a transaction that is still gathered. Batch ids count from `batch_ids_from`
    + 1; smaller ones belong to an earlier generation.
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
        self._spilling = Spilling(self._ring, spill_bytes)
        self.payloads = self._ring.payloads
        self._unit = config.memunit_bytes if self._ring.by_memory else 1
        self._subscribers: dict[int, Subscriber] = {}
        self._batch_ids_from = batch_ids_from
        self.last_batch_ids = LastBatchIds(batch_ids_from)
        self._places: dict[int, int] = {}
        self._away: set[int] = set()
        self._visible = 0

    # --- the producer's side ------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Return the capacity in bytes of binlog (MEMSIZE) or in entries (ITEMSIZE)."""
        return self._ring.capacity

    def has_room(self, extra_bytes: int) -> bool:
        """Return whether so many bytes of binlog more fit, once all subscribers, even those that
        are away, have passed over what they had consumed before. An empty log takes a chunk of any
        size."""
        if self._ring.has_room(extra_bytes):
            return True
        for one in self._subscribers.values():
            self._pass_over(one, one.consumed_up_to(self._ring.since(one.next)))
        return self._ring.has_room(extra_bytes)

    def put(self, chunk: LogChunk, payload: Payload) -> None:
        """Append a chunk."""
        self._ring.append(chunk, payload)
        self._visible = max(self._visible, self._ring.put_sequence - chunk.held)

    @property
    def order(self) -> LogOrder:
        """Return the order in which positions of this log are compared."""
        return self._ring.order

    def covers(self, position: EntryPosition) -> bool:
        """Return whether the log has everything after this position."""
        order = self.order
        return order.knows(position) and order.key(position) >= order.key(self.first_position)

    def begin_attempt(self, client_id: int, attempt_name: str) -> None:
        """Let the subscriber see chunks of this attempt, and of no other. Raises NotSubscribed."""
        self._subscriber(client_id).begin_attempt(attempt_name)

    def attempt_name_of(self, client_id: int) -> str | None:
        """The attempt whose chunks the subscriber sees; empty: of none. None: it is not here."""
        known = self._subscribers.get(client_id)
        return None if known is None else known.attempt_name

    def read_chunks(self, client_id: int, batch_id: int) -> list[SnapshotTag]:
        """The chunks that were read for the subscriber and are done with once this batch is acked.
        Raises what `ack` would raise."""
        subscriber, mark = self._outstanding(client_id, batch_id)
        return self._ring.tags(mark.start, mark.end, subscriber.attempt_name)

    def flush(self) -> bool:
        """Make visible what is still gathered, as nothing more can come, or the log is full of it;
        return whether there was anything."""
        before, self._visible = self._visible, self._ring.put_sequence
        return before != self._visible

    @property
    def first_position(self) -> EntryPosition:
        """Return where the log's oldest entry begins: a new subscriber's cursor."""
        return self._ring.first_position

    @property
    def first_sequence(self) -> int:
        """Return the oldest entry's log sequence: it rises whenever the log becomes shorter."""
        return self._ring.first_sequence

    @property
    def needed(self) -> int:
        """Return a number that rises whenever a subscriber needs less of the log, which may then go
        to disk even if it does not become shorter."""
        return sum(one.needed_from for one in self._subscribers.values())

    # --- the disk -----------------------------------------------------------------------------

    def spillable(self) -> Slot | None:
        """Return the oldest chunk in memory, if it may go to disk."""
        return self._spilling.spillable(
            self._subscribers.values(),
            lambda one: by_transaction.needs_more(self._slots(one), one, self._isolated),
        )

    def spilled(self, first: int, segment: Payload, disk_bytes: int) -> bool:
        """Replace a slot's payload by its segment on disk. False: nobody needs it any more."""
        return self._spilling.spilled(first, segment, disk_bytes, self._subscribers.values())

    def missing(self, client_id: int, batch_size: int) -> Slot | None:
        """Return the slot that must be read back (`restore`) before this subscriber's next get."""
        subscriber = self._subscriber(client_id)
        self.skip(client_id)
        if subscriber.terms.transactions:
            left = max(batch_size, 1) * self._unit
            slots = self._slots(subscriber)
            return by_transaction.plan(slots, subscriber, left, self._isolated).missing
        slot, _ = next(self._slots(subscriber), (None, 0))
        return slot if slot and slot.chunk is None else None

    def restore(self, first: int, chunk: LogChunk) -> None:
        """Put back the chunk of a slot on disk. It may be forgotten again after the next get."""
        self._spilling.restore(first, chunk, self._subscribers.values())

    def take_dropped(self) -> list[Payload]:
        """Return segments that nobody needs any more; each is returned once."""
        return self._spilling.take_dropped()

    def detachable(self) -> list[int]:
        """Return the subscribers with the policy `detach` that alone keep the log full."""
        return self._spilling.detachable(self._subscribers.values(), self._places)

    def held_by(self) -> list[int]:
        """Return the subscribers that keep a full log full: they need its oldest chunk longest."""
        return self._spilling.held_by(self._subscribers.values(), self._places)

    # --- a subscriber that comes back from its catch-up ------------------------------------------

    def send_away(self, client_id: int) -> None:
        """Continue without a subscriber that reads another log for now."""
        self.last_batch_ids.put(client_id, self.last_batch_id(client_id))
        self._away.add(client_id)
        if self._subscribers.pop(client_id, None) is not None:
            self._trim()

    def abandon(self) -> bool:
        """Forget the oldest chunk, with all subscribers away; return whether there was one."""
        if self._subscribers or self._places or not self._away or not len(self._ring):
            return False
        self._drop(self._ring.trim(self._ring.first_end))
        return True

    def reserve_place(self, client_id: int) -> None:
        """Keep the log from its oldest entry on for a subscriber that is about to come."""
        self._places[client_id] = self._ring.first_sequence

    def has_place(self, client_id: int) -> bool:
        """Return whether the log is kept for this subscriber (`reserve_place`)."""
        return client_id in self._places

    def release_place(self, client_id: int) -> None:
        """Stop keeping the log for a subscriber that does not come, or whose room it needs."""
        if self._places.pop(client_id, None) is not None:
            self._trim()

    def take_over(self, other: EventStore, client_id: int, terms: Terms) -> bool:
        """Let a subscriber of another log of the same source continue in this one; return False if
        it has batches outstanding, needs what is not here, or would be sent away at once."""
        position, key = other.position_of(client_id), self.order.key
        covered = self.covers(position) and key(position) <= key(self.last_position)
        if other.batch_ids(client_id) or not covered or self._spilling.rejects(position, terms):
            return False
        if terms.transactions and not self.has_room(0):
            return False  # the rest of its transaction might never fit
        last_id = other.last_batch_id(client_id)
        self.subscribe(client_id, terms, position, last_batch_id=last_id)
        return True

    def last_batch_id(self, client_id: int) -> int:
        """Return the id of the newest batch that a subscriber was given, in this log or another."""
        known = self._subscribers.get(client_id)
        if known is not None:
            return known.last_batch_id
        return self.last_batch_ids.get(client_id)

    def position_of(self, client_id: int) -> EntryPosition:
        """Return the position after everything that this subscriber is done with."""
        subscriber = self._subscriber(client_id)
        known = [subscriber.cursor, subscriber.reached]
        position = self._ring.position_before(subscriber.acked)
        places = [position, *(place for place in known if place is not None)]
        return max(places, key=self.order.key)

    @property
    def is_drained(self) -> bool:
        """Return whether all subscribers are done with all that is in the log."""
        return all(one.acked == self._ring.put_sequence for one in self._subscribers.values())

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
        Its batch ids continue after `last_batch_id`.

        For a known subscriber only its terms change, from the next get on. Raises CursorNotInLog:
        what comes after the cursor is not in this log (any more), so there would be a gap.
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
            self.last_batch_ids.put(client_id, gone.last_batch_id)
        self._trim()

    def _subscriber(self, client_id: int) -> Subscriber:
        found = self._subscribers.get(client_id)
        if found is None:
            raise NotSubscribed(f"clientId:{client_id} should subscribe first")
        return found

    @property
    def tail_position(self) -> EntryPosition:
        """Return the position after the log's last complete transaction, or its first position."""
        places = self.last_position.boundary, self._ring.first_position
        return max(places, key=self.order.key)

    @property
    def last_position(self) -> EntryPosition:
        """Return the position after the whole log."""
        return self._ring.position_before(self._ring.put_sequence)

    # --- the consumer's side ------------------------------------------------------------------

    @property
    def _isolated(self) -> bool:
        return self._config.ddl_isolation

    def _slots(self, subscriber: Subscriber) -> Iterator[tuple[Slot, int]]:
        """Yield (slot, index after its last visible entry) from the subscriber's next entry on."""
        for slot in self._ring.since(subscriber.next):
            last = min(self._visible - slot.first, slot.count)
            if last <= 0:
                return
            yield slot, last

    def ready(self, client_id: int, batch_size: int, *, count_all: bool = False) -> bool:
        """Return whether a full batch is there (with `count_all`: so many entries). Under DDL
        isolation a DDL completes a batch; so does the end of a chunk on disk."""
        subscriber = self._subscriber(client_id)
        wanted = batch_size if count_all else batch_size * self._unit
        split = by_transaction if subscriber.terms.transactions else by_size
        slots, isolated = self._slots(subscriber), self._isolated
        if split.ready(slots, subscriber, wanted, isolated, count_all=count_all):
            return True
        return subscriber.terms.transactions and self._is_stuck(subscriber)  # then get raises

    def get(self, client_id: int, batch_size: int) -> Batch | None:
        """Return the next batch, now outstanding; None if there is nothing for this subscriber, or
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
            taken, end = by_size.slices(slots, subscriber, left, self._isolated)
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

    def _take_whole(self, subscriber: Subscriber, left: int) -> tuple[list[ChunkSlice], int]:
        """Take a batch of whole transactions."""
        plan = by_transaction.plan(self._slots(subscriber), subscriber, left, self._isolated)
        if plan.missing is not None or plan.end is None:
            if plan.missing is None and self._is_stuck(subscriber):
                place = self._ring.position_before(subscriber.next)
                raise TransactionTooLarge(
                    f"the transaction at {place} exceeds store.spill_bytes ({self._spill_bytes}); "
                    "raise it, or subscribe without transactions = true"
                )
            return [], subscriber.next
        taken = []
        for slot, _ in self._slots(subscriber):
            if slot.first >= plan.end:
                break
            found = slice_of(subscriber, slot, min(plan.end - slot.first, slot.count))
            if found is not None:
                taken.append(found)
        return taken, plan.end

    def _is_stuck(self, subscriber: Subscriber) -> bool:
        """Return whether the log is full, and all of it comes after the subscriber's place."""
        return self._spilling.is_full and subscriber.next < self._ring.first_end

    def _pass_over(self, subscriber: Subscriber, end: int) -> None:
        """Pass over all up to `end`, which is not for this subscriber: the log need not keep it."""
        subscriber.next = max(subscriber.next, end)
        if not subscriber.marks:
            subscriber.done_with(subscriber.next, self._ring)
            self._trim()

    def skip(self, client_id: int) -> bool:
        """Pass over the next entries that are not for this subscriber, so that the log need not
        keep them for one that waits; return whether the log has become shorter."""
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
        """Stop keeping an acked batch that was still read."""
        if subscriber.kept is not None:
            subscriber.kept = None
            self._trim()

    def refuse_unacked(self, client_id: int) -> None:
        """Raise BatchesUnacked while batches are outstanding: the rule of get-and-ack."""
        outstanding.refuse_any(self._subscriber(client_id))

    def batch_ids(self, client_id: int) -> list[int]:
        """Return the ids of outstanding batches, smallest first."""
        return list(self._subscriber(client_id).marks)

    def cursor_after(self, client_id: int, batch_id: int) -> EntryPosition:
        """Return the cursor after an ack of this batch. Raises what `ack` would raise."""
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
        # With no other batch open, what was passed over after it is done with, too.
        subscriber.done_with(mark.end if subscriber.marks else subscriber.next, self._ring)
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
        needed = min(s.needed_from for s in self._subscribers.values())
        self._drop(self._ring.trim(min([needed, *self._places.values()])))

    def _drop(self, slots: list[Slot]) -> None:
        for slot in slots:
            self._spilling.drop(slot)
            for subscriber in self._subscribers.values():
                subscriber.forget(slot)

    # --- for status ---------------------------------------------------------------------------

    def stats(self) -> LogReport:
        """Return how full the ring is, and each subscriber's place, as plain values."""
        return log_report(self._config, self._ring, self._subscribers.values())
