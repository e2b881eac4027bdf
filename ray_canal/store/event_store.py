"""The event store: a byte-budgeted log with N subscribers (Canal: MemoryEventStoreWithBuffer).

Canal's put, get and ack sequences, kept per subscriber; accounting is per entry (ITEMSIZE) or by
binlog bytes (MEMSIZE), storage is per chunk. Payloads are opaque references. The log is trimmed by
the slowest subscriber; with none at all it keeps what it has, and is full when it is full. No
threads, no clock, no I/O, no Python loop over entries: waiting and time-outs are the caller's, by
`ready`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ray_canal.config import StoreConfig
from ray_canal.errors import BatchesUnacked, BatchNotFirst, BatchNotFound, NotSubscribed
from ray_canal.filter import TableFilter
from ray_canal.protocol.position import EntryPosition
from ray_canal.store.ring import Ring, Slot
from ray_canal.store.subscriber import Mark, Subscriber, View
from ray_canal.store.transaction_buffer import LogChunk


@dataclass(frozen=True, slots=True)
class Part:
    """Entries [first, last) of one chunk, those with a true `mask` (None: all)."""

    payload: Any
    first: int
    last: int
    mask: npt.NDArray[np.bool_] | None
    gtid_set: str  # executed before the chunk


@dataclass(frozen=True, slots=True)
class PositionRange:
    """Where a batch's first entry starts, and where its last one ends."""

    start: EntryPosition
    end: EntryPosition


@dataclass(frozen=True, slots=True)
class Batch:
    """What one get hands out. Its id is 1, 2, … per subscriber and generation."""

    id: int
    parts: tuple[Part, ...]
    entry_count: int
    row_count: int
    range: PositionRange


