"""One subscriber's place in the log: what it may see, what it was given, what it has acked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ray_canal.filter import TableFilter
from ray_canal.log.log_order import LogOrder
from ray_canal.log.ring import Ring, Slot
from ray_canal.log.thinning import without_empty
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.arrays import Bools, Int64s
from ray_canal.model.canal_types import BEGIN, CREATE, DINDEX, QUERY, ROWDATA
from ray_canal.model.position import EntryPosition, journal_key
from ray_canal.model.subscription import Policy

_NONE: Int64s = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms that a subscriber asked for.

    `policy`: what happens when it falls behind by the whole log. `transactions`: it gets whole
    transactions only; the log then spills for it, whatever its policy.
    """

    filter: TableFilter
    policy: Policy = "block"
    transactions: bool = False

    @property
    def may_spill(self) -> bool:
        """Return whether what it needs may go to disk: by its policy, or as it reads whole
        transactions."""
        return self.policy == "spill" or self.transactions


@dataclass(frozen=True, slots=True)
class View:
    """The entries of one slot that one subscriber sees.

    `admitted`: indexes of its entries. `costs`: what the first n of them cost, for n = 0 … count
    (entries, or bytes of binlog). `ddl`: which of `admitted` are DDL. `ends`: indexes of entries
    that end a transaction, seen or not. `tables`: which of the chunk's tables it sees, a byte each
    (None: all). `consumed`: so many of the first entries lie before its cursor. `whole` is false of
    a slot on disk: then the counts are known, and `packed`: a bit for each entry that it sees
    (None: all of them).
    """

    admitted: Int64s
    costs: Int64s
    ddl: Int64s
    ends: Int64s
    count: int
    rows: int
    cost: int
    tables: bytes | None = None
    consumed: int = 0
    whole: bool = True
    packed: bytes | None = None

    def reduced(self, slot_count: int) -> View:
        """Return the part that is kept of a slot on disk."""
        packed = None
        if self.count != slot_count:
            mask = np.zeros(slot_count, np.bool_)
            mask[self.admitted] = True
            packed = np.packbits(mask).tobytes()
        counts = self.count, self.rows, self.cost, self.tables, self.consumed
        return View(_NONE, _NONE, _NONE, _NONE, *counts, False, packed)

    def mask(self, slot_count: int) -> Bools | None:
        """Return which entries of a slot on disk it sees; None: all."""
        if self.packed is None:
            return None
        bits = np.unpackbits(np.frombuffer(self.packed, np.uint8), count=slot_count)
        return bits.view(np.bool_)


@dataclass(slots=True)
class Mark:
    """An outstanding batch: log sequences [start, end). `after`: the cursor that its ack moves to.
    `on_disk`: some of it must be read from disk."""

    start: int
    end: int
    after: EntryPosition
    on_disk: bool = False


