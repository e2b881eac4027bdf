"""A destination without Ray: its log, its disk, its subscribers and their streams, in one thread.

A schedule is a seed: which puts, gets, acks, rollbacks, subscriptions, stalls and crashes come, and
when. `Simulation.run` raises AssertionError at the first broken promise; a schedule is replayed by

    python -m tests.unit.log.simulation SEED

which prints every step.
"""

from __future__ import annotations

import functools
import random
import sys
from dataclasses import dataclass, field, replace
from typing import Any

from ray_canal.config import StoreConfig
from ray_canal.errors import BatchNotFirst, InstanceRestarted, TransactionTooLarge
from ray_canal.filter import TableFilter
from ray_canal.log.batch import Batch
from ray_canal.log.event_store import EventStore
from ray_canal.log.subscriber import Terms
from ray_canal.log.transaction_buffer import LogChunk, TransactionBuffer
from ray_canal.model.position import EntryPosition
from tests.unit.log.made_log import MadeLog

START = EntryPosition("binlog.000001")
FILTERS = tuple(TableFilter(text) for text in ("", r"shop\..*", r"crm\.person", r"nobody\.here"))
WORLDS, CLIENTS, STEPS = 40, 3, 10
IDS_PER_EPOCH = 1 << 20


class World:
    """A binlog, cut into chunks as it would be from any cursor. Shared by many schedules."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        random_ = random.Random(seed)
        self.log = MadeLog()
        self.log.grow(random_, 5)
        self.log.transaction(1)
        self.transaction_size = random_.choice((0, 1, 4, 1024))
        self.entries = len(self.log.entries)
        self.counts = {START.key(): 0}
        for count in range(1, self.entries + 1):
            name = self.log.entries[count - 1].journal_name
            self.counts.setdefault(EntryPosition(name).key(), count - 1)
            self.counts.setdefault(self.cursor(count).key(), count)
            if self.log.entries[count - 1].closes:
                self.counts.setdefault(self.found(count).key(), count)
        self.counts.setdefault(self.found(0).key(), 0)
        self.boundaries = [0] + [k + 1 for k, e in enumerate(self.log.entries) if e.closes]
        self._chunks: dict[Any, list[tuple[int, LogChunk]]] = {}
        self._seen: dict[TableFilter, list[int]] = {}

    @functools.cache  # noqa: B019  (worlds are few and live as long as the program)
    def cursor(self, count: int) -> EntryPosition:
        return self.log.cursor_after(count) if count else START

    def found(self, count: int) -> EntryPosition:
        """The same place as a search finds it: where the next transaction's GTID event begins."""
        cursor = self.cursor(count)
        if count == self.entries:
            return cursor
        following = self.log.entries[count]
        return replace(cursor, journal_name=following.journal_name, position=following.begin)

    def sees(self, table_filter: TableFilter) -> list[int]:
        """The entries that a subscriber with this filter gets, in order."""
        if table_filter not in self._seen:
            self._seen[table_filter] = [
                k
                for k, entry in enumerate(self.log.entries)
                if not entry.name or table_filter.admits(*entry.name.split("."))
            ]
        return self._seen[table_filter]

    def chunks(self, cursor: EntryPosition) -> list[tuple[int, LogChunk]]:
        """(index of the first entry, chunk) of a dump from this cursor."""
        key = (cursor.journal_name, cursor.position)
        if key not in self._chunks:
            start = cursor.boundary
            buffer = TransactionBuffer(
                start,
                start.gtid,
                thin_empty_transactions=False,
                transaction_size=self.transaction_size,
            )
            first, found = self.log.index_at(start), []
            # Where it is cut must not depend on what other schedules did before.
            for info in self.log.chunks(random.Random(f"{self.seed} {key}"), first, start):
                info = replace(info, arena_bytes=info.size_bytes)
                found.append((first, buffer.add(info)))
                first += len(info.entries)
            self._chunks[key] = found
        return self._chunks[key]


@functools.cache
def world(seed: int) -> World:
    return World(seed)