class EventStore:
    """The log of one generation of an instance, beginning at `start`.

    Holds acked ≤ next ≤ put for each subscriber; what lies between acked and next is outstanding.
    """

    def __init__(self, config: StoreConfig, start: EntryPosition) -> None:
        self._config = config
        self._ring = Ring(config, start)
        self._unit = config.memunit_bytes if self._ring.by_memory else 1
        self._subscribers: dict[int, Subscriber] = {}

    # --- the producer's side ------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """In bytes of binlog (MEMSIZE) or in entries (ITEMSIZE)."""
        return self._ring.capacity

    def has_room(self, extra_bytes: int) -> bool:
        """Whether so many bytes of binlog more fit. An empty log takes a chunk of any size."""
        return self._ring.has_room(extra_bytes)

    def put(self, chunk: LogChunk, payload: Any) -> None:
        """Append a chunk."""
        self._ring.append(chunk, payload)

    @property
    def first_position(self) -> EntryPosition:
        """Where the log's oldest entry begins: a new subscriber's cursor."""
        return self._ring.first_position

    # --- subscriptions ------------------------------------------------------------------------

    def subscribe(
        self, client_id: int, table_filter: TableFilter, cursor: EntryPosition | None
    ) -> None:
        """Add a subscriber that has consumed everything up to `cursor` (None: nothing of this log).

        For a known subscriber only its filter changes, from the next get on.
        """
        known = self._subscribers.get(client_id)
        if known is not None:
            known.change_filter(table_filter)
            return
        first = self._ring.first_sequence
        self._subscribers[client_id] = Subscriber(
            client_id, table_filter, cursor, self._ring.by_memory, first, first
        )

    def unsubscribe(self, client_id: int) -> None:
        """Forget a subscriber; the log no longer waits for it."""
        self._subscribers.pop(client_id, None)
        self._trim()

    def _subscriber(self, client_id: int) -> Subscriber:
        found = self._subscribers.get(client_id)
        if found is None:
            raise NotSubscribed(f"client {client_id} is not subscribed: should subscribe first")
        return found

    # --- the consumer's side ------------------------------------------------------------------

    def ready(self, client_id: int, batch_size: int, *, count_all: bool = False) -> bool:
        """Whether a full batch is there; with `count_all`, whether so many entries are there.

        Under DDL isolation a DDL completes a batch.
        """
        subscriber = self._subscriber(client_id)
        wanted = batch_size if count_all else batch_size * self._unit
        available = 0
        for slot in self._ring.since(subscriber.next):
            view = subscriber.view(slot)
            skipped = _skipped(view, slot, subscriber.next)
            if self._config.ddl_isolation and len(view.ddl) and view.ddl[-1] >= skipped:
                return True
            if count_all:
                available += view.count - skipped
            else:
                available += view.cost - int(view.costs[skipped])
            if available >= wanted:
                return True
        return False

    def get(self, client_id: int, batch_size: int) -> Batch | None:
        """The next batch, now outstanding; None when nothing is there for this subscriber.

        At most `batch_size` entries (ITEMSIZE) or memory units of binlog (MEMSIZE), but at least
        one entry.
        """
        subscriber = self._subscriber(client_id)
        left = max(batch_size, 1) * self._unit
        taken: list[tuple[Slot, int, int, npt.NDArray[np.int64]]] = []
        end = subscriber.next
        for slot in self._ring.since(subscriber.next):
            view = subscriber.view(slot)
            skipped = _skipped(view, slot, subscriber.next)
            count, cut = self._fits(view, skipped, left, nothing_yet=not taken)
            if count:
                chosen = view.admitted[skipped : skipped + count]
                first = max(subscriber.next - slot.first, 0)
                last = int(chosen[-1]) + 1 if cut else slot.count
                taken.append((slot, first, last, chosen))
                end = slot.first + last
                left -= int(view.costs[skipped + count] - view.costs[skipped])
            elif not cut:
                end = slot.end
            if cut or left <= 0:
                break
        if not taken:
            self._pass_over(subscriber, end)
            return None
        subscriber.last_batch_id += 1
        subscriber.marks[subscriber.last_batch_id] = Mark(subscriber.next, end)
        subscriber.next = end
        return _batch(subscriber.last_batch_id, taken)

    def _fits(
        self, view: View, skipped: int, left: int, *, nothing_yet: bool
    ) -> tuple[int, bool]:
        """(how many entries behind the skipped ones fit, whether the batch ends inside this
        slot)."""
        count = view.count - skipped
        if not count:
            return 0, False
        limit = view.costs[skipped] + left
        fits = int(np.searchsorted(view.costs[skipped + 1 :], limit, side="right"))
        if nothing_yet:
            fits = max(fits, 1)
        if self._config.ddl_isolation:
            before = view.ddl[np.searchsorted(view.ddl, skipped) :] - skipped
            if len(before) and before[0] < fits:
                return (1 if nothing_yet and before[0] == 0 else int(before[0])), True
        return fits, fits < count

    def _pass_over(self, subscriber: Subscriber, end: int) -> None:
        """Nothing up to `end` is for this subscriber: the log need not keep it for it."""
        subscriber.next = max(subscriber.next, end)
        if not subscriber.marks:
            subscriber.acked = subscriber.next
            self._trim()

    def refuse_unacked(self, client_id: int) -> None:
        """Raises BatchesUnacked while batches are outstanding: the rule of get-and-ack."""
        marks = self._subscriber(client_id).marks
        if marks:
            raise BatchesUnacked(
                f"clientId:{client_id} has unacked batches, the last is {next(reversed(marks))}; "
                "ack or roll back before get()"
            )

    def batch_ids(self, client_id: int) -> list[int]:
        """Outstanding batches, smallest first."""
        return list(self._subscriber(client_id).marks)

    def cursor_after(self, client_id: int, batch_id: int) -> EntryPosition:
        """The cursor that an ack of this batch moves to. Raises what `ack` would raise."""
        _, mark = self._outstanding(client_id, batch_id)
        return self._ring.position_before(mark.end)

    def _outstanding(self, client_id: int, batch_id: int) -> tuple[Subscriber, Mark]:
        subscriber = self._subscriber(client_id)
        if batch_id not in subscriber.marks:
            raise BatchNotFound(
                f"ack error , clientId:{client_id} batchId:{batch_id} is not exist , please check"
            )
        first = next(iter(subscriber.marks))
        if batch_id != first:
            raise BatchNotFirst(f"batchId:{batch_id} is not the firstly:{first}")
        return subscriber, subscriber.marks[batch_id]

    def ack(self, client_id: int, batch_id: int) -> None:
        """Confirm the smallest outstanding batch. Raises BatchNotFirst, BatchNotFound."""
        subscriber, mark = self._outstanding(client_id, batch_id)
        del subscriber.marks[batch_id]
        # With no other batch open, what was passed over behind it is done with, too.
        subscriber.acked = mark.end if subscriber.marks else subscriber.next
        self._trim()

    def rollback(self, client_id: int, batch_id: int | None = None) -> None:
        """Take back all outstanding batches, or this one and those after it. Raises
        BatchNotFound."""
        subscriber = self._subscriber(client_id)
        marks = subscriber.marks
        if batch_id is None:
            batch_id = next(iter(marks), None)
            if batch_id is None:
                return
        if batch_id not in marks:
            raise BatchNotFound(
                f"rollback error, clientId:{client_id} batchId:{batch_id} is not exist , "
                "please check"
            )
        subscriber.next = marks[batch_id].start
        for later in [known for known in marks if known >= batch_id]:
            del marks[later]

    def _trim(self) -> None:
        """Drop chunks that every subscriber is done with."""
        if not self._subscribers:
            return
        for slot in self._ring.trim(min(s.acked for s in self._subscribers.values())):
            for subscriber in self._subscribers.values():
                subscriber.forget(slot)

    # --- for status ---------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Fill of the ring and each subscriber's place; plain values."""
        ring = self._ring
        return {
            "chunks": len(ring),
            "entries": ring.put_sequence - ring.first_sequence,
            "bytes": ring.size_bytes,
            "capacity": ring.capacity,
            "batch_mode": self._config.batch_mode,
            "fill": ring.used / ring.capacity,
            "first_position": str(ring.first_position),
            "last_position": str(ring.position_before(ring.put_sequence)),
            "subscribers": {str(s.client_id): self._place(s) for s in self._subscribers.values()},
        }

    def _place(self, subscriber: Subscriber) -> dict[str, Any]:
        behind = self._ring.since(subscriber.acked)
        return {
            "filter": str(subscriber.filter),
            "acked": str(self._ring.position_before(subscriber.acked)),
            "unacked_batches": len(subscriber.marks),
            "entries_behind": self._ring.put_sequence - subscriber.acked,
            "bytes_behind": sum(slot.chunk.info.size_bytes for slot in behind),
        }


