"""MySQL servers of a simulation: transactions that are committed and replicated, binlog files that
are rotated, purged and reset, as bytes (for searches) and as entries (for the log).

Every row has a number of its own, in the order of commits: what is lost, repeated or out of order
is seen by numbers.
"""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ray_canal.binlog.chunk import (
    ENTRY,
    EVENT_CLOSES,
    EVENT_IN_TRANSACTION,
    GTID,
    GTID_ANONYMOUS,
    GTID_MYSQL,
    ChunkHead,
    ChunkInfo,
    RawChunk,
)
from ray_canal.binlog.cutter import ChunkCutter
from ray_canal.model.canal_types import XACOMMIT, XAROLLBACK
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import BINLOG_START, EntryPosition, SourceIdentity, journal_key
from ray_canal.views.transactions import (
    COMMIT_PREPARED,
    COMMITTED,
    PREPARED,
    ROLLBACK_PREPARED,
)
from tests.simulation.virtual_time import EPOCH_S

SCHEMA = "shop"
TABLES = ("item", "order", "person")
BEGIN, ROWDATA, END = 1, 2, 3
INSERT, QUERY, TRUNCATE, RENAME = 1, 7, 8, 10
ALL_ROWS, SOME_ROWS = -1, -2
"""In place of a row's number: what was written is a TRUNCATE, or a RENAME of tables by which one
has got another one's rows."""
_STATEMENTS = {
    ALL_ROWS: (TRUNCATE, "TRUNCATE TABLE {0}"),
    SOME_ROWS: (RENAME, "RENAME TABLE {0} TO old, new TO {0}"),
}

_ALONE = TRUNCATE, RENAME, XACOMMIT, XAROLLBACK
XA_ENDS = {COMMIT_PREPARED: XACOMMIT, ROLLBACK_PREPARED: XAROLLBACK}
_FORMAT, _PREVIOUS_GTIDS, _GTID, _ANONYMOUS, _QUERY, _TABLE_MAP, _ROWS, _XID, _XA_PREPARE = (
    15, 35, 33, 34, 2, 19, 30, 16, 38
)  # fmt: skip
_POST_HEADER_BYTES = bytes.fromhex(
    "000d0008000000000400040000006200041a08000000080808020000000a0a0a2a2a001234000a2800"
)