class Log:
    """One upstream with its store and its disk: destination/log_pipeline.py without waits."""

    def __init__(
        self, world: World, config: StoreConfig, start: EntryPosition, ids_from: int
    ) -> None:
        self.store = EventStore(
            config, start, batch_ids_from=ids_from, spill_bytes=config.spill_bytes
        )
        self.capacity = self.store.capacity
        self.budget = config.spill_bytes
        self.feed = world.chunks(start)
        self.fed = 0
        self.disk: dict[tuple[int, int], LogChunk] = {}

    def room(self, size_bytes: int) -> list[int] | None:
        """Make room. Returns who keeps the log from having any; None: there is room."""
        while not self.store.has_room(size_bytes):
            slot = self.store.spillable()
            if slot is None:
                stuck = self.store.detachable()
                if stuck or not self.store.abandon():
                    return stuck
                self.sweep()
                continue
            assert slot.chunk is not None
            segment = (slot.payload, slot.count)
            self.disk[segment] = slot.chunk
            assert self.store.spilled(slot.first, segment, slot.size_bytes)
        return None

    def put(self) -> list[int] | None:
        """Feed one chunk; or who keeps the log from taking it. None: it was fed."""
        first, chunk = self.feed[self.fed]
        stuck = self.room(chunk.info.size_bytes)
        if stuck is not None:
            self.store.flush()
            return stuck
        self.store.put(chunk, first)
        self.fed += 1
        return None

    @property
    def over(self) -> bool:
        return self.fed == len(self.feed)

    def read_back(self, client_id: int, size: int) -> None:
        while (slot := self.store.missing(client_id, size)) is not None:
            self.store.restore(slot.first, self.disk[slot.payload])

    def delivered(self, batch: Batch) -> list[int]:
        """The batch's entries, by their index in the binlog."""
        found: list[int] = []
        for part in batch.parts:
            first = part.payload[0] if part.on_disk else part.payload
            assert not part.on_disk or part.payload in self.disk, "it was read from disk too late"
            mask = part.mask
            found += [first + k for k in range(part.first, part.last) if mask is None or mask[k]]
        return found

    def sweep(self) -> None:
        for segment in self.store.take_dropped():
            del self.disk[segment]


@dataclass
class Client:
    """What is true of a subscriber. `expected`: all that it is ever to get; `next` and `acked`
    count them."""

    terms: Terms
    cursor: EntryPosition
    expected: list[int]
    next: int = 0
    acked: int = 0
    marks: dict[int, tuple[int, int]] = field(default_factory=dict)
    stalled: int = 0