def _skipped(view: View, slot: Slot, next_sequence: int) -> int:
    """How many of a view's entries lie before the subscriber's next one."""
    if next_sequence <= slot.first:
        return 0
    return int(np.searchsorted(view.admitted, next_sequence - slot.first))


def _batch(batch_id: int, taken: list[tuple[Slot, int, int, npt.NDArray[np.int64]]]) -> Batch:
    parts = []
    rows = 0
    for slot, first, last, chosen in taken:
        mask = None
        if len(chosen) != last - first:
            mask = np.zeros(slot.count, np.bool_)
            mask[chosen] = True
        parts.append(Part(slot.payload, first, last, mask, slot.chunk.gtid_set))
        rows += int(slot.chunk.info.entries["rows"][chosen].sum())
    slot, _, _, chosen = taken[0]
    start = slot.chunk.info.entries[chosen[0]]
    begin = EntryPosition(slot.chunk.info.head.journal_name, int(start["position"]))
    slot, _, _, chosen = taken[-1]
    stop = slot.chunk.info.entries[chosen[-1]]
    end = EntryPosition(
        slot.chunk.info.head.journal_name, int(stop["position"]) + int(stop["length"])
    )
    count = sum(len(chosen) for *_, chosen in taken)
    return Batch(batch_id, tuple(parts), count, rows, PositionRange(begin, end))
