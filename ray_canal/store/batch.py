"""What one get hands out of the log, and how it is put together from slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ray_canal.protocol.position import EntryPosition
from ray_canal.store.ring import Slot
from ray_canal.store.subscriber import Ints, Lens, Subscriber


@dataclass(frozen=True, slots=True)
class Part:
    """Entries [first, last) of one chunk, those with a true `mask` (None: all).

    `lens`: the mask is not known here; it is what this shows of the chunk, once it was read.
    """

    payload: Any
    first: int
    last: int
    mask: npt.NDArray[np.bool_] | None
    gtid_set: str  # executed before the chunk
    on_disk: bool = False
    lens: Lens | None = None


@dataclass(frozen=True, slots=True)
class PositionRange:
    """Where a batch's first entry starts, and where its last one ends. `ack`: the cursor that its
    ack moves to. (Canal's stays where it is when no transaction begins or ends in the batch.)"""

    start: EntryPosition
    end: EntryPosition
    ack: EntryPosition


@dataclass(frozen=True, slots=True)
class Batch:
    """What one get hands out. Its id rises by one per batch and subscriber."""

    id: int
    parts: tuple[Part, ...]
    entry_count: int
    row_count: int
    range: PositionRange

    @property
    def on_disk(self) -> bool:
        """Whether some of it must be read from disk."""
        return any(part.on_disk for part in self.parts)


@dataclass(frozen=True, slots=True)
class Taken:
    """Of one slot: entries [first, last), `chosen` of them; None: what the lens shows, all of a
    slot on disk."""

    slot: Slot
    first: int
    last: int
    chosen: Ints | None
    count: int
    rows: int


def take(subscriber: Subscriber, slot: Slot, last: int) -> Taken | None:
    """The subscriber's entries of a slot from its next one on and before index `last`; None: it
    has none there. The slot's chunk is there, or all of the slot is taken and its counts are
    known."""
    first = max(subscriber.next - slot.first, 0)
    view = subscriber.view(slot)
    if view is None or not view.count:
        return None
    if slot.chunk is None:
        return Taken(slot, first, last, None, view.count, view.rows)
    low, high = (int(i) for i in np.searchsorted(view.admitted, (first, last)))
    chosen = view.admitted[low:high]
    if not len(chosen):
        return None
    rows = int(slot.chunk.info.entries["rows"][chosen].sum())
    return Taken(slot, first, last, chosen, len(chosen), rows)


def batch_of(
    subscriber: Subscriber, batch_id: int, taken: list[Taken], ack: EntryPosition
) -> Batch:
    """The batch of these entries."""
    parts = []
    for one in taken:
        slot, mask, lens = one.slot, None, None
        if one.chosen is None:
            lens = None if one.count == slot.count else subscriber.lens(slot)
        elif one.count != one.last - one.first:
            mask = np.zeros(slot.count, np.bool_)
            mask[one.chosen] = True
        gtid_set = slot.gtid_set
        parts.append(
            Part(slot.payload, one.first, one.last, mask, gtid_set, slot.on_disk, lens)
        )
    begin, end = _start(taken[0]), _end(taken[-1])
    return Batch(
        batch_id,
        tuple(parts),
        sum(one.count for one in taken),
        sum(one.rows for one in taken),
        PositionRange(begin, end, ack),
    )


def _start(one: Taken) -> EntryPosition:
    slot = one.slot
    if slot.chunk is None or one.chosen is None:
        return slot.begins
    entry = slot.chunk.info.entries[one.chosen[0]]
    return EntryPosition(slot.begins.journal_name, int(entry["position"]))


def _end(one: Taken) -> EntryPosition:
    slot = one.slot
    if slot.chunk is None or one.chosen is None:
        return slot.after
    entry = slot.chunk.info.entries[one.chosen[-1]]
    return EntryPosition(
        slot.begins.journal_name, int(entry["position"]) + int(entry["length"])
    )
