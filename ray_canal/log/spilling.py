"""Decide which chunks of the log are on disk: moved there, read back, and dropped."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping

from ray_canal.log.ring import Ring, Slot, index_bytes_max
from ray_canal.log.subscriber import Subscriber, Terms
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.message import Payload
from ray_canal.model.position import EntryPosition

_RESTORED_MAX = 16
"""Chunks that are kept after they were read back from disk; a get needs two at most."""


class Spilling:
    """Chunks of a ring that are on disk, at most `spill_bytes`. `is_full`: the last `spillable`
    found a chunk that the disk has no room for."""

    def __init__(self, ring: Ring, spill_bytes: int) -> None:
        self._ring = ring
        self._spill_bytes = spill_bytes
        self._dropped: list[Payload] = []
        self._restored: deque[Slot] = deque()
        self.is_full = False

    def spillable(
        self, subscribers: Collection[Subscriber], needs_more: Callable[[Subscriber], bool]
    ) -> Slot | None:
        """Return the oldest chunk in memory, if it may go to disk now, else None. `is_full` says
        afterwards whether only the disk's limit is in the way.

        It may if all subscribers that still need it may read it from disk, or one of them needs
        more than the memory has: it and a `block` one, which has read what there is, would wait
        for each other."""
        self.is_full = False
        slot = self._ring.first_in_memory()
        if slot is None or slot.chunk is None:
            return None
        needing = [s for s in subscribers if s.needed_from < slot.end]
        if not needing:
            return None
        if not all(s.terms.may_spill for s in needing) and not any(map(needs_more, needing)):
            return None
        ring, index_bytes = self._ring, slot.index_bytes_of(len(subscribers))
        self.is_full = (
            ring.disk_bytes + slot.arena_bytes > self._spill_bytes
            or ring.index_bytes + index_bytes > index_bytes_max(self._spill_bytes)
        )
        return None if self.is_full else slot

    def spilled(
        self, first: int, segment: Payload, disk_bytes: int, subscribers: Collection[Subscriber]
    ) -> bool:
        """Replace the payload of the slot at `first` by its segment; return False if nobody needs
        the slot any more."""
        slot = self._ring.at(first)
        if slot is None or slot.on_disk:
            return False
        for subscriber in subscribers:
            if subscriber.needed_from < slot.end:
                subscriber.view(slot)
                subscriber.reduce(slot)
        self._ring.move_to_disk(slot, segment, disk_bytes, len(subscribers))
        return True

    def restore(self, first: int, chunk: LogChunk, subscribers: Collection[Subscriber]) -> None:
        """Put back the chunk of a slot on disk; the chunk restored longest ago is forgotten."""
        slot = self._ring.at(first)
        if slot is None or not slot.on_disk or slot.chunk is not None:
            return
        slot.chunk = chunk
        for subscriber in subscribers:
            if subscriber.next < slot.end:
                subscriber.view(slot)
        self._restored.append(slot)
        while len(self._restored) > _RESTORED_MAX:
            oldest = self._restored.popleft()
            oldest.chunk = None
            for subscriber in subscribers:
                subscriber.reduce(oldest)

    def detachable(
        self, subscribers: Collection[Subscriber], places: Mapping[int, int]
    ) -> list[int]:
        """Return the subscribers with the policy `detach` that alone keep the log full. `places`:
        the log sequence that is kept for each client id that is about to come."""
        slot = self._ring.first_in_memory()
        if slot is None:
            return []
        needing = [s for s in subscribers if s.needed_from < slot.end]
        if any(s.terms.policy == "block" and not s.terms.may_spill for s in needing):
            return []
        found = [client_id for client_id, first in places.items() if first < slot.end]
        return found + [s.client_id for s in needing if s.terms.policy == "detach"]

    def rejects(self, position: EntryPosition, terms: Terms) -> bool:
        """Return whether a subscriber that comes at a position would be `detachable` at once: what
        follows is on disk, or goes there next, and it may not read it there."""
        if terms.policy != "detach" or terms.may_spill or not self._ring.disk_bytes:
            return False
        oldest, key = self._ring.first_in_memory(), self._ring.order.key
        end = self._ring.put_sequence if oldest is None else oldest.end
        return key(position) < key(self._ring.position_before(end))

    def held_by(
        self, subscribers: Collection[Subscriber], places: Mapping[int, int]
    ) -> list[int]:
        """Return the subscribers that need the oldest chunk in memory for the longest."""
        slot = self._ring.first_in_memory()
        if slot is None:
            return []
        needing = {s.client_id: s.needed_from for s in subscribers} | dict(places)
        first = min(needing.values(), default=slot.end)
        return sorted(i for i, holds in needing.items() if holds == first < slot.end)

    def drop(self, slot: Slot) -> None:
        """Note that the ring has dropped a slot."""
        if slot.on_disk:
            self._dropped.append(slot.payload)
            if slot in self._restored:
                self._restored.remove(slot)

    def take_dropped(self) -> list[Payload]:
        """Return segments that nobody needs any more; each is returned once."""
        dropped, self._dropped = self._dropped, []
        return dropped
