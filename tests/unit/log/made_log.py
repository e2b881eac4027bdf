"""A made-up binlog as the store's tests need it: entries in order, and what is true of each of
them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ray_canal.binlog.chunk import (
    ENTRY,
    EVENT_CLOSES,
    EVENT_IN_TRANSACTION,
    GTID,
    GTID_MYSQL,
    ChunkHead,
    ChunkInfo,
)
from ray_canal.model.position import EntryPosition

TABLES = (("shop", "item"), ("shop", "order"), ("crm", "person"))
SID = bytes(range(1, 17))
UUID = "01020304-0506-0708-090a-0b0c0d0e0f10"
BEGIN, ROWDATA, END = 1, 2, 3
INSERT, ALTER, ERASE, QUERY = 1, 5, 6, 7


@dataclass(frozen=True)
class MadeEntry:
    """One entry. `closes`: ends a transaction. `begin`: where the GTID event of its own is."""

    journal_name: str
    position: int
    length: int
    kind: int
    event_type: int
    rows: int
    table: int
    gno: int
    in_transaction: bool
    closes: bool
    timestamp: int
    begin: int

    @property
    def name(self) -> str:
        return "" if self.table < 0 else ".".join(TABLES[self.table])


class MadeLog:
    """Grows by transactions, statements and new files."""

    def __init__(self) -> None:
        self.entries: list[MadeEntry] = []
        self.base = "binlog"
        self.number, self.position, self.gno, self.timestamp = 1, 4, 0, 1_700_000_000
        self.gtid_position = 4

    @property
    def journal_name(self) -> str:
        return f"{self.base}.{self.number:06d}"

    def rotate(self) -> None:
        self.number, self.position = self.number + 1, 4

    def rename(self, base: str) -> None:
        """Go on as a server does that was started with another log_bin."""
        self.base, self.number, self.position = base, 1, 4

    def add(
        self, kind: int, event_type: int = 0, *, rows: int = 0, table: int = -1, length: int = 100,
        in_transaction: bool = False, closes: bool = False, repeat: int = 1,
    ) -> None:  # fmt: skip
        """`repeat` entries that one event makes."""
        for k in range(repeat):
            self.entries.append(
                MadeEntry(
                    self.journal_name, self.position, length, kind, event_type, rows, table,
                    self.gno, in_transaction, closes and k == repeat - 1, self.timestamp,
                    self.gtid_position,
                )
            )  # fmt: skip
        self.position += length

    def gtid(self) -> None:
        """A GTID event, and at a file's start what stands before the first one."""
        if self.position == 4:
            self.position += 122 + 71  # FORMAT_DESCRIPTION, PREVIOUS_GTIDS
        self.gno += 1
        self.gtid_position = self.position
        self.position += 79

    def begin(self) -> None:
        self.gtid()
        self.add(BEGIN)

    def row_event(self, rows: int = 1, table: int = 0, length: int = 100) -> None:
        self.position += 40  # the TABLE_MAP event
        self.add(ROWDATA, INSERT, rows=rows, table=table, length=length, in_transaction=True)

    def statement(self) -> None:
        """A QUERY inside a transaction."""
        self.add(ROWDATA, QUERY, in_transaction=True)

    def end(self) -> None:
        self.add(END, length=31, in_transaction=True, closes=True)

    def transaction(self, *row_counts: int, table: int = 0) -> None:
        self.begin()
        for rows in row_counts:
            self.row_event(rows, table)
        self.end()

    def ddl(self, tables: int = 1, event_type: int = ALTER) -> None:
        self.gtid()
        self.add(ROWDATA, event_type, closes=True, repeat=tables)

    def xa_branch(self) -> None:
        """Rows with no BEGIN before them, and a statement behind them."""
        self.gtid()
        for _ in range(3):
            self.position += 40
            self.add(ROWDATA, INSERT, rows=2, table=1)
        self.add(ROWDATA, QUERY, closes=True)

    def grow(self, random_: random.Random, steps: int) -> None:
        """Anything that a log may have, at random."""
        for _ in range(steps):
            self.timestamp += random_.randrange(3)
            what = random_.randrange(10)
            if what == 0:
                self.rotate()
            elif what == 1:
                self.ddl(random_.randrange(1, 4), random_.choice((ALTER, ERASE)))
            elif what == 2:
                self.transaction()
            elif what == 3:
                self.xa_branch()
            else:
                self.begin()
                for _ in range(random_.randrange(12)):
                    if random_.random() < 0.2:
                        self.statement()
                    else:
                        self.row_event(
                            random_.randrange(1, 9),
                            random_.randrange(3),
                            random_.choice((60, 300, 5000)),
                        )
                self.end()

    def index_at(self, cursor: EntryPosition) -> int:
        """The first entry that a dump from this position has (rows are not looked at)."""
        place = (cursor.journal_name, cursor.position)
        for index, entry in enumerate(self.entries):
            if (entry.journal_name, entry.position) >= place:
                return index
        return len(self.entries)

    def cursor_after(self, count: int) -> EntryPosition:
        """Where one resumes who has consumed the first `count` entries, worked out the slow way."""
        last = self.entries[count - 1]
        position, rows, entries, gno = 4, 0, 0, 0
        for entry in self.entries[:count]:
            gno = entry.gno if entry.closes else gno
            if entry.journal_name != last.journal_name:
                continue
            rows, entries, position = rows + entry.rows, entries + 1, entry.begin
            if entry.closes:
                position, rows, entries = entry.position + entry.length, 0, 0
        gtid = "" if gno == 0 else f"{UUID}:1" if gno == 1 else f"{UUID}:1-{gno}"
        return EntryPosition(last.journal_name, position, rows, gtid, last.timestamp, entries)

    def chunks(
        self, random_: random.Random, first: int = 0, at: EntryPosition | None = None
    ) -> Iterator[ChunkInfo]:
        """The entries from `first` on, cut anywhere between two events and at every new file."""
        sequence = 0
        while first < len(self.entries):
            last = min(first + random_.choice((1, 2, 5, 30)), len(self.entries))
            while last < len(self.entries) and _one_event(*self.entries[last - 1 : last + 1]):
                last += 1
            names = [entry.journal_name for entry in self.entries[first:last]]
            last = first + names.count(names[0])
            head = self.entries[first]
            start = head.position
            if first == 0 or self.entries[first - 1].journal_name != head.journal_name:
                start = 4
            if sequence == 0 and at is not None and at.journal_name == head.journal_name:
                start = at.position
            yield info_of(self.entries[first:last], sequence, start)
            first, sequence = last, sequence + 1


