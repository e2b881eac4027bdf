"""The ring: the log's chunks in order, how full it is, which chunk holds a log sequence.

A log sequence numbers entries from 0 since the generation began. A slot's chunk may be on disk:
then the ring keeps what it needs to go past it, no more. What the chunks mean is not known here.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ray_canal.config import StoreConfig
from ray_canal.log.log_order import LogOrder
from ray_canal.log.snapshot_tag import SnapshotTag
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.log_context import OpenTransaction
from ray_canal.model.message import Payload
from ray_canal.model.position import EntryPosition

SLOT_BYTES_MIN = 4096
"""Bytes that a chunk is charged at least: a chunk of one small transaction costs that much to keep
and refer to."""

_SLOT_INDEX_BYTES = 1536
_VIEW_INDEX_BYTES = 256
_INDEX_BYTES_MIN, _INDEX_SHARE = 16 << 20, 32


def index_bytes_max(spill_bytes: int) -> int:
    """Return the most memory, in bytes, for what is kept of chunks on disk; many small ones fill it
    before they fill the disk."""
    return max(_INDEX_BYTES_MIN, spill_bytes // _INDEX_SHARE)


@dataclass(slots=True, eq=False)
class Slot:
    """A chunk in the ring. `first` and `end` are log sequences; `payload` is opaque.

    `chunk` is None while it is on disk only. `begins` is where its first entry starts, `after`
    where one restarts behind the slot; `open` is the transaction that is open where it begins;
    `last_close` is the index of the last entry that ends a transaction (-1: none does). `tag`: as
    of LogChunk.
    """

    chunk: LogChunk | None
    payload: Payload
    first: int
    end: int
    size_bytes: int
    gtid_set: str
    begins: EntryPosition
    after: EntryPosition
    last_close: int
    arena_bytes: int
    open: OpenTransaction | None = None
    tag: SnapshotTag | None = None
    on_disk: bool = False
    disk_bytes: int = 0
    index_bytes: int = 0

    @property
    def count(self) -> int:
        """Return the number of its entries."""
        return self.end - self.first

    @property
    def charged_bytes(self) -> int:
        """Return the memory that a chunk counts for: what its columns take, where that is more than
        its events, and its GTID sets."""
        if self.on_disk:
            return 0
        return max(max(self.size_bytes, self.arena_bytes) + self._texts_bytes, SLOT_BYTES_MIN)

    @property
    def _texts_bytes(self) -> int:
        return len(self.gtid_set) + len(self.after.gtid)

    def index_bytes_of(self, subscribers: int) -> int:
        """Memory that it takes while it is on disk: positions, GTID sets, and of each subscriber
        a bit for each entry."""
        of_subscribers = subscribers * (_VIEW_INDEX_BYTES + self.count // 8)
        return _SLOT_INDEX_BYTES + self._texts_bytes + of_subscribers


def slot_of(chunk: LogChunk, payload: Payload, first: int) -> Slot:
    """The slot of a chunk whose first entry has the log sequence `first`."""
    ends, after = chunk.closing, chunk.after
    assert after is not None
    return Slot(
        chunk,
        payload,
        first,
        first + len(chunk.info.entries),
        chunk.info.size_bytes,
        chunk.gtid_set,
        EntryPosition(chunk.info.head.journal_name, int(chunk.info.entries["position"][0])),
        after,
        int(ends[-1]) if len(ends) else -1,
        chunk.info.arena_bytes,
        chunk.open,
        chunk.tag,
    )


def _end(slot: Slot) -> int:
    return slot.end


class Ring:
    """Chunks from `start` on. `capacity` is in bytes of binlog (MEMSIZE) or in entries (ITEMSIZE),
    of what is in memory."""

    def __init__(self, config: StoreConfig, start: EntryPosition) -> None:
        self.by_memory = config.batch_mode == "MEMSIZE"
        self.capacity = config.buffer_size * (config.memunit_bytes if self.by_memory else 1)
        self.first_position = start
        self.order = LogOrder(start)
        self.put_sequence = 0
        self.disk_bytes = 0
        self.index_bytes = 0
        self._slots: list[Slot] = []
        self._charged_bytes = 0
        self._entries_on_disk = 0
        self._slots_on_disk = 0

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def first_sequence(self) -> int:
        """Return the sequence number of the oldest entry; without one, that of the next."""
        return self._slots[0].first if self._slots else self.put_sequence

    @property
    def used(self) -> int:
        """Return how much of the capacity is used."""
        if self.by_memory:
            return self._charged_bytes
        return self.put_sequence - self.first_sequence - self._entries_on_disk

    @property
    def size_bytes(self) -> int:
        """Binlog bytes of the chunks."""
        return sum(slot.size_bytes for slot in self._slots)

    def has_room(self, extra_bytes: int) -> bool:
        """Return whether so many bytes more fit. With nothing in memory a chunk of any size
        does."""
        if len(self._slots) == self._slots_on_disk:
            return True
        extra = max(extra_bytes, SLOT_BYTES_MIN) if self.by_memory else 1
        return self.used + extra <= self.capacity

    def append(self, chunk: LogChunk, payload: Payload) -> None:
        if len(chunk.info.entries):
            slot = slot_of(chunk, payload, self.put_sequence)
            self.order.show(chunk.info.head.journal_name)
            self._slots.append(slot)
            self.put_sequence = slot.end
            self._charged_bytes += slot.charged_bytes

    def since(self, sequence: int) -> Iterator[Slot]:
        """Yield the slots with an entry at or after `sequence`."""
        return itertools.islice(self._slots, self._index(sequence), None)

    def time_of(self, sequence: int) -> int | None:
        """Return the header time, in seconds, of the entry at `sequence`; of one on disk, that of
        its slot's last. None: the log does not have it (yet), or it has no time."""
        slot = next(self.since(sequence), None)
        if slot is None:
            return None
        if slot.chunk is None or sequence < slot.first:
            return slot.after.timestamp or None
        return int(slot.chunk.info.entries["timestamp"][sequence - slot.first]) or None

    def tags(self, start: int, end: int, attempt_name: str) -> list[SnapshotTag]:
        """The tags of this attempt of slots that end in this range of log sequences."""
        if not attempt_name:
            return []
        slots = itertools.takewhile(lambda slot: slot.end <= end, self.since(start))
        return [
            slot.tag
            for slot in slots
            if slot.tag is not None and slot.tag.attempt_name == attempt_name
        ]

    def at(self, first: int) -> Slot | None:
        """The slot that begins at this log sequence, if it is still there."""
        index = self._index(first)
        if index < len(self._slots) and self._slots[index].first == first:
            return self._slots[index]
        return None

    @property
    def first_end(self) -> int:
        """Return the end position of the oldest slot."""
        return self._slots[0].end if self._slots else self.put_sequence

    def payloads(self) -> list[Payload]:
        """Return the payloads of the chunks in memory, as they were put."""
        return [slot.payload for slot in self._slots if not slot.on_disk]

    def first_in_memory(self) -> Slot | None:
        """Return the oldest chunk in memory; None: there is none."""
        return next((slot for slot in self._slots if not slot.on_disk), None)

    def move_to_disk(self, slot: Slot, segment: Payload, disk_bytes: int, subscribers: int) -> None:
        """Replace the slot's payload by `segment`: from now on its chunk is read from there when
        needed, by so many subscribers."""
        self._charged_bytes -= slot.charged_bytes
        slot.chunk, slot.payload = None, segment
        slot.on_disk, slot.disk_bytes = True, disk_bytes
        self.disk_bytes += disk_bytes
        slot.index_bytes = slot.index_bytes_of(subscribers)
        self.index_bytes += slot.index_bytes
        self._entries_on_disk += slot.count
        self._slots_on_disk += 1

    def trim(self, done: int) -> list[Slot]:
        """Drop, and return, the slots that end at or before `done`."""
        count = self._index(done)
        dropped = self._slots[:count]
        if dropped:
            del self._slots[:count]
            for slot in dropped:
                self._charged_bytes -= slot.charged_bytes
                self.disk_bytes -= slot.disk_bytes
                self.index_bytes -= slot.index_bytes
                self._entries_on_disk -= slot.count if slot.on_disk else 0
                self._slots_on_disk -= slot.on_disk
            self.first_position = dropped[-1].after
        return dropped

    def position_before(self, sequence: int) -> EntryPosition:
        """Return where one restarts who has consumed everything before `sequence`.

        Inside a slot on disk: everything before that slot.
        """
        index = self._index(sequence - 1)
        if index < len(self._slots) and self._slots[index].first < sequence:
            slot = self._slots[index]
            if sequence == slot.end:
                return slot.after
            if slot.chunk is not None:
                return slot.chunk.resume_after(sequence - 1 - slot.first)
            return self.position_before(slot.first)
        return self.first_position

    def _index(self, sequence: int) -> int:
        """Return the index of the first slot that ends after `sequence`."""
        return bisect.bisect_right(self._slots, sequence, key=_end)