@dataclass(frozen=True, slots=True)
class Transaction:
    """One commit: its rows' numbers by table index, in order; where and when it was committed. It
    has no rows if it is a `statement`: what it does, and its table; or if it ends an XA transaction
    that was `prepared` with those rows."""

    source: bytes
    gno: int
    commit_us: int
    rows: tuple[tuple[int, int], ...]  # (row number, table)
    statement: tuple[int, int] | None = None
    outcome: str = COMMITTED
    xa_id: str = ""
    prepared: tuple[tuple[int, int], ...] = ()

    @property
    def changes(self) -> tuple[tuple[int, int], ...]:
        """What its end does to the tables."""
        if self.statement is not None:
            return (self.statement,)
        if self.outcome == COMMIT_PREPARED:
            return self.prepared
        return self.rows if self.outcome == COMMITTED else ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One log entry; `rows` are the numbers of its rows."""

    position: int
    length: int
    kind: int
    event_type: int
    table: int
    rows: tuple[int, ...]
    closes: bool
    gtid: tuple[bytes, int]
    commit_us: int
    begin: int  # of its transaction: where the GTID event starts
    ordinal: int = 0  # of rows that were read, which have one place
    outcome: str = COMMITTED
    xa_id: str = ""


@dataclass
class BinlogFile:
    name: str
    before: str  # GTIDs executed before it
    created_s: int
    data: bytearray = field(default_factory=bytearray)
    entries: list[Entry] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.data)


class Server:
    """One MySQL. `packing`: the most rows of a row event; `says_queries`: whether statements are
    logged beside their rows. `gtids`: whether transactions have them. `now`: seconds since
    EPOCH_S."""

    def __init__(
        self,
        name: str,
        random_: random.Random,
        *,
        base: str = "binlog",
        first_number: int = 1,
        gtids: bool = True,
        now: Callable[[], float],
    ) -> None:
        self._now = now
        self.address = f"{name}:3306"
        self.uuid = str(uuid.UUID(int=random_.getrandbits(128), version=4))
        self.sid = uuid.UUID(self.uuid).bytes
        self.gtids = gtids
        self.packing = random_.choice((1, 2, 5))
        self.says_queries = random_.random() < 0.3
        self.base = base
        self.starts = 0  # a connection is to one of them
        self.alive = True
        self.transactions: list[Transaction] = []
        self.changes: list[tuple[int, int]] = []  # all that its tables got: number, table
        self.prepared: dict[str, tuple[tuple[int, int], ...]] = {}  # rows by XA id
        self.executed = GtidSet.parse("")
        self.files: list[BinlogFile] = []
        self.lives: list[list[BinlogFile]] = [[]]  # all files that ever were, purged ones too
        self._number = first_number - 1
        self._gno = 0
        self._begin = 0
        self.life = 0  # rises by each reset
        self.rotate()

    # --- what happens to it ---------------------------------------------------------------------

    def rotate(self) -> None:
        self._number += 1
        name = f"{self.base}.{self._number:06d}"
        created_s = int(EPOCH_S + self._now())
        file = BinlogFile(name, self.executed_text(), created_s)
        self.files.append(file)
        self.lives[-1].append(file)
        file.data += b"\xfebin"
        body = struct.pack("<H50sIB", 4, b"8.0.36", created_s, 19) + _POST_HEADER_BYTES + b"\0"
        created_us = created_s * 1_000_000
        self._write(_FORMAT, body + b"\0\0\0\0", created_us)
        if self.gtids:
            self._write(_PREVIOUS_GTIDS, self.executed.encode(), created_us)

    @property
    def alive(self) -> bool:
        return self._alive

    @alive.setter
    def alive(self, alive: bool) -> None:
        self._alive = alive
        self.starts += alive

    def commit(
        self,
        rows: Sequence[tuple[int, int]],
        commit_us: int,
        statement: tuple[int, int] | None = None,
        outcome: str = COMMITTED,
        xa_id: str = "",
    ) -> Transaction:
        self._gno += 1
        prepared = self.prepared.get(xa_id, ())
        made = Transaction(
            self.sid, self._gno, commit_us, tuple(rows), statement, outcome, xa_id, prepared
        )
        self.apply(made)
        return made

    def apply(self, transaction: Transaction) -> None:
        """Write it into the binlog, be it one's own or a replicated one."""
        self.transactions.append(transaction)
        self.changes.extend(transaction.changes)
        self.prepared.pop(transaction.xa_id, None)
        if transaction.outcome == PREPARED:
            self.prepared[transaction.xa_id] = transaction.rows
        gtid = (transaction.source, transaction.gno)
        commit_us = transaction.commit_us
        lengths = b"\0" * 16
        times = commit_us.to_bytes(7, "little")
        kind, sid, gno = (_GTID, *gtid) if self.gtids else (_ANONYMOUS, bytes(16), 0)
        body = b"\0" + sid + struct.pack("<qB", gno, 2) + lengths + times + b"\xfc\0\1"
        self._begin, _ = self._write(kind, body + struct.pack("<I", 80036), commit_us)
        if self.gtids:
            self.executed.add(*gtid)
        if transaction.statement is not None:
            event_type, text = _STATEMENTS[transaction.statement[0]]
            table = transaction.statement[1]
            self._statement(text.format(TABLES[table]), event_type, table, gtid, commit_us)
            return
        xa_id, outcome = transaction.xa_id, transaction.outcome
        if outcome in XA_ENDS:
            word = "COMMIT" if outcome == COMMIT_PREPARED else "ROLLBACK"
            self._statement(
                f"XA {word} {_xid(xa_id)}", XA_ENDS[outcome], -1, gtid, commit_us,
                outcome=outcome, xa_id=xa_id,
            )  # fmt: skip
            return
        begin = _query(f"XA START {_xid(xa_id)}" if outcome == PREPARED else "BEGIN")
        self._entry(self._write(_QUERY, begin, commit_us), BEGIN, gtid, commit_us)
        rest = list(transaction.rows)
        while rest:
            table = rest[0][1]
            count = 1
            while count < min(len(rest), self.packing) and rest[count][1] == table:
                count += 1
            taken, rest = rest[:count], rest[count:]
            if self.says_queries:
                place = self._write(_QUERY, _query("insert"), commit_us)
                self._entry(place, ROWDATA, gtid, commit_us, event_type=QUERY)
            self._table_map(table, commit_us)
            body = struct.pack("<IHHH", table + 1, 0, 1, 2) + b"\x01\xff"
            body += b"".join(b"\0" + struct.pack("<i", number) for number, _ in taken)
            place = self._write(_ROWS, body, commit_us)
            numbers = tuple(number for number, _ in taken)
            self._entry(place, ROWDATA, gtid, commit_us, INSERT, table, numbers, xa_id=xa_id)
        if outcome == PREPARED:
            at, length = self._write(_QUERY, _query(f"XA END {_xid(xa_id)}"), commit_us)
            name = xa_id.encode()
            event = struct.pack("<BIII", 0, 1, len(name), 0) + name
            place = at, length + self._write(_XA_PREPARE, event, commit_us)[1]
        else:
            place = self._write(_XID, struct.pack("<q", transaction.gno), commit_us)
        self._entry(place, END, gtid, commit_us, closes=True, outcome=outcome, xa_id=xa_id)

    def _statement(
        self, text: str, event_type: int, table: int, gtid: tuple[bytes, int], commit_us: int,
        **named: str,
    ) -> None:  # fmt: skip
        place = self._write(_QUERY, _query(text), commit_us)
        self._entry(place, ROWDATA, gtid, commit_us, event_type, table, closes=True, **named)

    def purge(self, keep: int) -> set[int]:
        """Forget all files but the newest `keep`; return the rows of the others."""
        purged = self.files[: max(0, len(self.files) - keep)]
        del self.files[: len(purged)]
        return {number for file in purged for entry in file.entries for number in entry.rows}

    def reset(self) -> set[int]:
        """RESET BINARY LOGS AND GTIDS: the log begins again, the data and the uuid stay. Return the
        rows that no log has any more."""
        rows = self.purge(0)
        self._go_on_with([], [])
        return rows

    def put_back(self, count: int) -> bool:
        """Be put back to a copy of the data and the logs, when there were so many transactions, and
        start. Return False where files of then were purged."""
        left = count - (len(self.transactions) - sum(entry.closes for entry in self._entries()))
        if left <= 0:
            return False
        files = []
        for file in self.files:
            ends = [k for k, entry in enumerate(file.entries) if entry.closes]
            if left <= len(ends):
                entries = file.entries[: ends[left - 1] + 1]
                data = file.data[: entries[-1].position + entries[-1].length]
                files.append(replace(file, data=data, entries=entries))
                break
            left -= len(ends)
            files.append(replace(file, entries=list(file.entries), data=file.data[:]))
        if lost := sum(len(made.changes) for made in self.transactions[count:]):
            del self.changes[-lost:]
        for made in reversed(self.transactions[count:]):
            if made.outcome == PREPARED:
                self.prepared.pop(made.xa_id, None)
            elif made.outcome in XA_ENDS:
                self.prepared[made.xa_id] = made.prepared
        self._go_on_with(files, self.transactions[:count])
        return True

    def _entries(self) -> Iterator[Entry]:
        return (entry for file in self.files for entry in file.entries)

    def _go_on_with(self, files: list[BinlogFile], transactions: list[Transaction]) -> None:
        self.life += 1
        self.lives.append(list(files))
        self.files, self.transactions = files, transactions
        self._number = journal_key(files[-1].name)[1] if files else 0
        self._gno = sum(made.source == self.sid for made in transactions)
        self.executed = GtidSet.parse("")
        for made in transactions:
            self.executed.add(made.source, made.gno)
        self.rotate()

    # --- what it says ---------------------------------------------------------------------------

    def executed_text(self) -> str:
        return str(self.executed) if self.gtids else ""

    def now_us(self) -> int:
        """Its clock, behind all commits."""
        newest = self.transactions[-1].commit_us if self.transactions else 0
        return max(newest, round((EPOCH_S + self._now()) * 1_000_000))

    @property
    def end(self) -> EntryPosition:
        file = self.files[-1]
        return EntryPosition(file.name, file.size, gtid=self.executed_text())

    def entries_from(self, place: EntryPosition) -> Iterator[Entry]:
        """Entries at or behind a place of any of its logs, be it purged or not."""
        for files in reversed(self.lives):
            if not any((f.name, f.created_s) == _file_of(place, f) for f in files):
                continue
            for file in files:
                if journal_key(file.name) < journal_key(place.journal_name):
                    continue
                for entry in file.entries:
                    if file.name != place.journal_name or entry.position >= place.position:
                        yield entry
            return

    def _write(self, kind: int, body: bytes, commit_us: int = 0) -> tuple[int, int]:
        data = self.files[-1].data
        at, length = len(data), 19 + len(body)
        seconds = commit_us // 1_000_000
        data += struct.pack("<IBIIIH", seconds, kind, 1, length, at + length, 0) + body
        return at, length

    def _table_map(self, table: int, commit_us: int) -> None:
        name = TABLES[table].encode()
        body = struct.pack("<IHH", table + 1, 0, 0) + bytes([len(SCHEMA)]) + SCHEMA.encode()
        body += b"\0" + bytes([len(name)]) + name + b"\0" + b"\x01\x03\x00\x00"
        self._write(_TABLE_MAP, body, commit_us)

    def _entry(
        self, place: tuple[int, int], kind: int, gtid: tuple[bytes, int], commit_us: int,
        event_type: int = 0, table: int = -1, rows: tuple[int, ...] = (), closes: bool = False,
        **named: str,
    ) -> None:  # fmt: skip
        place_of = *place, kind, event_type, table, rows, closes, gtid, commit_us, self._begin
        self.files[-1].entries.append(Entry(*place_of, **named))


