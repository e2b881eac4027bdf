"""Ten thousand schedules of writers, readers and a log that each sees at its own time.

A server writes a transaction into its log before anybody sees its rows, shows it, and says last
that it has executed it. Against that a subscriber applies changes and placed chunks; its rows must
never go back, and at the end be what the log makes of the tables. Some transactions are prepared
(XA) and end later, or are undone in part (ROLLBACK with tables that know none). Each rule of the
sequencer, left out, must be noticed.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from ray_canal.log.snapshot_sequencer import Placed, ReadRange, SnapshotSequencer

SCHEDULES = 10_000
KEYS = 12
READERS = 3
TABLE = ("d", "t")


@dataclass(slots=True)
class Transaction:
    """A change of up to two keys: key -> its new version, None where it is deleted. `lasting`: the
    part of it that a SELECT will show, and with it a subscriber that knows what became of it.
    `ended`: the one that was prepared and is committed or rolled back by this."""

    number: int
    changes: dict[int, int | None]
    lasting: dict[int, int | None]
    is_prepared: bool = False
    ended: Transaction | None = None
    is_committed: bool = True
    is_visible: bool = False
    is_executed: bool = False

    @property
    def is_undone(self) -> bool:
        return self.ended is None and not self.is_prepared and self.lasting != self.changes


@dataclass(frozen=True, slots=True)
class Seen:
    """A mark: numbers of transactions that were visible."""

    numbers: frozenset[int]

    def has(self, stretch: tuple[int, ...]) -> bool:
        return self.numbers.issuperset(stretch)


def apply(rows: dict[int, int], changes: dict[int, int | None]) -> None:
    for key, version in changes.items():
        if version is None:
            rows.pop(key, None)
        else:
            rows[key] = version


@dataclass(slots=True)
class World:
    """A server with writers, its log, readers of chunks and a subscriber."""

    r: random.Random
    rule: str = ""
    log: list[Transaction] = field(default_factory=list)
    rows: dict[int, int] = field(default_factory=dict)  # what a SELECT shows
    truth: list[dict[int, int]] = field(default_factory=list)  # after each log transaction
    locked: dict[int, int] = field(default_factory=dict)
    prepared: list[Transaction] = field(default_factory=list)

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
        kind = self.r.random()
        if kind < 0.15:  # nobody sees it before it is committed, which is another one
            one = Transaction(number, changes, {}, is_prepared=True, is_visible=True)
            self.prepared.append(one)
        elif kind < 0.25:
            one = Transaction(number, changes, {k: v for k, v in changes.items() if k % 2})
        else:
            one = Transaction(number, changes, changes)
        self._log(one)

    def _log(self, one: Transaction) -> None:
        state = dict(self.truth[-1]) if self.truth else dict(self.rows)
        apply(state, one.lasting)
        self.truth.append(state)
        self.log.append(one)
        self.locked.update(dict.fromkeys(one.changes, one.number))

    def end(self) -> Transaction | None:
        """One that is prepared is committed or rolled back."""
        if not self.prepared:
            return None
        xa = self.prepared.pop(self.r.randrange(len(self.prepared)))
        is_committed = self.r.random() < 0.5
        lasting = xa.changes if is_committed else {}
        one = Transaction(
            len(self.log), xa.changes, lasting, ended=xa, is_committed=is_committed
        )
        self._log(one)
        return one

    def end_all(self) -> None:
        """Return when XA RECOVER lists none of now any more: each has ended, and that shows."""
        while self.end() is not None:
            pass
        for one in self.log:
            if one.ended is not None and not one.is_visible:
                self._show(one)

    def show(self) -> None:
        """Some transaction in the log becomes visible: not always the first."""
        hidden = [one for one in self.log if not one.is_visible]
        if hidden:
            self._show(self.r.choice(hidden[:3]))

    def _show(self, one: Transaction) -> None:
        one.is_visible = True
        apply(self.rows, one.lasting)
        for key in one.changes:
            del self.locked[key]

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
        choices = [self.write, self.show, self.show, self.execute, self.execute]
        if self.r.random() < 0.1:
            self.end()
        self.r.choice(choices)()

    def executed(self) -> frozenset[int]:
        if self.rule == "low is what is written":
            return frozenset(one.number for one in self.log)
        return frozenset(one.number for one in self.log if one.is_executed)


class Everything:
    """A mark beyond all transactions."""

    def has(self, stretch: tuple[int, ...]) -> bool:
        return True


@dataclass(slots=True)
class Reading:
    """A chunk that is being read: keys from `first` to before `last`; `rows`: it was."""

    number: int
    first: int
    last: int
    rows: ReadRange[tuple[int, ...], int] | None = None


class Wrong(Exception):
    """The subscriber does not have what the log says."""


class Subscriber:
    """Applies what comes; notes versions that go back."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.newest: dict[int, int] = {}

    def change(self, one: Transaction) -> None:
        written = one if one.ended is None else one.ended
        self.newest.update(dict.fromkeys(one.lasting, written.number))
        apply(self.rows, one.lasting)

    def row(self, key: int, version: int) -> None:
        if version < self.newest.get(key, -1):
            raise Wrong(f"key {key} goes back to {version}")
        self.rows[key] = version
        self.newest[key] = version


