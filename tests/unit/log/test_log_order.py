"""Positions in one log: what lies before its start is refused, files may change their base name."""

from __future__ import annotations

import random

import pytest

from ray_canal.config import StoreConfig
from ray_canal.errors import CursorNotInLog, NotSubscribed
from ray_canal.filter import TableFilter
from ray_canal.log.event_store import EventStore
from ray_canal.log.log_order import LogOrder
from ray_canal.log.subscriber import Terms
from ray_canal.log.transaction_buffer import TransactionBuffer
from ray_canal.model.position import EntryPosition
from tests.unit.log.made_log import MadeLog

START = EntryPosition("old-bin.000009")
EVERYTHING = Terms(TableFilter())


def renamed_log() -> MadeLog:
    """Two files of one base name, two of another that sorts before it."""
    log = MadeLog()
    log.base, log.number = "old-bin", 9
    for _ in range(2):
        log.transaction(1, 2)
        log.transaction(1)
        log.rotate()
    log.rename("bin")
    for _ in range(2):
        log.transaction(1)
        log.transaction(3)
        log.rotate()
    return log


def fill(store: EventStore, log: MadeLog, first: int = 0) -> None:
    buffer = TransactionBuffer(START, thin_empty_transactions=False)
    start = store.first_position.boundary
    for info in log.chunks(random.Random(1), first, start):
        assert store.has_room(info.size_bytes)
        store.put(buffer.add(info), None)


def test_keys_stand_in_the_order_of_the_log() -> None:
    log = renamed_log()
    order = LogOrder(START)
    assert order.knows(EntryPosition("old-bin.000001"))
    assert not order.knows(EntryPosition("bin.000001"))
    assert order.key(EntryPosition("bin.000001")) > order.key(EntryPosition("old-bin.999999"))
    for entry in log.entries:
        order.show(entry.journal_name)
    keys = [order.key(log.cursor_after(count)) for count in range(1, len(log.entries) + 1)]
    assert keys == sorted(keys)


def test_a_log_whose_files_are_renamed_serves_all_its_cursors() -> None:
    """b14: positions of two base names in one log raise nothing; each cursor gets what is behind
    it."""
    log = renamed_log()
    for count in range(len(log.entries) + 1):
        store = EventStore(StoreConfig(batch_mode="ITEMSIZE"), START)
        store.subscribe(1, EVERYTHING, START)
        fill(store, log)
        cursor = log.cursor_after(count) if count else START
        store.subscribe(2, EVERYTHING, cursor)
        batch = store.get(2, 10_000)
        got = 0 if batch is None else batch.entry_count
        assert got == len(log.entries) - count, cursor
        if batch is not None:
            store.ack(2, batch.id)
        assert store.get(1, 10_000) is not None
        assert store.tail_position == store.last_position == log.cursor_after(len(log.entries))


def test_a_cursor_before_the_log_is_refused() -> None:
    """A3: a cursor that lies before the log's start is never taken in silence."""
    log = renamed_log()
    start = log.cursor_after(6)
    store = EventStore(StoreConfig(), start)
    for count in range(1, 6):
        with pytest.raises(CursorNotInLog, match="the log begins at") as caught:
            store.subscribe(1, EVERYTHING, log.cursor_after(count))
        assert caught.value.retryable
    with pytest.raises(NotSubscribed):
        store.get(1, 1)
    for client_id, count in enumerate((6, 7, 8)):
        store.subscribe(client_id, EVERYTHING, log.cursor_after(count))


def test_a_cursor_of_files_that_the_log_does_not_know_is_refused() -> None:
    """b14: nobody can say whether it lies before the log or behind it."""
    store = EventStore(StoreConfig(), START)
    with pytest.raises(CursorNotInLog):
        store.subscribe(1, EVERYTHING, EntryPosition("other.000001"))


def test_who_has_passed_over_its_cursor_keeps_its_place() -> None:
    """A3: a known subscriber, of which the log needs nothing, is not measured by its old cursor."""
    log = renamed_log()
    nobody = Terms(TableFilter(r"nobody\.here"))
    store = EventStore(StoreConfig(batch_mode="ITEMSIZE"), START)
    store.subscribe(1, EVERYTHING, START)
    store.subscribe(2, nobody, START)
    fill(store, log)
    batch = store.get(1, 10_000)
    assert batch is not None
    store.ack(1, batch.id)
    while (behind := store.get(2, 10_000)) is not None:
        store.ack(2, behind.id)
    assert store.first_position != START
    store.subscribe(2, EVERYTHING, START)
