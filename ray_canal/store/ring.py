"""The ring: the log's chunks in order, how full it is, which chunk holds a log sequence.

A log sequence numbers entries from 0 since the generation began. What the chunks mean is not known
here.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ray_canal.config import StoreConfig
from ray_canal.protocol.position import EntryPosition
from ray_canal.store.transaction_buffer import LogChunk

SLOT_BYTES_MIN = 4096
"""What a chunk is charged at least: a chunk of one small transaction costs that much to keep and
refer to."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A chunk in the ring. `first` and `end` are log sequences; `payload` is opaque."""

    chunk: LogChunk
    payload: Any
    first: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.first

    @property
    def charged_bytes(self) -> int:
        return max(self.chunk.info.size_bytes, SLOT_BYTES_MIN)


def _end(slot: Slot) -> int:
    return slot.end


class Ring:
    """Chunks from `start` on. `capacity` is in bytes of binlog (MEMSIZE) or in entries
    (ITEMSIZE)."""

    def __init__(self, config: StoreConfig, start: EntryPosition) -> None:
        self.by_memory = config.batch_mode == "MEMSIZE"
        self.capacity = config.buffer_size * (config.memunit_bytes if self.by_memory else 1)
        self.first_position = start
        self.put_sequence = 0
        self._slots: list[Slot] = []
        self._charged_bytes = 0

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def first_sequence(self) -> int:
        return self._slots[0].first if self._slots else self.put_sequence

    @property
    def used(self) -> int:
        """Of the capacity."""
        return self._charged_bytes if self.by_memory else self.put_sequence - self.first_sequence

    @property
    def size_bytes(self) -> int:
        """Binlog bytes of the chunks."""
        return sum(slot.chunk.info.size_bytes for slot in self._slots)

    def has_room(self, extra_bytes: int) -> bool:
        """Whether so many bytes more fit. An empty ring takes a chunk of any size."""
        if not self._slots:
            return True
        extra = max(extra_bytes, SLOT_BYTES_MIN) if self.by_memory else 1
        return self.used + extra <= self.capacity

    def append(self, chunk: LogChunk, payload: Any) -> None:
        count = len(chunk.info.entries)
        if count:
            slot = Slot(chunk, payload, self.put_sequence, self.put_sequence + count)
            self._slots.append(slot)
            self.put_sequence = slot.end
            self._charged_bytes += slot.charged_bytes

    def since(self, sequence: int) -> Iterator[Slot]:
        """Slots with an entry at or behind `sequence`."""
        return itertools.islice(self._slots, self._index(sequence), None)

    def trim(self, done: int) -> list[Slot]:
        """Drop, and return, the slots that end at or before `done`."""
        count = self._index(done)
        dropped = self._slots[:count]
        if dropped:
            del self._slots[:count]
            self._charged_bytes -= sum(slot.charged_bytes for slot in dropped)
            self.first_position = dropped[-1].chunk.resume_after(dropped[-1].count - 1)
        return dropped

    def position_before(self, sequence: int) -> EntryPosition:
        """Where one restarts who has consumed everything before `sequence`."""
        index = self._index(sequence - 1)
        if index < len(self._slots) and self._slots[index].first < sequence:
            slot = self._slots[index]
            return slot.chunk.resume_after(sequence - 1 - slot.first)
        return self.first_position

    def _index(self, sequence: int) -> int:
        """Of the first slot that ends behind `sequence`."""
        return bisect.bisect_right(self._slots, sequence, key=_end)