class Schedule:
    """A snapshot by several readers next to a world that goes on."""

    def __init__(self, seed: int, rule: str) -> None:
        self.r = random.Random(seed)
        self.rule = rule
        self.world = World(self.r, rule)
        for _ in range(self.r.randrange(25)):
            self.world.step()
        executed = frozenset(one.number for one in self.world.log if one.is_executed)
        self.begin = Seen(executed)
        self.subscriber = Subscriber()
        self.sequencer = SnapshotSequencer[tuple[int, ...], int, frozenset[int]]()
        self.chunks: dict[int, list[tuple[int, int]]] = {}
        self.ranges = [(low, low + 3) for low in range(0, KEYS, 3)]
        self.r.shuffle(self.ranges)
        self.begun: list[tuple[int, int]] = []
        self.reading: deque[Reading] = deque()
        self.streamed = self.dropped = self.waited = 0

    def stream(self, count: int) -> None:
        """The subscriber gets so many transactions of the log, and chunks that are due."""
        stretch = self.world.log[self.streamed : self.streamed + count]
        sent = [one for one in stretch if one.number not in self.begin.numbers]
        for one in sent:
            self.subscriber.change(one)
        self.streamed += len(stretch)
        for one in sent:
            self.log(tuple(one.number for one in sent), one)
        for placed in self.sequencer.due(self.streamed):
            self.place(placed)

    def place(self, placed: Placed[frozenset[int]]) -> None:
        """The subscriber gets a chunk's rows, but for those in doubt."""
        left = []
        for key, version in self.chunks.pop(placed.number):
            stays = not any(key in keys for keys in placed.touched)
            if placed.is_unsure and self.rule != "what is undone is not newer":
                continue
            if stays and any(key in keys for keys in placed.doubted):
                left.append((key, version))
            elif stays or self.rule == "nothing is dropped":
                self.subscriber.row(key, version)
            self.dropped += not stays
        self.waited += len(left)
        if left and self.rule != "rows in doubt do not wait":
            self.chunks[placed.number] = left
        else:
            self.sequencer.done(placed.number)
        if placed.is_unsure and self.rule != "what is undone is not newer":
            self.ranges.append(self.begun[placed.number])

    def log(self, stretch: tuple[int, ...], one: Transaction) -> None:
        """Tell the sequencer of a transaction."""
        if one.ended is not None:
            if self.rule != "an XA transaction is not waited for":
                is_committed = one.is_committed or self.rule == "XA ROLLBACK is as XA COMMIT"
                self.sequencer.settle(str(one.ended.number), is_committed=is_committed)
            return
        keys = frozenset(one.changes)
        if self.rule == "keys of after images alone":
            keys = frozenset(k for k, version in one.changes.items() if version)
        is_in_doubt = one.is_prepared and self.rule != "an XA transaction is not waited for"
        doubt = str(one.number) if is_in_doubt else ""
        self.sequencer.log(stretch, {TABLE: keys}, doubt=doubt, is_undone=one.is_undone)

    def begin_range(self) -> None:
        mine = Reading(len(self.begun), *self.ranges.pop())
        self.begun.append((mine.first, mine.last))
        self.reading.append(mine)
        self.sequencer.begin(mine.number)
        if self.rule == "later chunks may have seen less":
            self.sequencer._begun[mine.number] = Everything()

    def read(self) -> None:
        """One of the readers reads its range; those that were begun before may not have yet."""
        r, world = self.r, self.world
        mine = r.choice([one for one in self.reading if one.rows is None])
        low = Seen(world.executed())
        world.end_all()
        for _ in range(r.randrange(3)):
            world.step()
        seen = [(k, version) for k, version in world.rows.items() if mine.first <= k < mine.last]
        for _ in range(r.randrange(3)):
            world.step()
        self.chunks[mine.number] = seen
        high = 0 if self.rule == "it does not wait for the high mark" else len(world.log)
        mine.rows = ReadRange(mine.number, TABLE, low, high)
        while self.reading and (rows := self.reading[0].rows) is not None:
            self.sequencer.read(rows)
            self.reading.popleft()

    def run(self) -> int:
        """Return how many rows were dropped. Raises Wrong."""
        while self.ranges or self.reading or self.sequencer.waiting:
            action = self.r.randrange(5)
            if action == 0 and self.ranges and len(self.reading) < READERS:
                self.begin_range()
            elif action == 1 and any(one.rows is None for one in self.reading):
                self.read()
            elif action == 2:
                self.stream(self.r.randrange(4))
            elif len(self.world.log) < 120:
                self.world.step()
            else:
                self.world.end_all()
                self.stream(len(self.world.log))
        truth = self.world.truth[self.streamed - 1] if self.streamed else {}
        if self.subscriber.rows != truth:
            raise Wrong(f"{self.subscriber.rows} instead of {truth}")
        return self.dropped


