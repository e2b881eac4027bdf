"""Ten thousand schedules of writers, readers and a log that each sees at its own time.

A server writes a transaction into its log before anybody sees its rows, shows it, and says last
that it has executed it. Against that a subscriber applies changes and placed chunks; its rows must
never go back, and at the end be what the log makes of the tables. Each rule of the sequencer, left
out, must be noticed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from ray_canal.log.snapshot_sequencer import Rows, SnapshotSequencer

SCHEDULES = 10_000
KEYS = 12
TABLE = "d.t"


@dataclass(slots=True)
class Transaction:
    """A change of up to two keys: key -> its new version, None where it is deleted."""

    number: int
    changes: dict[int, int | None]
    before: set[int]
    is_visible: bool = False
    is_executed: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """A mark: numbers of transactions that were visible."""

    numbers: frozenset[int]

    def has(self, stretch: tuple[int, ...]) -> bool:
        return self.numbers.issuperset(stretch)


@dataclass(slots=True)
class World:
    """A server with writers, its log, a reader of chunks and a subscriber."""

    r: random.Random
    rule: str = ""
    log: list[Transaction] = field(default_factory=list)
    rows: dict[int, int] = field(default_factory=dict)  # what a SELECT shows
    truth: list[dict[int, int]] = field(default_factory=list)  # after each log transaction
    locked: dict[int, int] = field(default_factory=dict)

    def write(self) -> None:
        """One more transaction is in the log; nobody sees it."""
        free = [key for key in range(KEYS) if key not in self.locked]
        if not free:
            return
        number = len(self.log)
        state = dict(self.truth[-1]) if self.truth else dict(self.rows)
        key = self.r.choice(free)
        changes: dict[int, int | None] = {key: number}
        if key in state and self.r.random() < 0.6:
            others = [other for other in free if other != key and other not in state]
            if others and self.r.random() < 0.6:
                changes = {key: None, self.r.choice(others): number}  # the key is changed
            elif self.r.random() < 0.5:
                changes = {key: None}
        before = {key for key in changes if key in state}
        for each, version in changes.items():
            if version is None:
                state.pop(each, None)
            else:
                state[each] = version
        self.truth.append(state)
        self.log.append(Transaction(number, changes, before))
        self.locked.update(dict.fromkeys(changes, number))

    def show(self) -> None:
        """Some transaction in the log becomes visible: not always the first."""
        hidden = [one for one in self.log if not one.is_visible]
        if hidden:
            one = self.r.choice(hidden[:3])
            one.is_visible = True
            for key, version in one.changes.items():
                del self.locked[key]
                if version is None:
                    self.rows.pop(key, None)
                else:
                    self.rows[key] = version

    def execute(self) -> None:
        """The server says of a visible one that it is executed: not before it has said so of what
        the transaction depends on (binlog_order_commits=ON)."""
        waiting: set[int] = set()
        ready = []
        for one in self.log:
            if not one.is_executed:
                if one.is_visible and waiting.isdisjoint(one.changes):
                    ready.append(one)
                waiting.update(one.changes)
        if ready:
            self.r.choice(ready).is_executed = True

    def step(self) -> None:
        self.r.choice([self.write, self.show, self.show, self.execute, self.execute])()

    def executed(self) -> frozenset[int]:
        if self.rule == "low is what is written":
            return frozenset(one.number for one in self.log)
        return frozenset(one.number for one in self.log if one.is_executed)


class Wrong(Exception):
    """The subscriber does not have what the log says."""


class Subscriber:
    """Applies what comes; notes versions that go back."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.newest: dict[int, int] = {}

    def change(self, one: Transaction) -> None:
        for key, version in one.changes.items():
            self.newest[key] = one.number
            if version is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = version

    def row(self, key: int, version: int) -> None:
        if version < self.newest.get(key, -1):
            raise Wrong(f"key {key} goes back to {version}")
        self.rows[key] = version
        self.newest[key] = version


def key_bytes(key: int) -> bytes:
    return b"%d" % key


