"""Rows that were read, in a log: one subscriber sees them, its cursor and what it acked follow."""

from __future__ import annotations

import numpy as np
import pytest

from ray_canal.binlog.chunk import ENTRY, EVENT_CLOSES, GTID, ChunkHead, ChunkInfo
from ray_canal.config import StoreConfig
from ray_canal.errors import NotSubscribed
from ray_canal.filter import TableFilter
from ray_canal.log.event_store import EventStore
from ray_canal.log.snapshot_chunk import snapshot_chunk
from ray_canal.log.snapshot_tag import SnapshotTag
from ray_canal.log.subscriber import Terms
from ray_canal.log.transaction_buffer import TransactionBuffer
from ray_canal.model.position import EntryPosition
from tests.unit.log.made_log import MadeLog, info_of

START = EntryPosition("binlog.000001", 4)


class Log:
    """A store that gets one transaction after the other, and rows between them."""

    def __init__(self, transactions: bool = False) -> None:
        self.store = EventStore(StoreConfig(memunit_bytes=1), START)
        self._made, self._buffer = MadeLog(), TransactionBuffer(START)
        self._sequence = 0
        for client_id in (1, 2):
            terms = Terms(TableFilter(), transactions=transactions)
            self.store.subscribe(client_id, terms, None)

    def transaction(self) -> None:
        first = len(self._made.entries)
        self._made.transaction(3)
        entries = self._made.entries[first:]
        info = info_of(entries, self._sequence, entries[0].begin)
        self._sequence += 1
        self.store.put(self._buffer.add(info), "streamed")

    def read(self, tag: SnapshotTag, rows: int = 7) -> None:
        place = self.store.last_position
        entries = np.zeros(3, ENTRY)
        entries["position"], entries["length"], entries["table"] = place.position, 50, [-1, 0, -1]
        entries["kind"], entries["rows"] = [1, 2, 3], [0, rows, 0]
        entries["flags"][-1], entries["transaction"] = EVENT_CLOSES, -1
        head = ChunkHead(0, place.journal_name, place.position, place.position)
        info = ChunkInfo(head, 150, 1000, entries, np.zeros(0, GTID), (("shop", "item"),))
        self.store.put(snapshot_chunk(info, place, tag), "read")

    def take(self, client_id: int) -> tuple[list[str], list[SnapshotTag], EntryPosition]:
        """Everything that is there, acked: (payloads, what is done with, the cursor)."""
        payloads, tags, cursor = [], [], START
        while (batch := self.store.get(client_id, 100_000)) is not None:
            payloads += [part.payload for part in batch.parts]
            tags += self.store.read_chunks(client_id, batch.id)
            cursor = self.store.cursor_after(client_id, batch.id)
            self.store.ack(client_id, batch.id)
        return payloads, tags, cursor


@pytest.mark.parametrize("transactions", [False, True])
def test_one_subscriber_sees_them_where_they_are(transactions: bool) -> None:
    log = Log(transactions)
    log.transaction()
    log.store.begin_attempt(1, "r")
    tags = [SnapshotTag("r", 0, 7), SnapshotTag("r", 0, 7, upto=("9",))]
    for tag in tags:
        log.read(tag)
    place = log.store.last_position
    log.transaction()
    end = log.store.last_position
    assert log.take(1) == (["streamed", "read", "read", "streamed"], tags, end)
    assert log.take(2) == (["streamed", "streamed"], [], end)
    assert place < end
    assert log.store.is_drained


def test_who_has_acked_some_of_them_restarts_at_their_place() -> None:
    log = Log()
    log.transaction()
    log.take(1)
    place = log.store.last_position
    log.store.begin_attempt(1, "r")
    log.read(SnapshotTag("r", 0, 7, upto=("9",)))
    batch = log.store.get(1, 0)
    assert batch is not None
    assert batch.entry_count == 1
    assert log.store.cursor_after(1, batch.id) == place
    assert log.store.read_chunks(1, batch.id) == []  # not all of it
    log.store.ack(1, batch.id)
    _, tags, cursor = log.take(1)
    assert cursor == place
    assert [tag.upto for tag in tags] == [("9",)]


def test_a_new_reading_hides_the_chunks_of_the_one_before() -> None:
    log = Log()
    log.transaction()
    log.store.begin_attempt(1, "r1")
    log.read(SnapshotTag("r1", 0, 7, upto=("9",)))
    batch = log.store.get(1, 100_000)
    assert batch is not None
    log.store.begin_attempt(1, "r2")
    assert log.store.read_chunks(1, batch.id) == []
    log.store.rollback(1)
    log.read(SnapshotTag("r2", 0, 7, upto=("9",)))
    payloads, tags, _ = log.take(1)
    assert payloads == ["streamed", "read"]
    assert [tag.attempt_name for tag in tags] == ["r2"]


def test_who_sees_other_tables_now_does_not_see_them() -> None:
    """They were read by the filter of before, which had tables that it is not to see any more."""
    log = Log()
    log.transaction()
    log.store.begin_attempt(1, "r")
    log.read(SnapshotTag("r", 0, 7, upto=("9",)))
    log.store.subscribe(1, Terms(TableFilter(), "spill"), None)
    assert log.store.attempt_name_of(1) == "r"
    log.store.subscribe(1, Terms(TableFilter(r"d\.t"), "spill"), None)
    assert log.store.attempt_name_of(1) == ""
    assert log.take(1)[1] == []


def test_who_comes_anew_at_their_place_does_not_see_them() -> None:
    log = Log()
    log.transaction()
    log.store.begin_attempt(1, "r")
    log.read(SnapshotTag("r", 0, 7, upto=("9",)))
    log.store.subscribe(3, Terms(TableFilter()), log.store.last_position)
    assert log.store.attempt_name_of(3) == ""
    assert log.store.attempt_name_of(4) is None
    log.transaction()
    assert log.take(3)[0] == ["streamed"]
    with pytest.raises(NotSubscribed):
        log.store.begin_attempt(4, "r")


def test_a_full_log_keeps_them_for_who_waits_at_their_place() -> None:
    """What lies before a cursor need not be kept; these are behind it."""
    log = Log()
    log.transaction()
    log.take(1)
    log.take(2)
    log.store.begin_attempt(1, "r")
    log.read(SnapshotTag("r", 0, 7, upto=("9",)))
    log.store.has_room(1 << 40)
    log.store.skip(2)
    assert log.take(1)[0] == ["read"]
