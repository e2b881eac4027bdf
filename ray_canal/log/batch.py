"""Make a batch, which one get hands out of the log, from slots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ray_canal.log.ring import Slot
from ray_canal.log.subscriber import Subscriber
from ray_canal.model.arrays import Bools, Int64s
from ray_canal.model.message import MessagePart
from ray_canal.model.position import EntryPosition


@dataclass(frozen=True, slots=True)
class PositionRange:
    """The range from a batch's first entry to the end of its last one. `ack`: the cursor that its
    ack moves to. (Canal's stays where it is when no transaction begins or ends in the batch.)"""

    start: EntryPosition
    end: EntryPosition
    ack: EntryPosition


@dataclass(frozen=True, slots=True)
class Batch:
    """The answer to one get. Its id rises by one per batch and subscriber. The payload of a part is
    what the chunk was put with, or its segment on disk."""

    id: int
    parts: tuple[MessagePart, ...]
    entry_count: int
    row_count: int
    range: PositionRange

    @property
    def on_disk(self) -> bool:
        """Return whether some of it must be read from disk."""
        return any(part.on_disk for part in self.parts)


@dataclass(frozen=True, slots=True)
class ChunkSlice:
    """Entries [first, last) of one slot, those with a true `mask` (None: all). `ends`: indexes of
    the first and the last of them; None of a slot that is only on disk."""

    slot: Slot
    first: int
    last: int
    mask: Bools | None
    ends: tuple[int, int] | None
    count: int
    rows: int


def slice_of(subscriber: Subscriber, slot: Slot, last: int) -> ChunkSlice | None:
    """The subscriber's entries of a slot from its next one on and before index `last`; None: it
    has none there. The slot's chunk is there, or all of the slot is taken and its counts are
    known."""
    first = max(subscriber.next - slot.first, 0)
    view = subscriber.view(slot)
    if view is None or not view.count:
        return None
    if slot.chunk is None:
        return ChunkSlice(slot, first, last, view.mask(slot.count), None, view.count, view.rows)
    if view.count == last - first == slot.count:
        return ChunkSlice(slot, first, last, None, (first, last - 1), view.count, view.rows)
    low, high = (int(i) for i in np.searchsorted(view.admitted, (first, last)))
    chosen = view.admitted[low:high]
    if not len(chosen):
        return None
    rows = int(slot.chunk.info.entries["rows"][chosen].sum())
    mask = _mask(chosen, slot.count) if len(chosen) < last - first else None
    return ChunkSlice(slot, first, last, mask, (int(chosen[0]), int(chosen[-1])), len(chosen), rows)


def _mask(chosen: Int64s, count: int) -> Bools:
    mask = np.zeros(count, np.bool_)
    mask[chosen] = True
    return mask


def batch_of(
    subscriber: Subscriber, batch_id: int, taken: list[ChunkSlice], ack: EntryPosition
) -> Batch:
    """The batch of these entries."""
    parts = tuple(_part(subscriber, one) for one in taken)
    begin, end = _start(taken[0]), _end(taken[-1])
    return Batch(
        batch_id,
        parts,
        sum(one.count for one in taken),
        sum(one.rows for one in taken),
        PositionRange(begin, end, ack),
    )


def _part(subscriber: Subscriber, one: ChunkSlice) -> MessagePart:
    slot, is_open, view = one.slot, one.slot.open, subscriber.view(one.slot)
    assert view is not None
    return MessagePart(
        slot.payload,
        max(one.first, view.consumed),
        one.last,
        one.mask,
        slot.gtid_set,
        slot.on_disk,
        None if is_open is None else is_open.seen(subscriber.terms.filter.admits),
        view.tables,
    )


def _start(one: ChunkSlice) -> EntryPosition:
    slot = one.slot
    if slot.chunk is None or one.ends is None:
        return slot.begins
    entry = slot.chunk.info.entries[one.ends[0]]
    return EntryPosition(slot.begins.journal_name, int(entry["position"]))


def _end(one: ChunkSlice) -> EntryPosition:
    slot = one.slot
    if slot.chunk is None or one.ends is None or slot.tag is not None:
        return slot.after.boundary
    entry = slot.chunk.info.entries[one.ends[1]]
    return EntryPosition(slot.begins.journal_name, int(entry["position"]) + int(entry["length"]))
