"""EventStore under random schedules: against a plain list, over restarts. A failure is a seed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ray_canal.config import StoreConfig
from ray_canal.filter import TableFilter
from ray_canal.log.batch import Batch
from ray_canal.log.event_store import EventStore
from ray_canal.log.subscriber import Terms
from ray_canal.log.transaction_buffer import TransactionBuffer
from ray_canal.model.position import EntryPosition
from tests.unit.log.list_model import ListModel, ModelSubscriber
from tests.unit.log.made_log import TABLES, MadeLog

START = EntryPosition("binlog.000001")
EVERYTHING = Terms(TableFilter())
NAMES = frozenset(".".join(table) for table in TABLES)
FILTERS = ("", r"shop\..*", r"crm\.person", r"nobody\.here")


def admitted(pattern: str) -> frozenset[str]:
    table_filter = TableFilter(pattern)
    return frozenset(name for name in NAMES if table_filter.admits(*name.split(".")))


class Run:
    """One store and its model; every step does the same to both. Payloads are numbers of first
    entries."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.log = MadeLog()
        self.log.grow(self.random, 80)
        by_memory = self.random.random() < 0.7
        self.config = StoreConfig(
            batch_mode="MEMSIZE" if by_memory else "ITEMSIZE",
            buffer_size=self.random.choice((16, 64, 256)),
            memunit_bytes=256,
            ddl_isolation=self.random.random() < 0.4,
        )
        self.model = ListModel(self.log, by_memory, 256, self.config.ddl_isolation)
        self.cursors: dict[int, EntryPosition] = {}
        self.filters: dict[int, str] = {}
        self.start_generation(START, 0)
        self.start_acked = 0

    def start_generation(self, start: EntryPosition, first: int) -> None:
        self.store = EventStore(self.config, start)
        self.last_ids: dict[int, int] = {}
        self.buffer = TransactionBuffer(start, start.gtid, thin_empty_transactions=False)
        self.chunks = self.log.chunks(self.random, first, start)
        self.model.put = self.put = self.base = first

    def restart(self) -> None:
        """As the store actor recovers: stand at the smallest durable cursor."""
        slowest = min(self.cursors, key=lambda client_id: self.cursors[client_id], default=None)
        start, self.start_acked = START, 0
        if slowest is not None:
            start = self.cursors[slowest]
            self.start_acked = self.model.subscribers[slowest].acked
        first = self.log.index_at(start)
        self.start_generation(start, first)
        for client_id, subscriber in self.model.subscribers.items():
            cursor = self.cursors[client_id]
            self.store.subscribe(client_id, Terms(TableFilter(self.filters[client_id])), cursor)
            self.model.subscribers[client_id] = ModelSubscriber(
                subscriber.admits, first, subscriber.acked, frozenset(range(subscriber.acked))
            )

    def step(self) -> None:
        action = self.random.choice(
            ("put", "put", "put", "get", "get", "get", "ack", "ack", "subscribe", "rollback",
             "rollback_to", "refilter", "unsubscribe", "restart")
        )  # fmt: skip
        if action == "put":
            self.do_put()
        elif action == "subscribe":
            self.do_subscribe()
        elif action == "restart":
            if self.random.random() < 0.3:
                self.restart()
        elif self.cursors:
            client_id = self.random.choice(sorted(self.cursors))
            getattr(self, f"do_{action}")(client_id)
        self.check_invariants()

    def do_put(self) -> None:
        info = next(self.chunks, None)
        if info is None:
            return
        if not self.store.has_room(info.size_bytes):
            assert self.store.stats()["chunks"], "an empty log is never full"
            self.chunks = _with_first(info, self.chunks)
            return
        self.store.put(self.buffer.add(info), self.put)
        self.put += len(info.entries)
        self.model.put = self.put

    def do_subscribe(self) -> None:
        client_id = self.random.randrange(4)
        if client_id in self.cursors:
            return
        pattern = self.random.choice(FILTERS)
        cursor = self.store.first_position
        first = self.base + self.store._ring.first_sequence
        self.store.subscribe(client_id, Terms(TableFilter(pattern)), cursor)
        self.cursors[client_id], self.filters[client_id] = cursor, pattern
        acked = self.start_acked if first == self.base else first
        assert acked == 0 or cursor == self.log.cursor_after(acked)
        self.model.subscribers[client_id] = ModelSubscriber(
            admitted(pattern), first, acked, frozenset(range(acked)),
            last_id=self.last_ids.get(client_id, 0),
        )  # fmt: skip
        # What lies there and is not for it is passed over at once, whatever its filter is later.
        self.model.subscribers[client_id].next = self.base + self.store._subscribers[client_id].next

    def do_refilter(self, client_id: int) -> None:
        pattern = self.random.choice(FILTERS)
        self.store.subscribe(client_id, Terms(TableFilter(pattern)), START)
        self.filters[client_id] = pattern
        self.model.subscribers[client_id].admits = admitted(pattern)

    def do_unsubscribe(self, client_id: int) -> None:
        if self.random.random() < 0.2:
            self.store.unsubscribe(client_id)
            del self.cursors[client_id], self.filters[client_id]
            self.last_ids[client_id] = self.model.subscribers.pop(client_id).last_id

    def do_get(self, client_id: int) -> None:
        size = self.random.choice((1, 3, 20, 1000))
        wanted, full = self.model.batch(client_id, size)
        assert self.store.ready(client_id, 1, count_all=True) == bool(wanted)
        # A batch that an entry overflows is ready; one that merely ends a little short need not be.
        assert self.store.ready(client_id, size) or not full or self.config.ddl_isolation
        assert not self.store.ready(client_id, size) or full
        batch = self.store.get(client_id, size)
        assert self.delivered(batch) == wanted
        self.model.get(client_id, wanted, self.base + self.store._subscribers[client_id].next)
        if batch is None:
            return
        entries = [self.log.entries[index] for index in wanted]
        assert batch.id == self.model.subscribers[client_id].last_id
        assert (batch.entry_count, batch.row_count) == (len(wanted), sum(e.rows for e in entries))
        assert batch.range.start == EntryPosition(entries[0].journal_name, entries[0].position)
        last = entries[-1]
        assert batch.range.end == EntryPosition(last.journal_name, last.position + last.length)

    def delivered(self, batch: Batch | None) -> list[int]:
        found = []
        for part in batch.parts if batch is not None else ():
            assert part.mask is None or part.mask[part.first : part.last].any()
            found += [
                part.payload + k
                for k in range(part.first, part.last)
                if part.mask is None or part.mask[k]
            ]
        return found

    def do_ack(self, client_id: int) -> None:
        marks = sorted(self.model.subscribers[client_id].marks)
        assert self.store.batch_ids(client_id) == marks
        if not marks:
            return
        cursor = self.store.cursor_after(client_id, marks[0])
        self.store.ack(client_id, marks[0])
        self.model.ack(client_id, marks[0])
        wanted = self.log.cursor_after(self.model.subscribers[client_id].acked)
        assert (cursor, cursor.gtid) == (wanted, wanted.gtid)
        self.cursors[client_id] = cursor

    def do_rollback(self, client_id: int) -> None:
        self.store.rollback(client_id)
        self.model.rollback(client_id, None)

    def do_rollback_to(self, client_id: int) -> None:
        marks = sorted(self.model.subscribers[client_id].marks)
        if marks:
            batch_id = self.random.choice(marks)
            self.store.rollback(client_id, batch_id)
            self.model.rollback(client_id, batch_id)

    def check_invariants(self) -> None:
        stats = self.store.stats()
        assert stats["fill"] <= 1 or stats["chunks"] == 1 or not self.model.by_memory
        for subscriber in self.store._subscribers.values():
            assert subscriber.acked <= subscriber.next <= self.store._ring.put_sequence


