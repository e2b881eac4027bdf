"""Chunks on disk: read back, forgotten again, and dropped once."""

from __future__ import annotations

import pytest

from ray_canal.config import StoreConfig
from ray_canal.filter import TableFilter
from ray_canal.log.event_store import EventStore
from ray_canal.log.ring import Ring
from ray_canal.log.spilling import _RESTORED_MAX, Spilling
from ray_canal.log.subscriber import Subscriber, Terms
from ray_canal.log.transaction_buffer import LogChunk, TransactionBuffer
from ray_canal.model.position import EntryPosition
from ray_canal.model.subscription import Policy
from tests.unit.log.made_log import MadeLog, info_of

START = EntryPosition("binlog.000001")
CHUNKS = _RESTORED_MAX + 4


def spilled_store() -> tuple[EventStore, dict[str, LogChunk]]:
    """A store whose chunks of three entries are all on disk but the last one."""
    store = EventStore(StoreConfig(), START, spill_bytes=1 << 30)
    store.subscribe(1, Terms(TableFilter(r".*\..*"), "spill"), None)
    log, buffer, disk = MadeLog(), TransactionBuffer(START), {}
    for number in range(CHUNKS):
        log.transaction(1)
        store.put(buffer.add(info_of(log.entries[-3:], number, None if number else 4)), number)
    while (slot := store.spillable()) is not None:
        assert slot.chunk is not None
        name = f"segment {slot.payload}"
        disk[name] = slot.chunk
        assert store.spilled(slot.first, name, 10)
    return store, disk


def test_chunks_that_were_read_back_are_forgotten_the_oldest_first() -> None:
    store, disk = spilled_store()
    slots = []
    for first in range(0, 3 * CHUNKS, 3):
        slot = store._ring.at(first)
        if slot is not None and slot.on_disk:
            store.restore(first, disk[slot.payload])
            slots.append(slot)
    kept = [slot.chunk is not None for slot in slots]
    assert kept == [False] * (len(slots) - _RESTORED_MAX) + [True] * _RESTORED_MAX


def test_a_segment_that_nobody_needs_is_dropped_once() -> None:
    store, disk = spilled_store()
    while (slot := store.missing(1, 3)) is not None:
        store.restore(slot.first, disk[slot.payload])
        batch = store.get(1, 3)
        assert batch is not None
        store.ack(1, batch.id)
    assert store.take_dropped() == list(disk)
    assert store.take_dropped() == []


@pytest.mark.parametrize(
    ("policy", "transactions", "at_start"),
    [("detach", False, False), ("detach", True, True), ("spill", False, True),
     ("block", False, True)],
)  # fmt: skip
def test_who_may_not_read_from_disk_comes_back_behind_what_goes_there(
    policy: Policy, transactions: bool, at_start: bool
) -> None:
    """It kept the next chunk from going to disk, and was sent away again with each message."""
    store, _ = spilled_store()
    terms = Terms(TableFilter(r".*\..*"), policy, transactions)
    for client_id, position, comes_back in ((2, START, at_start), (3, store.last_position, True)):
        own = EventStore(StoreConfig(), START)
        own.subscribe(client_id, terms, position)
        assert store.take_over(own, client_id, terms) == comes_back


def is_waiting(subscriber: Subscriber) -> bool:
    return subscriber.terms.transactions


def test_without_room_on_disk_it_is_full() -> None:
    ring = Ring(StoreConfig(), START)
    log = MadeLog()
    log.transaction(1)
    ring.append(TransactionBuffer(START).add(info_of(log.entries, 0, 4)), 0)
    store = EventStore(StoreConfig(), START)
    store.subscribe(1, Terms(TableFilter(r".*\..*"), "spill"), None)
    subscribers = list(store._subscribers.values())
    slot = ring.at(0)
    assert slot is not None
    slot.arena_bytes = 100
    spilling = Spilling(ring, 99)
    assert spilling.spillable(subscribers, is_waiting) is None
    assert spilling.is_full
    assert Spilling(ring, 1 << 30).spillable(subscribers, is_waiting) is slot