def _one_event(one: MadeEntry, other: MadeEntry) -> bool:
    return (one.journal_name, one.position) == (other.journal_name, other.position)


def info_of(entries: list[MadeEntry], sequence: int = 0, start: int | None = None) -> ChunkInfo:
    """A chunk of these entries."""
    begins = {entry.gno: entry.begin for entry in entries if entry.gno}
    gnos = sorted(begins)
    gtids = np.zeros(len(gnos), GTID)
    gtids["position"] = [begins[gno] for gno in gnos]
    gtids["sid"] = np.frombuffer(SID, np.uint8)
    gtids["gno"] = gnos
    gtids["flavor"] = GTID_MYSQL
    records = np.zeros(len(entries), ENTRY)
    for name in ("position", "length", "timestamp", "rows", "table", "kind", "event_type"):
        records[name] = [getattr(entry, name) for entry in entries]
    records["flags"] = [
        EVENT_IN_TRANSACTION * entry.in_transaction | EVENT_CLOSES * entry.closes
        for entry in entries
    ]
    index = {gno: k for k, gno in enumerate(gnos)}
    records["transaction"] = [index.get(entry.gno, -1) for entry in entries]
    start = entries[0].position if start is None else start
    end = entries[-1].position + entries[-1].length
    head = ChunkHead(sequence, entries[0].journal_name, start, end)
    return ChunkInfo(head, end - start, 0, records, gtids, TABLES)