def run(seed: int, rule: str = "") -> int:
    """One schedule; how many rows were dropped. Raises Wrong."""
    r = random.Random(seed)
    world = World(r, rule)
    for _ in range(r.randrange(25)):
        world.step()
    begin = Seen(frozenset(one.number for one in world.log if one.is_executed))
    subscriber, sequencer = Subscriber(), SnapshotSequencer[tuple[int, ...], int]()
    chunks: dict[int, list[tuple[int, int]]] = {}
    ranges = [(low, low + 3) for low in range(0, KEYS, 3)]
    r.shuffle(ranges)
    streamed = dropped = 0

    def stream(count: int) -> None:
        """The subscriber gets so many transactions of the log, and chunks that are due."""
        nonlocal streamed, dropped
        stretch = world.log[streamed : streamed + count]
        sent = [one for one in stretch if one.number not in begin.numbers]
        for one in sent:
            subscriber.change(one)
        streamed += len(stretch)
        if sent:
            keys = set().union(*(one.changes for one in sent))
            if rule == "keys of after images alone":
                keys = {k for one in sent for k, version in one.changes.items() if version}
            sequencer.log(tuple(one.number for one in sent), {TABLE: set(map(key_bytes, keys))})
        for number, touched in sequencer.due(streamed):
            for key, version in chunks.pop(number):
                stays = key_bytes(key) not in touched
                if stays or rule == "nothing is dropped":
                    subscriber.row(key, version)
                dropped += not stays

    def read() -> None:
        first, last = ranges.pop()
        low = Seen(world.executed())
        for _ in range(r.randrange(3)):
            world.step()
        rows = [(key, version) for key, version in world.rows.items() if first <= key < last]
        for _ in range(r.randrange(3)):
            world.step()
        number = len(ranges)
        chunks[number] = rows
        high = 0 if rule == "it does not wait for the high mark" else len(world.log)
        sequencer.read(Rows(number, TABLE, low, high))

    while ranges or sequencer.waiting:
        action = r.randrange(4)
        if action == 0 and ranges:
            read()
        elif action == 1:
            stream(r.randrange(4))
        elif len(world.log) < 120:
            world.step()
        else:
            stream(len(world.log))
    truth = world.truth[streamed - 1] if streamed else {}
    if subscriber.rows != truth:
        raise Wrong(f"{subscriber.rows} instead of {truth}")
    return dropped


def test_no_schedule_loses_a_row_or_takes_one_back() -> None:
    dropped = 0
    for seed in range(SCHEDULES):
        try:
            dropped += run(seed)
        except Wrong as error:
            pytest.fail(f"seed {seed}: {error}")
    assert dropped > SCHEDULES // 4  # else nothing was tried


@pytest.mark.parametrize(
    "rule",
    [
        "low is what is written",
        "keys of after images alone",
        "nothing is dropped",
        "it does not wait for the high mark",
    ],
)
def test_each_rule_left_out_is_noticed(rule: str) -> None:
    wrong = 0
    for seed in range(600):
        try:
            run(seed, rule)
        except Wrong:
            wrong += 1
    assert wrong > 5


def test_what_every_later_chunk_has_seen_is_forgotten() -> None:
    sequencer = SnapshotSequencer[tuple[int, ...], int]()
    for number in range(100):
        sequencer.log((number,), {TABLE: [key_bytes(number)]})
    assert sequencer.remembered == 100
    sequencer.read(Rows(0, TABLE, Seen(frozenset(range(90))), 100))
    assert sequencer.remembered == 10
    [(number, touched)] = sequencer.due(100)
    assert (number, touched) == (0, set(map(key_bytes, range(90, 100))))


def test_chunks_are_placed_in_the_order_in_which_they_were_read() -> None:
    sequencer = SnapshotSequencer[tuple[int, ...], int]()
    for number, high in ((0, 5), (1, 3), (2, 9)):
        sequencer.read(Rows(number, TABLE, Seen(frozenset()), high))
    assert sequencer.due(4) == []
    assert [placed.number for placed in sequencer.due(6)] == [0, 1]
    assert sequencer.waiting == 1
