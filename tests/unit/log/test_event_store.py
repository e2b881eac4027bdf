"""EventStore, each rule by itself; test_random_schedule.py has them all at once."""

from __future__ import annotations

import pytest

from ray_canal.config import StoreConfig
from ray_canal.errors import (
    BatchesUnacked,
    BatchNotFirst,
    BatchNotFound,
    InstanceRestarted,
    NotSubscribed,
)
from ray_canal.filter import TableFilter
from ray_canal.log.event_store import EventStore
from ray_canal.log.subscriber import Terms
from ray_canal.log.transaction_buffer import TransactionBuffer
from tests.unit.log.filled import EVERYTHING, START, filled, put, transactions
from tests.unit.log.made_log import MadeLog, info_of


def test_before_subscribe_everything_is_refused() -> None:
    store = EventStore(StoreConfig(), START)
    for call in (
        lambda: store.get(7, 1),
        lambda: store.ready(7, 1),
        lambda: store.ack(7, 1),
        lambda: store.cursor_after(7, 1),
        lambda: store.rollback(7),
        lambda: store.refuse_unacked(7),
        lambda: store.batch_ids(7),
    ):
        with pytest.raises(NotSubscribed, match="clientId:7 should subscribe first"):
            call()


def test_acks_in_order_with_canals_texts() -> None:
    store = filled(transactions(3), batch_mode="ITEMSIZE")
    assert [store.get(1, 3).id for _ in range(3)] == [1, 2, 3]  # type: ignore[union-attr]
    with pytest.raises(BatchNotFirst, match=r"^batchId:2 is not the firstly:1$"):
        store.ack(1, 2)
    text = r"^ack error , clientId:1 batchId:9 is not exist , please check$"
    with pytest.raises(BatchNotFound, match=text):
        store.ack(1, 9)
    store.ack(1, 1)
    with pytest.raises(BatchNotFound):
        store.ack(1, 1)
    text = r"^clientId:1 has last batch:\[3\] isn.t ack , maybe loss data$"
    with pytest.raises(BatchesUnacked, match=text):
        store.refuse_unacked(1)
    store.ack(1, 2)
    store.ack(1, 3)
    store.refuse_unacked(1)