@dataclass(slots=True)
class Subscriber:
    """`next` is what the next get starts at; everything before `acked` is done with. Log
    sequences. `kept`: from here on the log keeps what was acked already but may still be read."""

    client_id: int
    terms: Terms
    cursor: EntryPosition | None
    order: LogOrder
    by_memory: bool
    next: int
    acked: int
    last_batch_id: int = 0
    void_up_to: int = field(init=False)  # batches up to this id are of an earlier place
    kept: int | None = None
    reached: EntryPosition | None = None  # the cursor of its last ack
    attempt_name: str = ""  # of rows that are read for it (SnapshotTag)
    marks: OrderedDict[int, Mark] = field(default_factory=OrderedDict)
    _views: dict[int, View] = field(default_factory=dict)
    # From this log sequence on nothing is at or before the cursor any more; None: not reached yet.
    _beyond_cursor: int | None = None

    def __post_init__(self) -> None:
        self.void_up_to = self.last_batch_id

    @property
    def needed_from(self) -> int:
        """Return the log sequence from which on it needs the log."""
        return self.acked if self.kept is None else self.kept

    def done_with(self, acked: int, ring: Ring) -> None:
        """Move `acked`, and forget views of slots before it: a slow subscriber may keep these in
        the log for long."""
        self.acked = acked
        slot = next(ring.since(self.needed_from), None)
        first = ring.put_sequence if slot is None else slot.first
        for passed in [each for each in self._views if each < first]:
            del self._views[passed]

    def change(self, terms: Terms) -> None:
        """Change its terms from the next get on. Rows of a snapshot that are read by another filter
        are void."""
        if terms != self.terms:
            if terms.filter != self.terms.filter:
                self.attempt_name = ""
            self.terms = terms
            self._views.clear()

    def begin_attempt(self, attempt_name: str) -> None:
        """See chunks of this snapshot attempt alone, from the next get on."""
        self.attempt_name = attempt_name
        self._views.clear()

    def view(self, slot: Slot) -> View | None:
        """The slot through this subscriber's filter; worked out once. Of a slot on disk that was
        not looked at before it went there: None."""
        found = self._views.get(slot.first)
        if slot.chunk is not None and (found is None or not found.whole):
            found = self._views[slot.first] = self._look(slot.chunk, slot)
        return found

    def consumed_up_to(self, slots: Iterable[Slot]) -> int:
        """Return the log sequence after the last of `slots`, which begin at the subscriber's next
        entry, that ends at or before its cursor."""
        end = self.next
        if self.cursor is None:
            return end
        # Of a transaction that was counted elsewhere it is looked at each entry.
        cursor = self.order.key(self.cursor.boundary if self.cursor.moved else self.cursor)
        for slot in slots:
            if self.order.key(slot.after) > cursor or self._is_own(slot):
                break
            end = slot.end
        return end

    def _is_own(self, slot: Slot) -> bool:
        """Return whether the slot has rows that were read for this subscriber."""
        return slot.tag is not None and slot.tag.attempt_name == self.attempt_name

    def forget(self, slot: Slot) -> None:
        """Forget what is known of a slot, which has left the log."""
        self._views.pop(slot.first, None)

    def reduce(self, slot: Slot) -> None:
        """The slot's chunk leaves memory: keep the counts."""
        found = self._views.get(slot.first)
        if found is not None and found.whole:
            self._views[slot.first] = found.reduced(slot.count)

    def _look(self, chunk: LogChunk, slot: Slot) -> View:
        entries = chunk.info.entries
        if slot.tag is not None:
            return self._look_at_read(chunk, slot)
        tables = chunk.info.admitted_tables(self.terms.filter.admits)
        mask = chunk.info.entries_of(tables)
        if chunk.visible is not None:
            mask &= chunk.visible
        before = 0
        behind = self._beyond_cursor is not None and slot.first >= self._beyond_cursor
        if self.cursor is not None and not behind:
            done = consumed(chunk, self.cursor, self.order)
            mask &= ~done
            before = int(done.sum())
            if self._beyond_cursor is None and not done.all():
                after = chunk.after
                behind = after is not None and self.order.key(after) > self.order.key(self.cursor)
                if behind or not self.cursor.moved:
                    self._beyond_cursor = slot.end
        admitted = np.flatnonzero(mask)
        if chunk.pulses is not None and not all(tables):
            admitted = without_empty(entries, admitted, chunk.pulses)
        if len(admitted) < len(entries):
            entries = entries[admitted]
        costs = np.arange(len(admitted) + 1, dtype=np.int64)
        if self.by_memory:
            np.cumsum(entries["length"], dtype=np.int64, out=costs[1:])
        # Of entries, mostly rows, few may be DDL.
        ddl = np.flatnonzero(entries["event_type"] >= CREATE)
        found = entries[ddl]
        kinds = found["event_type"]
        is_ddl = (found["kind"] == ROWDATA) & (kinds != QUERY) & (kinds <= DINDEX)
        return View(
            admitted,
            costs,
            ddl[is_ddl],
            chunk.closing if self.terms.transactions else _NONE,
            len(admitted),
            int(entries["rows"].sum()),
            int(costs[-1]),
            None if all(tables) else bytes(tables),
            before,
        )


    def _look_at_read(self, chunk: LogChunk, slot: Slot) -> View:
        """Rows that were read are behind any cursor, and for one subscriber."""
        entries = chunk.info.entries if self._is_own(slot) else chunk.info.entries[:0]
        costs = np.arange(len(entries) + 1, dtype=np.int64)
        if self.by_memory:
            np.cumsum(entries["length"], dtype=np.int64, out=costs[1:])
        rows, cost = int(entries["rows"].sum()), int(costs[-1])
        ends = chunk.closing if self.terms.transactions else _NONE
        return View(np.arange(len(entries)), costs, _NONE, ends, len(entries), rows, cost)


def consumed(
    chunk: LogChunk, cursor: EntryPosition, order: LogOrder
) -> Bools:
    """Return which entries of a chunk a subscriber with this cursor has consumed already: those
    that resume where it does, or before. `order`: of the log's files."""
    head, entries = chunk.info.head, chunk.info.entries
    if journal_key(head.journal_name) != journal_key(cursor.journal_name):
        file = EntryPosition(head.journal_name), EntryPosition(cursor.journal_name)
        before = order.key(file[0]) < order.key(file[1])
        return np.full(len(entries), before)
    position, row, entry = chunk.resumes()
    inside = entry <= cursor.entry
    if cursor.moved:
        # The rows are the same ones, in the same order; in which events, the other server chose. So
        # an entry was consumed for certain if both its rows and its place say so. Of what has no
        # rows only BEGIN is known to be in both.
        known = (entries["rows"] > 0) | (entries["kind"] == BEGIN)
        inside &= (row <= cursor.row) & known
    elif cursor.row and not cursor.entry:  # of a time when entries were not counted
        inside = (row < cursor.row) | ((row == cursor.row) & (entry <= 0))
    # Rows are not asked else: they are fewer once the destination's filter admits less.
    result: Bools = (position < cursor.position) | (
        (position == cursor.position) & inside
    )
    return result