class Simulation:
    """One destination and everything that happens to it."""

    def __init__(self, seed: int, verbose: bool = False) -> None:
        self.random = random.Random(seed)
        self.world = world(self.random.randrange(WORLDS))
        by_memory = self.random.random() < 0.6
        self.config = StoreConfig(
            batch_mode="MEMSIZE" if by_memory else "ITEMSIZE",
            buffer_size=self.random.choice((16, 64)),
            memunit_bytes=512 if by_memory else 1024,
            ddl_isolation=self.random.random() < 0.3,
            spill_bytes=self.random.choice((0, 4 << 10, 1 << 20)),
        )
        self.verbose = verbose
        self.epoch = 1
        self.clients: dict[int, Client] = {}
        self.asides: dict[int, Log | None] = {}
        self.main = Log(self.world, self.config, START, IDS_PER_EPOCH)

    def say(self, *words: Any) -> None:
        if self.verbose:
            print(*words)

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
            self.check()
        self.drain()

    def step(self) -> None:
        what = self.random.choices(
            ("put", "get", "ack", "subscribe", "rollback", "unsubscribe", "stall", "crash"),
            (40, 40, 25, 15, 6, 2, 5, 4),
        )[0]
        if what in ("put", "crash", "subscribe"):
            getattr(self, what)()
        elif self.clients:
            client_id = self.random.choice(sorted(self.clients))
            client = self.clients[client_id]
            if client.stalled:
                client.stalled -= 1
            elif what == "stall":
                self.say("stall", client_id)
                client.stalled = self.random.randrange(3, 9)
            else:
                getattr(self, what)(client_id)

    # --- what happens ---------------------------------------------------------------------------

    def put(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            self.feed_main()
        for client_id, log in self.asides.items():
            if log is not None:
                self.feed_aside(client_id, log)

    def feed_main(self) -> bool:
        while not self.main.over:
            stuck = self.main.put()
            self.say("put", self.main.fed, "stuck" if stuck is not None else "", stuck or "")
            if not stuck:
                return stuck is None
            for client_id in stuck:
                if client_id in self.asides:
                    self.main.store.release_place(client_id)
                else:
                    self.detach(client_id)
        return False

    def feed_aside(self, client_id: int, log: Log) -> bool:
        if log.over or log.put() is not None:
            return False
        main = self.main.store
        if log.store.last_position >= main.first_position and not main.has_place(client_id):
            main.reserve_place(client_id)
        return True

    def detach(self, client_id: int) -> None:
        self.say("detach", client_id)
        client = self.clients[client_id]
        self.main.store.send_away(client_id)
        self.asides[client_id] = None
        client.next, client.marks = client.acked, {}

    def log_of(self, client_id: int) -> Log:
        if client_id not in self.asides:
            return self.main
        log = self.asides[client_id]
        if log is None:
            client, last_id = self.clients[client_id], self.main.store.last_batch_id(client_id)
            log = self.asides[client_id] = Log(self.world, self.config, client.cursor, last_id)
            log.store.subscribe(client_id, client.terms, client.cursor)
        return log

    def subscribe(self) -> None:
        client_id = self.random.randrange(CLIENTS)
        if client_id in self.clients:
            return
        table_filter = self.random.choice(FILTERS)
        policy = self.random.choice(("block", "spill", "detach"))
        terms = Terms(table_filter, policy, self.random.random() < 0.3)
        start = self.random.choice(("head", "tail", "position"))
        if start == "position":
            fed = self.main.feed[self.main.fed - 1] if self.main.fed else (0, None)
            last = fed[0] + (len(fed[1].info.entries) if fed[1] is not None else 0)
            places = [k for k in self.world.boundaries if k <= last]
            of = self.random.choice((self.world.cursor, self.world.found))
            cursor = of(self.random.choice(places))
        else:
            store = self.main.store
            cursor = store.first_position if start == "head" else store.tail_position
        count = self.world.counts[cursor.key()]
        self.say("subscribe", client_id, terms.policy, terms.transactions, start, count)
        expected = [k for k in self.world.sees(table_filter) if k >= count]
        self.clients[client_id] = Client(terms, cursor, expected)
        if start == "position":
            self.asides[client_id] = None
            self.main.store.send_away(client_id)
        else:
            self.main.store.subscribe(client_id, terms, cursor)

    def unsubscribe(self, client_id: int) -> None:
        self.say("unsubscribe", client_id)
        del self.clients[client_id]
        self.asides.pop(client_id, None)
        self.main.store.release_place(client_id)
        self.main.store.unsubscribe(client_id)
        self.main.sweep()

    def get(self, client_id: int) -> bool:
        log, client = self.log_of(client_id), self.clients[client_id]
        if log is not self.main and self.main.store.take_over(log.store, client_id, client.terms):
            self.say("back", client_id)
            del self.asides[client_id]
            log = self.main
        size = self.random.choice((1, 3, 20, 1000))
        before = self.place(log, client_id)
        log.read_back(client_id, size)
        ready = log.store.ready(client_id, 1, count_all=True)
        try:
            batch = log.store.get(client_id, size)
        except TransactionTooLarge:
            self.say("too large", client_id)
            assert client.terms.transactions
            client.terms = replace(client.terms, transactions=False)
            log.store.subscribe(client_id, client.terms, client.cursor)
            return True
        assert ready or batch is None, "something was there, and ready said no"
        if ready and batch is None:
            assert log.store._spilling.is_full, "ready, and nothing was there"
        log.sweep()
        if batch is None:
            return self.place(log, client_id) != before
        found = log.delivered(batch)
        self.say("get", client_id, size, batch.id, found)
        wanted = client.expected[client.next : client.next + len(found)]
        assert found == wanted, f"client {client_id} got {found}, not {wanted}"
        assert batch.entry_count == len(found)
        assert batch.row_count == sum(self.world.log.entries[k].rows for k in found)
        assert batch.id > max(client.marks, default=0)
        if client.terms.transactions:
            assert batch.range.ack == batch.range.ack.boundary
        client.marks[batch.id] = (client.next, client.next + len(found))
        client.next += len(found)
        return True

    def place(self, log: Log, client_id: int) -> tuple[int, int]:
        return log.store._ring.first_sequence, log.store._subscribers[client_id].next

    def ack(self, client_id: int) -> None:
        log, client = self.log_of(client_id), self.clients[client_id]
        assert log.store.batch_ids(client_id) == sorted(client.marks)
        if not client.marks:
            return
        first, last = min(client.marks), max(client.marks)
        if last != first and self.random.random() < 0.1:
            try:
                log.store.ack(client_id, last)
            except BatchNotFirst:
                return
            raise AssertionError("an ack out of order")
        self.say("ack", client_id, first)
        client.cursor = log.store.cursor_after(client_id, first)
        log.store.ack(client_id, first)
        log.sweep()
        client.acked = client.marks.pop(first)[1]

    def rollback(self, client_id: int) -> None:
        log, client = self.log_of(client_id), self.clients[client_id]
        batch_id = self.random.choice([None, *client.marks])
        self.say("rollback", client_id, batch_id)
        log.store.rollback(client_id, batch_id)
        if client.marks:
            client.next = client.marks[batch_id or min(client.marks)][0]
            client.marks = {k: v for k, v in client.marks.items() if batch_id and k < batch_id}

    def crash(self) -> None:
        """Everything but the cursors is lost; the next life stands at the smallest of them."""
        cursors = [client.cursor for client in self.clients.values()]
        start = min(cursors, default=self.main.store.first_position)
        self.say("crash", start)
        self.epoch += 1
        self.main = Log(self.world, self.config, start, self.epoch * IDS_PER_EPOCH)
        self.asides = {}
        for client_id, client in self.clients.items():
            self.main.store.subscribe(client_id, client.terms, client.cursor)
            for batch_id in client.marks:
                try:
                    self.main.store.ack(client_id, batch_id)
                except InstanceRestarted:
                    continue
                raise AssertionError("an ack of before the crash")
            client.next, client.marks, client.stalled = client.acked, {}, 0

    # --- what must hold -------------------------------------------------------------------------

    def check(self) -> None:
        for log in (self.main, *self.asides.values()):
            if log is None:
                continue
            ring = log.store._ring
            in_memory = [slot for slot in ring._slots if not slot.on_disk]
            # Entries and GTID sets are counted when they come: the last chunk may be too much.
            over = 0
            if in_memory:
                last = in_memory[-1]
                over = len(last.gtid_set + last.after.gtid) if ring.by_memory else last.count - 1
            assert ring.used <= log.capacity + over or len(in_memory) == 1, "over its memory"
            assert ring.disk_bytes <= log.budget, "over its disk"
            assert sum(chunk.info.size_bytes for chunk in log.disk.values()) <= log.budget
            for subscriber in log.store._subscribers.values():
                assert subscriber.acked <= subscriber.next <= ring.put_sequence
        for client in self.clients.values():
            assert client.acked <= client.next <= len(client.expected)

    def drain(self) -> None:
        """Everybody gets all that is left; nobody waits for ever."""
        self.say("drain")
        for client in self.clients.values():
            client.stalled = 0
        while True:
            moved = self.feed_main()
            for client_id in sorted(self.clients):
                log = self.log_of(client_id)
                if log is not self.main:
                    moved |= self.feed_aside(client_id, log)
                while self.get(client_id):
                    moved = True
                while self.clients[client_id].marks:
                    moved = True
                    self.ack(client_id)
            self.check()
            if not moved:
                break
        if self.clients:
            assert self.main.over, "the log is stuck"
        for client_id, client in self.clients.items():
            rest = client.expected[client.acked :]
            assert not rest, f"client {client_id} never got {rest}"


if __name__ == "__main__":
    Simulation(int(sys.argv[1]), verbose=True).run()