def test_rollback_brings_the_same_entries_under_new_ids() -> None:
    store = filled(transactions(3), batch_mode="ITEMSIZE")
    first, second, third = (store.get(1, 3) for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    store.rollback(1, second.id)
    assert store.batch_ids(1) == [1]
    again = store.get(1, 6)
    assert again is not None
    assert (again.id, again.range) == (
        4,
        type(again.range)(second.range.start, third.range.end, third.range.ack),
    )
    store.rollback(1)
    whole = store.get(1, 100)
    assert whole is not None
    assert (whole.id, whole.entry_count) == (5, 9)
    with pytest.raises(BatchNotFound, match="batchId:1 is not exist"):
        store.rollback(1, 1)


def test_no_batch_ends_inside_what_a_ddl_of_several_tables_resumes() -> None:
    """DROP TABLE a, b, c is one event: acked in part, the rest comes again."""
    log = transactions(1)
    log.ddl(tables=3)
    log.transaction(1)
    store = filled(log, batch_mode="ITEMSIZE")
    batch = store.get(1, 4)
    assert batch is not None
    assert store.cursor_after(1, batch.id) == log.cursor_after(4)
    assert log.cursor_after(4).position == log.cursor_after(3).position
    store.get(1, 2)
    store.ack(1, 1)
    assert store.cursor_after(1, 2) == log.cursor_after(6)


def test_a_cursor_inside_a_transaction_skips_just_its_rows() -> None:
    log = transactions(1)
    log.transaction(5, 1, 2)
    cursor = log.cursor_after(6)
    assert cursor.row == 6
    store = EventStore(StoreConfig(batch_mode="ITEMSIZE"), START)
    store.subscribe(1, EVERYTHING, cursor)
    store.subscribe(2, EVERYTHING, START)
    put(store, log)
    batch = store.get(1, 10)
    assert batch is not None
    assert (batch.entry_count, batch.row_count) == (2, 2)
    assert store.get(2, 10).entry_count == 8  # type: ignore[union-attr]


def test_what_has_no_rows_is_told_by_the_entry_count() -> None:
    """BEGIN and the statement behind it resume at the same place with the same rows."""
    log = transactions(1)
    log.begin()
    log.statement()
    log.row_event()
    log.end()
    for count in range(3, 8):
        cursor = log.cursor_after(count)
        assert (cursor.entry, cursor.row) == {
            3: (0, 0), 4: (1, 0), 5: (2, 0), 6: (3, 1), 7: (0, 0)
        }[count]  # fmt: skip
        store = EventStore(StoreConfig(), cursor)
        store.subscribe(1, EVERYTHING, cursor)
        put(store, log)
        batch = store.get(1, 10)
        assert (0 if batch is None else batch.entry_count) == 7 - count


def test_a_cursor_holds_for_the_past_only() -> None:
    """After RESET MASTER file names start again: what comes behind newer entries is new."""
    log = MadeLog()
    log.number = 7
    log.transaction(1)
    cursor = log.cursor_after(2)
    store = EventStore(StoreConfig(batch_mode="ITEMSIZE"), cursor)
    store.subscribe(1, EVERYTHING, cursor)
    store.put(TransactionBuffer(cursor).add(info_of(log.entries)), "before")
    assert store.get(1, 100).entry_count == 1  # type: ignore[union-attr]
    reset = transactions(2)
    store.put(TransactionBuffer(START).add(info_of(reset.entries)), "after")
    assert store.get(1, 100).entry_count == 6  # type: ignore[union-attr]


def test_the_slowest_subscriber_holds_the_log() -> None:
    log = transactions(4)
    store = filled(log, cuts=(3, 6, 9), batch_mode="ITEMSIZE")
    store.subscribe(2, EVERYTHING, None)
    batch = store.get(1, 12)
    assert batch is not None
    store.ack(1, batch.id)
    assert store.stats()["chunks"] == 4
    part = store.get(2, 7)
    assert part is not None
    assert store.stats()["chunks"] == 4, "handed out is not acked"
    store.ack(2, part.id)
    assert store.stats()["chunks"] == 2
    assert store.first_position == log.cursor_after(6)
    store.unsubscribe(2)
    assert store.stats()["chunks"] == 0
    assert store.first_position == log.cursor_after(12)


def test_what_a_filter_holds_back_does_not_hold_the_log() -> None:
    log = MadeLog()
    for _ in range(3):
        log.add(2, 1, rows=1, table=2)
    store = EventStore(StoreConfig(), START)
    store.subscribe(1, Terms(TableFilter(r"shop\..*")), None)
    put(store, log)
    assert not store.ready(1, 1, count_all=True)
    assert store.get(1, 10) is None
    assert store.stats()["chunks"] == 0


def test_without_any_subscriber_the_log_keeps_and_fills() -> None:
    store = EventStore(StoreConfig(buffer_size=16, memunit_bytes=1024), START)
    assert store.has_room(10**9), "an empty log takes a chunk of any size"
    for number in range(4):
        assert store.has_room(4096)
        store.put(TransactionBuffer(START).add(info_of(transactions(1).entries)), number)
    assert not store.has_room(1)
    stats = store.stats()
    assert (stats["fill"], stats["chunks"], stats["subscribers"]) == (1.0, 4, {})
    store.subscribe(1, EVERYTHING, store.first_position)
    assert store.get(1, 1000).entry_count == 12  # type: ignore[union-attr]


def test_itemsize_capacity_counts_entries() -> None:
    store = EventStore(StoreConfig(buffer_size=4, batch_mode="ITEMSIZE"), START)
    store.subscribe(1, EVERYTHING, None)
    put(store, transactions(1))
    assert store.has_room(10**9)
    put(store, transactions(1))
    assert not store.has_room(0)


def test_filters_are_each_subscribers_own_and_change_from_the_next_get_on() -> None:
    log = MadeLog()
    for table in (0, 2, 0, 2):
        log.transaction(1, table=table)
    store = filled(log, batch_mode="ITEMSIZE")
    store.subscribe(2, Terms(TableFilter(r"crm\.person")), None)
    mine = store.get(2, 5)
    assert mine is not None
    assert mine.row_count == 1
    assert mine.parts[0].mask is not None
    assert mine.parts[0].mask[:6].tolist() == [True, False, True, True, True, True]
    store.subscribe(2, Terms(TableFilter(r"shop\.item")), None)
    rest = store.get(2, 100)
    assert rest is not None
    assert (rest.entry_count, rest.row_count) == (5, 1)
    assert store.get(1, 100).row_count == 4  # type: ignore[union-attr]


def test_thinned_entries_are_not_delivered_but_passed() -> None:
    log = transactions(1)
    for _ in range(3):
        log.transaction()
    log.transaction(1)
    store = EventStore(StoreConfig(), START)
    store.subscribe(1, EVERYTHING, None)
    store.put(TransactionBuffer(START).add(info_of(log.entries)), "payload")
    batch = store.get(1, 100)
    assert batch is not None
    assert batch.entry_count == 8  # the first empty transaction passes
    assert store.cursor_after(1, 1) == log.cursor_after(len(log.entries))


def test_batch_ids_go_on_and_those_of_an_earlier_generation_are_void() -> None:
    """Also behind an unsubscribe: an id never means two batches."""
    store = EventStore(StoreConfig(batch_mode="ITEMSIZE"), START, batch_ids_from=1 << 32)
    store.subscribe(1, EVERYTHING, None)
    put(store, transactions(4))
    assert store.get(1, 3).id == (1 << 32) + 1  # type: ignore[union-attr]
    for call in (store.ack, store.rollback, store.cursor_after):
        with pytest.raises(InstanceRestarted, match="batch 1 was handed out before"):
            call(1, 1)
    store.ack(1, (1 << 32) + 1)
    store.subscribe(2, EVERYTHING, None)
    store.unsubscribe(1)
    store.subscribe(1, EVERYTHING, None)
    assert store.get(1, 3).id == (1 << 32) + 2  # type: ignore[union-attr]


def test_batches_of_another_log_are_void_where_the_subscriber_goes_on() -> None:
    """A subscriber that comes back from a catch-up, or was unsubscribed, is told that a batch of
    before is void, and not that there never was one."""
    store = EventStore(StoreConfig(batch_mode="ITEMSIZE"), START)
    store.subscribe(1, EVERYTHING, None, last_batch_id=7)
    put(store, transactions(4))
    for call in (store.ack, store.rollback, store.cursor_after):
        with pytest.raises(InstanceRestarted, match="batch 7 was handed out before"):
            call(1, 7)
    batch = store.get(1, 3)
    assert batch is not None
    assert batch.id == 8
    with pytest.raises(BatchNotFound):
        store.ack(1, 9)


def test_a_batch_tells_where_its_ack_leads() -> None:
    """Canal's range has an ack point, too; its cursor stays where it is within a transaction."""
    log = transactions(1, rows=4)
    store = filled(log, batch_mode="ITEMSIZE")
    first, rest = store.get(1, 2), store.get(1, 9)
    assert first is not None
    assert rest is not None
    assert (first.range.ack, rest.range.ack) == (log.cursor_after(2), log.cursor_after(3))
    assert (first.range.ack.row, first.range.ack.entry) == (4, 2)
    assert store.cursor_after(1, first.id) == first.range.ack


def test_an_open_transaction_appears_when_it_is_whole_or_the_log_is_full() -> None:
    log = transactions(1)
    log.transaction(1, 1, 1)
    store = EventStore(StoreConfig(), START)
    store.subscribe(1, EVERYTHING, None)
    buffer = TransactionBuffer(START, transaction_size=4)
    store.put(buffer.add(info_of(log.entries[:5], 0, 4)), 0)
    assert store.get(1, 100).entry_count == 3  # type: ignore[union-attr]
    assert not store.ready(1, 1, count_all=True)
    assert store.get(1, 100) is None
    store.put(buffer.add(info_of(log.entries[5:], 1)), 1)
    assert store.get(1, 100).entry_count == 5  # type: ignore[union-attr]
    log.begin()
    store.put(buffer.add(info_of(log.entries[8:], 2)), 2)
    assert store.get(1, 100) is None
    store.flush()
    assert store.get(1, 100).entry_count == 1  # type: ignore[union-attr]


def test_many_small_chunks_fill_the_index_before_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray_canal.log.ring._INDEX_BYTES_MIN", 10_000)
    store = EventStore(StoreConfig(), START, spill_bytes=100_000)
    store.subscribe(1, Terms(TableFilter(r".*\..*"), "spill"), None)
    log, buffer, moved = MadeLog(), TransactionBuffer(START), 0
    for number in range(10):
        log.transaction(1)
        start = 4 if number == 0 else None
        store.put(buffer.add(info_of(log.entries[-3:], number, start)), number)
        slot = store.spillable()
        if slot is not None:
            moved += store.spilled(slot.first, f"segment {number}", 200)
    assert 3 <= moved <= 6
    stats = store.stats()
    assert stats["bytes_on_disk"] == 200 * moved
    assert 5_000 < stats["index_bytes"] <= 10_000


def test_who_is_away_does_not_hold_what_lies_before_its_cursor() -> None:
    """After a restart the log begins at the slowest cursor; the others may not be there."""
    log = MadeLog()
    for _ in range(12):
        log.transaction(1)
    store = EventStore(StoreConfig(buffer_size=16, memunit_bytes=1024), START)
    store.subscribe(1, EVERYTHING, None)
    store.subscribe(2, EVERYTHING, log.cursor_after(18))
    buffer = TransactionBuffer(START, thin_empty_transactions=False)
    for number in range(12):
        first = 3 * number
        if not store.has_room(1):
            while (batch := store.get(1, 16)) is not None:
                store.ack(1, batch.id)
        # Six chunks lie before the cursor; four more fill the log.
        assert store.has_room(1) == (number < 10)
        if number < 10:
            start = 4 if number == 0 else None
            info = info_of(log.entries[first : first + 3], number, start)
            store.put(buffer.add(info), number)


def test_what_a_subscriber_is_done_with_takes_no_memory_of_its_own() -> None:
    """A slow subscriber keeps the log; a thousand fast ones each kept 16 bytes an entry of it."""
    store = filled(transactions(12), tuple(range(3, 36, 3)), batch_mode="ITEMSIZE")
    store.subscribe(2, EVERYTHING, None)
    for size in (3, 7, 3, 20):
        batch = store.get(1, size)
        assert batch is not None
        assert store._subscribers[1]._views
        store.ack(1, batch.id)
    done = store.get(1, 100)
    assert done is not None
    store.rollback(1)
    again = store.get(1, 2)
    assert again is not None
    store.ack(1, again.id)  # in the midst of a slot
    assert len(store._subscribers[1]._views) == 1
    slow = store.get(2, 100)
    assert slow is not None
    assert slow.entry_count == 36