def _query(text: str) -> bytes:
    """The body of a QUERY event."""
    return struct.pack("<IIBHH", 1, 0, len(SCHEMA), 0, 0) + f"{SCHEMA}\0{text}".encode()


def _xid(xa_id: str) -> str:
    return f"X'{xa_id.encode().hex()}',X'',1"


def _file_of(place: EntryPosition, file: BinlogFile) -> tuple[str, int]:
    """A place's file; one that does not know when it was created may be any of its name."""
    return place.journal_name, place.created_s or file.created_s


class SearchedLog:
    """A server's log as source/start/search.py's port."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.identity = SourceIdentity(server.address, server.uuid)
        self.is_mariadb = False

    def files(self) -> Sequence[tuple[str, int]]:
        return [(file.name, file.size) for file in self._server.files]

    def end(self) -> EntryPosition:
        return self._server.end

    def executed(self) -> str:
        return self._server.executed_text()

    def known_gtids(self) -> str:
        return self._server.executed_text()

    def now_us(self) -> int:
        return self._server.now_us()

    def takes_gtid_sets(self) -> bool:
        return True

    def leaves_rows_out(self) -> str:
        return ""

    def purged(self) -> str:
        return self._server.files[0].before

    def chunks(self, journal_name: str, chunk_bytes: int) -> Iterator[RawChunk]:
        (file,) = (file for file in self._server.files if file.name == journal_name)
        cutter = ChunkCutter(chunk_bytes, contiguous=True)
        cutter.begin_file(journal_name)
        cutter.feed(bytes(file.data[BINLOG_START:]))
        while (chunk := cutter.next()) is not None:
            yield chunk
        if (rest := cutter.flush()) is not None:
            yield rest


def chunk_of(
    sequence: int, file: BinlogFile, start: int, entries: Sequence[Entry], gtids: bool
) -> ChunkInfo:
    """What a decoder says of a chunk of these entries; `start` is the offset at which it begins."""
    transactions = list(dict.fromkeys(entry.gtid for entry in entries))
    commits = {entry.gtid: (entry.commit_us, entry.begin) for entry in entries}
    records = np.zeros(len(entries), ENTRY)
    for name in ("position", "length", "table", "kind", "event_type"):
        records[name] = [getattr(entry, name) for entry in entries]
    records["rows"] = [len(entry.rows) for entry in entries]
    records["timestamp"] = [entry.commit_us // 1_000_000 for entry in entries]
    records["flags"] = [
        EVENT_IN_TRANSACTION * (entry.kind != BEGIN and entry.event_type not in _ALONE)
        | EVENT_CLOSES * entry.closes
        for entry in entries
    ]
    index = {gtid: k for k, gtid in enumerate(transactions)}
    records["transaction"] = [index[entry.gtid] for entry in entries]
    found = np.zeros(len(transactions), GTID)
    found["flavor"] = GTID_MYSQL if gtids else GTID_ANONYMOUS
    for k, (sid, gno) in enumerate(transactions):
        if gtids:
            found["sid"][k], found["gno"][k] = np.frombuffer(sid, np.uint8), gno
        commit_us, found["position"][k] = commits[sid, gno]
        found["commit_us"][k] = found["original_us"][k] = commit_us
    end = entries[-1].position + entries[-1].length
    head = ChunkHead(sequence, file.name, start, end, created_s=file.created_s)
    tables = tuple((SCHEMA, table) for table in TABLES)
    return ChunkInfo(head, end - start, end - start, records, found, tables)