def _with_first(info: Any, others: Any) -> Any:
    yield info
    yield from others


@pytest.mark.parametrize("seed", range(20))
def test_random_schedule_against_a_plain_list(seed: int) -> None:
    run = Run(seed)
    for _ in range(200):
        run.step()


@pytest.mark.parametrize("seed", range(12))
def test_no_row_is_lost_or_repeated_over_restarts(seed: int) -> None:
    """Get, ack, and restart at any moment: acked rows come once, all rows come."""
    random_ = random.Random(seed)
    log = MadeLog()
    log.grow(random_, 120)
    config = StoreConfig(buffer_size=64, memunit_bytes=256)
    acked: list[tuple[str, int]] = []
    cursor = START
    while True:
        store = EventStore(config, cursor)
        store.subscribe(1, EVERYTHING, cursor)
        buffer = TransactionBuffer(cursor, cursor.gtid)
        life = random_.randrange(5, 60)
        finished = True
        for info in log.chunks(random_, log.index_at(cursor), cursor):
            while not store.has_room(info.size_bytes):
                life -= 1
                cursor = _consume(store, random_, acked, cursor)
            store.put(buffer.add(info), info)
            if life < 0:
                finished = False
                break
        while finished and store.ready(1, 1, count_all=True):
            cursor = _consume(store, random_, acked, cursor)
        if finished:
            break
    wanted = [(e.journal_name, e.position) for e in log.entries if e.rows]
    assert acked == wanted


def _consume(
    store: EventStore, random_: random.Random, acked: list[tuple[str, int]], cursor: EntryPosition
) -> EntryPosition:
    batch = store.get(1, random_.randrange(1, 40))
    if batch is None:
        return cursor
    cursor = store.cursor_after(1, batch.id)
    store.ack(1, batch.id)
    for part in batch.parts:
        for k in range(part.first, part.last):
            entry = part.payload.entries[k]
            if entry["rows"] and (part.mask is None or part.mask[k]):
                acked.append((part.payload.head.journal_name, int(entry["position"])))
    return cursor