def test_no_schedule_loses_a_row_or_takes_one_back() -> None:
    dropped = waited = 0
    for seed in range(SCHEDULES):
        schedule = Schedule(seed, "")
        try:
            dropped += schedule.run()
        except Wrong as error:
            pytest.fail(f"seed {seed}: {error}")
        waited += schedule.waited
    assert dropped > SCHEDULES // 4  # else nothing was tried
    assert waited > SCHEDULES // 100


@pytest.mark.parametrize(
    "rule",
    [
        "low is what is written",
        "keys of after images alone",
        "nothing is dropped",
        "it does not wait for the high mark",
        "later chunks may have seen less",
        "an XA transaction is not waited for",
        "XA ROLLBACK is as XA COMMIT",
        "what is undone is not newer",
        "rows in doubt do not wait",
    ],
)
def test_each_rule_left_out_is_noticed(rule: str) -> None:
    wrong = 0
    for seed in range(SCHEDULES):
        try:
            Schedule(seed, rule).run()
        except Wrong:
            wrong += 1
        if wrong > 3:
            return
    pytest.fail(f"{wrong} of {SCHEDULES} schedules are wrong")


def test_what_every_later_chunk_has_seen_is_forgotten() -> None:
    sequencer = SnapshotSequencer[tuple[int, ...], int, frozenset[int]]()
    for number in range(100):
        sequencer.log((number,), {TABLE: frozenset({number})})
    assert sum(map(len, sequencer.kept)) == 100
    sequencer.begin(0)
    sequencer.begin(1)
    sequencer.read(ReadRange(0, TABLE, Seen(frozenset(range(90))), 100))
    assert sum(map(len, sequencer.kept)) == 100  # the other one may have begun before
    sequencer.read(ReadRange(1, TABLE, Seen(frozenset(range(80))), 101))
    assert sum(map(len, sequencer.kept)) == 20
    [placed] = sequencer.due(100)
    assert (placed.number, placed.touched) == (0, tuple(frozenset({n}) for n in range(90, 100)))


def test_a_mark_of_now_lets_forget_but_for_what_is_being_read() -> None:
    sequencer = SnapshotSequencer[tuple[int, ...], int, frozenset[int]]()
    for number in range(100):
        sequencer.log((number,), {TABLE: frozenset({number})})
    sequencer.seen(Seen(frozenset(range(60))))
    assert sum(map(len, sequencer.kept)) == 40
    sequencer.begin(0)
    sequencer.seen(Seen(frozenset(range(90))))
    assert sum(map(len, sequencer.kept)) == 40
    sequencer.read(ReadRange(0, TABLE, Seen(frozenset(range(70))), 100))
    assert sum(map(len, sequencer.kept)) == 30
    sequencer.due(100)
    sequencer.seen(Seen(frozenset(range(100))))
    assert sum(map(len, sequencer.kept)) == 0


def test_chunks_are_placed_in_the_order_in_which_they_were_read() -> None:
    sequencer = SnapshotSequencer[tuple[int, ...], int, frozenset[int]]()
    for number, high in ((0, 5), (1, 3), (2, 9)):
        sequencer.begin(number)
        sequencer.read(ReadRange(number, TABLE, Seen(frozenset()), high))
    assert sequencer.due(4) == []
    assert [placed.number for placed in sequencer.due(6)] == [0, 1]
    assert sequencer.waiting == 1
