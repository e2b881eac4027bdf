"""The event store: a byte-budgeted log with N subscribers (Canal: MemoryEventStoreWithBuffer).

Canal's put, get and ack sequences, kept per subscriber; accounting is per entry (ITEMSIZE) or by binlog bytes
(MEMSIZE), storage is per chunk. Payloads are opaque references. The log is trimmed by the slowest subscriber;
with none at all it keeps what it has, and is full when it is full. No threads, no clock, no I/O.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ray_canal.config import StoreConfig
from ray_canal.errors import BatchesUnacked, BatchNotFirst, BatchNotFound, NotSubscribed
from ray_canal.filter import TableFilter
from ray_canal.protocol.position import EntryPosition
from ray_canal.store.subscriber import Mark, Slot, Subscriber
from ray_canal.store.transaction_buffer import ROWDATA, LogChunk

QUERY = 7
_FIRST_DDL = 4


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
    """Where a batch's first entry starts, and where the log goes on behind its last one."""

    start: EntryPosition
    end: EntryPosition


@dataclass(frozen=True, slots=True)
class Batch:
    id: int
    parts: tuple[Part, ...]
    entry_count: int
    row_count: int
    range: PositionRange


class EventStore:
    """The log of one generation of an instance, beginning at `start`."""

    def __init__(self, config: StoreConfig, start: EntryPosition) -> None:
        self._config = config
        self._slots: deque[Slot] = deque()
        self._subscribers: dict[int, Subscriber] = {}
        self._put = 0
        self._bytes = 0
        self._first_position = start
        by_memory = config.batch_mode == "MEMSIZE"
        self._by_memory = by_memory
        self.capacity = config.buffer_size * (config.memunit_bytes if by_memory else 1)

    # --- the producer's side ------------------------------------------------------------------

    def has_room(self, extra_bytes: int) -> bool:
        """Whether so many bytes of binlog more fit. An empty log takes a chunk of any size."""
        if not self._slots:
            return True
        if self._by_memory:
            return self._bytes + extra_bytes <= self.capacity
        return self._put - self._slots[0].first < self.capacity

    def put(self, chunk: LogChunk, payload: Any) -> None:
        """Append a chunk."""
        slot = Slot(chunk, payload, self._put)
        if not slot.count:
            return
        self._slots.append(slot)
        self._put = slot.end
        self._bytes += chunk.info.size_bytes

    @property
    def first_position(self) -> EntryPosition:
        """Where the log's oldest entry begins: a new subscriber's cursor."""
        return self._first_position

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
        first = self._slots[0].first if self._slots else self._put
        self._subscribers[client_id] = Subscriber(client_id, table_filter, cursor, first, first)

    def unsubscribe(self, client_id: int) -> None:
        """Forget a subscriber; the log no longer waits for it."""
        self._subscribers.pop(client_id, None)
        self._trim()

    def _subscriber(self, client_id: int) -> Subscriber:
        found = self._subscribers.get(client_id)
        if found is None:
            raise NotSubscribed(f"client {client_id} is not subscribed; call subscribe() first")
        return found

    # --- the consumer's side ------------------------------------------------------------------

    def ready(self, client_id: int, batch_size: int, *, count_all: bool = False) -> bool:
        """Whether a full batch is there; with `count_all`, whether so many entries are there."""
        subscriber = self._subscriber(client_id)
        wanted = batch_size if count_all or not self._by_memory else batch_size * self._unit
        available = 0
        for slot in self._from(subscriber.next):
            view = subscriber.view(slot)
            skipped = int(np.searchsorted(view.admitted, subscriber.next - slot.first))
            count = len(view.admitted) - skipped
            if count and self._config.ddl_isolation and _has_ddl(slot, view.admitted[skipped:]):
                return True
            if self._by_memory and not count_all:
                before = int(view.total_bytes[skipped - 1]) if skipped else 0
                available += int(view.total_bytes[-1]) - before if count else 0
            else:
                available += count
            if available >= wanted:
                return True
        return False

    @property
    def _unit(self) -> int:
        return self._config.memunit_bytes if self._by_memory else 1

    def _from(self, sequence: int) -> list[Slot]:
        return [slot for slot in self._slots if slot.end > sequence]

    def get(self, client_id: int, batch_size: int) -> Batch | None:
        """The next batch, now outstanding; None when nothing is there for this subscriber.

        At most `batch_size` entries (ITEMSIZE) or memory units of binlog (MEMSIZE), at least one entry.
        """
        subscriber = self._subscriber(client_id)
        left = max(batch_size, 1) * self._unit
        parts: list[Part] = []
        ends: list[tuple[Slot, int, int]] = []
        end = subscriber.next
        entry_count = row_count = 0
        for slot in self._from(subscriber.next):
            view = subscriber.view(slot)
            low = max(subscriber.next - slot.first, 0)
            skipped = int(np.searchsorted(view.admitted, low))
            taken, cut = self._take(slot, view, skipped, left, nothing_yet=not parts)
            if not taken:
                if cut:
                    break
                end = slot.end
                continue
            chosen = view.admitted[skipped : skipped + taken]
            last = int(chosen[-1]) + 1 if cut else slot.count
            parts.append(_part(slot, low, last, chosen))
            ends.append((slot, int(chosen[0]), int(chosen[-1])))
            entry_count += taken
            row_count += int(slot.chunk.info.entries["rows"][chosen].sum())
            left -= self._cost(view, skipped, taken)
            end = slot.first + last
            if cut or left <= 0:
                break
        if not parts:
            self._pass_over(subscriber, end)
            return None
        subscriber.last_batch_id += 1
        subscriber.marks[subscriber.last_batch_id] = Mark(subscriber.next, end)
        subscriber.next = end
        span = PositionRange(_start_of(*ends[0][:2]), _end_of(ends[-1][0], ends[-1][2]))
        return Batch(subscriber.last_batch_id, tuple(parts), entry_count, row_count, span)

    def _cost(self, view: Any, skipped: int, taken: int) -> int:
        if not self._by_memory:
            return taken
        before = int(view.total_bytes[skipped - 1]) if skipped else 0
        return int(view.total_bytes[skipped + taken - 1]) - before

    def _take(
        self, slot: Slot, view: Any, skipped: int, left: int, *, nothing_yet: bool
    ) -> tuple[int, bool]:
        """(how many admitted entries fit, whether the batch ends inside this slot)."""
        count = len(view.admitted) - skipped
        if not count:
            return 0, False
        if self._by_memory:
            before = int(view.total_bytes[skipped - 1]) if skipped else 0
            fits = int(np.searchsorted(view.total_bytes[skipped:], before + left, side="right"))
        else:
            fits = min(left, count)
        fits = max(fits, 1 if nothing_yet else 0)
        if self._config.ddl_isolation:
            ddl = np.flatnonzero(_is_ddl(slot, view.admitted[skipped : skipped + fits]))
            if len(ddl):
                fits = max(int(ddl[0]), 1) if nothing_yet else int(ddl[0])
                return fits, True
        return fits, fits < count

    def _pass_over(self, subscriber: Subscriber, end: int) -> None:
        """Nothing up to `end` is for this subscriber: the log need not keep it for it."""
        subscriber.next = max(subscriber.next, end)
        if not subscriber.marks:
            subscriber.acked = subscriber.next
            self._trim()

    def refuse_unacked(self, client_id: int) -> None:
        """Raises BatchesUnacked while batches are outstanding."""
        marks = self._subscriber(client_id).marks
        if marks:
            raise BatchesUnacked(
                f"clientId:{client_id} has unacked batches, the last one is {next(reversed(marks))}; "
                "ack or roll back before get()"
            )

    def batch_ids(self, client_id: int) -> list[int]:
        """Outstanding batches, smallest first."""
        return list(self._subscriber(client_id).marks)

    def cursor_after(self, client_id: int, batch_id: int) -> EntryPosition:
        """The cursor that an ack of this batch moves to. Raises what `ack` would raise."""
        _, mark = self._outstanding(client_id, batch_id)
        slot = next(slot for slot in self._slots if slot.first < mark.end <= slot.end)
        return slot.chunk.resume_after(mark.end - 1 - slot.first)

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
        subscriber.acked = mark.end if subscriber.marks else max(mark.end, subscriber.next)
        self._trim()

    def rollback(self, client_id: int, batch_id: int | None = None) -> None:
        """Give back all outstanding batches, or this one and those after it. Raises BatchNotFound."""
        subscriber = self._subscriber(client_id)
        if batch_id is None:
            if subscriber.marks:
                subscriber.next = next(iter(subscriber.marks.values())).start
            subscriber.marks.clear()
            return
        if batch_id not in subscriber.marks:
            raise BatchNotFound(
                f"rollback error, clientId:{client_id} batchId:{batch_id} is not exist , please check"
            )
        subscriber.next = subscriber.marks[batch_id].start
        for later in [known for known in subscriber.marks if known >= batch_id]:
            del subscriber.marks[later]

    def _trim(self) -> None:
        """Drop chunks that every subscriber is done with."""
        if not self._subscribers:
            return
        done = min(subscriber.acked for subscriber in self._subscribers.values())
        while self._slots and self._slots[0].end <= done:
            slot = self._slots.popleft()
            self._bytes -= slot.chunk.info.size_bytes
            self._first_position = slot.chunk.resume_after(slot.count - 1)
            for subscriber in self._subscribers.values():
                subscriber.forget(slot)

    # --- for status ---------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Fill of the ring and each subscriber's place; plain values."""
        first = self._slots[0].first if self._slots else self._put
        return {
            "chunks": len(self._slots),
            "entries": self._put - first,
            "bytes": self._bytes,
            "capacity": self.capacity,
            "batch_mode": self._config.batch_mode,
            "fill": (self._bytes if self._by_memory else self._put - first) / self.capacity,
            "first_position": str(self._first_position),
            "last_position": str(self._position_before(self._put)),
            "subscribers": {
                str(s.client_id): self._place(s) for s in self._subscribers.values()
            },
        }

    def _place(self, subscriber: Subscriber) -> dict[str, Any]:
        behind = [slot.chunk.info.size_bytes for slot in self._from(subscriber.acked)]
        return {
            "filter": str(subscriber.filter),
            "acked": str(self._position_before(subscriber.acked)),
            "unacked_batches": len(subscriber.marks),
            "entries_behind": self._put - subscriber.acked,
            "bytes_behind": sum(behind),
        }

    def _position_before(self, sequence: int) -> EntryPosition:
        for slot in self._slots:
            if slot.first < sequence <= slot.end:
                return slot.chunk.resume_after(sequence - 1 - slot.first)
        return self._first_position


def _part(slot: Slot, first: int, last: int, chosen: npt.NDArray[np.int64]) -> Part:
    mask = None
    if len(chosen) != last - first:
        mask = np.zeros(slot.count, np.bool_)
        mask[chosen] = True
    return Part(slot.payload, first, last, mask, slot.chunk.gtid_set)


def _start_of(slot: Slot, entry: int) -> EntryPosition:
    return EntryPosition(
        slot.chunk.info.head.journal_name, int(slot.chunk.info.entries["position"][entry])
    )


def _end_of(slot: Slot, entry: int) -> EntryPosition:
    entries = slot.chunk.info.entries
    return EntryPosition(
        slot.chunk.info.head.journal_name,
        int(entries["position"][entry]) + int(entries["length"][entry]),
    )


def _is_ddl(slot: Slot, chosen: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    entries = slot.chunk.info.entries[chosen]
    kinds = entries["event_type"]
    found: npt.NDArray[np.bool_] = (
        (entries["kind"] == ROWDATA) & (kinds >= _FIRST_DDL) & (kinds != QUERY)
    )
    return found


def _has_ddl(slot: Slot, chosen: npt.NDArray[np.int64]) -> bool:
    return bool(_is_ddl(slot, chosen).any())
