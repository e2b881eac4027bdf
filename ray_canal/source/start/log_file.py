"""Read one file of a log: its head, its transactions, and what is around an offset.

Event headers are walked, no row is decoded. Pure over the port `Log`, which a live server and a
directory of files both have. Times are microseconds since the epoch: the commit time that MySQL
8.0.1 and later write, else the header's second.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ray_canal.binlog.assemble import query_of
from ray_canal.binlog.chunk import (
    EVENT_IN_TRANSACTION,
    FLAVOR_MARIADB,
    RawChunk,
)
from ray_canal.binlog.events import version_numbers
from ray_canal.binlog.walked import Walked, walk
from ray_canal.kernels.base import event_types
from ray_canal.kernels.framing import query as q
from ray_canal.kernels.framing import walk as w
from ray_canal.model.arrays import Bools, Int64s, Records
from ray_canal.model.gtid import GtidSet, MariadbGtid
from ray_canal.model.position import EntryPosition, SourceIdentity

MICROS = 1_000_000
WIDE_OFFSET = 1 << 32
"""COM_BINLOG_DUMP has 32 bits for the offset where reading begins. A large transaction, which lies
in one file, makes files longer."""
_HEAD_CHUNK_BYTES = 16 << 10
WALK_CHUNK_BYTES = 4 << 20
_PREVIOUS_GTIDS, _GTID_LIST = 35, 163



def takes_wide_offsets(version: str, gtid_mode: str) -> bool:
    """Return whether a server can be asked for larger ones, by COM_BINLOG_DUMP_GTID. (MySQL 5.6
    goes on with the next file after one event; MariaDB has no such command.)"""
    is_mysql = "mariadb" not in version.lower()
    return is_mysql and gtid_mode.upper() == "ON" and version_numbers(version) >= (5, 7)


class Log(Protocol):
    """The log as a search asks for it. Raises SourceError kinds."""

    @property
    def identity(self) -> SourceIdentity: ...

    @property
    def is_mariadb(self) -> bool:
        """Return whether a MariaDB wrote the log."""
        ...

    def files(self) -> Sequence[tuple[str, int]]:
        """(name, size in bytes), oldest first; at least one."""
        ...

    def end(self) -> EntryPosition:
        """Return where the log ends now, with the GTIDs executed up to there."""
        ...

    def executed(self) -> str:
        """GTIDs of all that the server has; empty where there are none."""
        ...

    def known_gtids(self) -> str:
        """Return the GTIDs known up to the end; of MariaDB, of each domain the last of every server
        that ever wrote in it."""
        ...

    def offsets_max(self) -> int:
        """Reading can begin at smaller offsets."""
        ...

    def takes_gtid_sets(self) -> bool:
        """Return whether a dump may be asked for by what was executed; MySQL: gtid_mode = ON."""
        ...

    def leaves_rows_out(self) -> str:
        """Return why transactions that it replicates may lack rows here; empty: it says of no
        reason."""
        ...

    def purged(self) -> str:
        """GTIDs of what the server has executed and its log does not have."""
        ...

    def now_us(self) -> int:
        """Return what the clock says that the log's times are of."""
        ...

    def chunks(self, journal_name: str, chunk_bytes: int) -> Iterator[RawChunk]:
        """One file from its beginning to its present end; reads ahead about a chunk."""
        ...


@dataclass(frozen=True, slots=True)
class FileHead:
    """The first events of a file. `gtids`: executed before it; `created_s`: when the server created
    it; `first_us`: commit time of its first transaction, 0 if it has none or none is written;
    `first_time_us`: else its header time, to the second."""

    journal_name: str
    created_s: int
    gtids: str = ""
    first_us: int = 0
    first_time_us: int = 0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The part of a file around an offset.

    `start`: the offset, or the beginning of the transaction that it is inside of, with the GTIDs
    executed before it; `entries` of that transaction lie before the offset. `is_event`: an event
    begins at the offset, or the file ends there. Header times in seconds, 0: none. `before_s`: of
    the last entry before the offset; `at_s`: of the event at it. Commit times on the server where
    it was written: `last_us` of the last transaction that begins before the offset, `next_us` of
    the one that begins at it.
    """

    start: EntryPosition
    is_event: bool
    entries: int = 0
    before_s: int = 0
    at_s: int = 0
    last_us: int = 0
    next_us: int = 0


@dataclass(frozen=True, slots=True)
class FileTransactions:
    """Transactions of a piece of a file, in its order: where each begins, its time, the commit time
    on the server where it was written (0: not written). `gtids` has a record for each, or none at
    all in logs from before GTIDs. `exact`: whether the time has microseconds, else it is a whole
    second. The piece ends at offset `end`; the last transaction that ends in it does at `closed`,
    0: none does."""

    journal_name: str
    position: Int64s
    time_us: Int64s
    original_us: Int64s
    gtids: Records
    exact: Bools
    end: int
    closed: int

    def not_before(self, time_us: int) -> Bools:
        """Return which may be of this time or a later one."""
        whole_second = time_us // MICROS * MICROS
        return self.time_us >= np.where(self.exact, time_us, whole_second)


def read_head(log: Log, journal_name: str) -> FileHead:
    """The head of a file. Raises SourceError, DecodeError kinds."""
    head = FileHead(journal_name, 0)
    for chunk in log.chunks(journal_name, _HEAD_CHUNK_BYTES):
        if not head.created_s:
            head = _control_events(chunk, journal_name)
        found = _transactions(chunk)
        if len(found.position):
            first_us = int(found.gtids["commit_us"][0]) if len(found.gtids) else 0
            first_time_us = int(found.time_us[0])
            return replace(head, first_us=first_us, first_time_us=first_time_us)
    return head


def _control_events(chunk: RawChunk, journal_name: str) -> FileHead:
    """FORMAT_DESCRIPTION's time, and the GTIDs that PREVIOUS_GTIDS or GTID_LIST names."""
    data, trailer = chunk.data, event_types.CHECKSUM_BYTES if chunk.head.has_checksum else 0
    at, created_s, gtids = 0, 0, ""
    while at + event_types.HEADER_BYTES <= data.size:
        length = int.from_bytes(data[at + 9 : at + 13].tobytes(), "little")
        kind = int(data[at + 4])
        body = data[at + event_types.HEADER_BYTES : at + length - trailer]
        if kind == event_types.FORMAT_DESCRIPTION:
            created_s = int.from_bytes(data[at : at + 4].tobytes(), "little")
        elif kind == _PREVIOUS_GTIDS:
            gtids = str(GtidSet.decode(body.tobytes()))
        elif kind == _GTID_LIST and chunk.head.flavor == FLAVOR_MARIADB:
            gtids = str(MariadbGtid.decode(body.tobytes()))
        else:
            break
        at += length
    return FileHead(journal_name, created_s, gtids)


def transactions(log: Log, journal_name: str) -> Iterator[FileTransactions]:
    """Yield all transactions of a file, piece by piece."""
    for chunk in log.chunks(journal_name, WALK_CHUNK_BYTES):
        yield _transactions(chunk)


def _transactions(chunk: RawChunk) -> FileTransactions:
    return transactions_of(chunk, walk(chunk))


def transactions_of(chunk: RawChunk, walked: Walked) -> FileTransactions:
    """Return the transactions that begin in a chunk, in order. Raises DecodeError kinds: an event
    could not be read."""
    if walked.failure is not None:
        raise walked.failure
    head, gtids, seconds = chunk.head, walked.gtids, walked.gtid_seconds
    end = head.end_position
    closed = closed_before(chunk, walked, end)
    if not len(gtids):
        starts = _starts_without_gtids(walked.events)
        found = walked.events[starts]
        none = np.zeros(len(starts), np.int64)
        return FileTransactions(
            head.journal_name,
            found["position"],
            found["timestamp"].astype(np.int64) * MICROS,
            none,
            gtids,
            none > 0,
            end,
            closed,
        )
    own = gtids["position"] >= head.position  # one from before the chunk was carried along
    gtids, seconds = gtids[own], seconds[own]
    commit_us = gtids["commit_us"].astype(np.int64)
    return FileTransactions(
        head.journal_name,
        gtids["position"].astype(np.int64),
        np.where(commit_us > 0, commit_us, seconds * MICROS),
        gtids["original_us"].astype(np.int64),
        gtids,
        commit_us > 0,
        end,
        closed,
    )


def _alone(events: Records) -> Bools:
    """Return which of them are statements that are a transaction each."""
    in_transaction = events["flags"] & EVENT_IN_TRANSACTION != 0
    return np.asarray((events["kind"] == q.KIND_SPECIAL) & ~in_transaction)


def _starts_without_gtids(events: Records) -> Int64s:
    starts: Int64s = np.flatnonzero((events["kind"] == q.KIND_BEGIN) | _alone(events))
    carried = events["gtid"] >= 0  # its transaction began in an earlier piece
    return np.asarray(starts[~carried[starts]])


def closed_before(chunk: RawChunk, walked: Walked, position: int) -> int:
    """Return where the last transaction of a chunk that ends at or before `position` ends; 0:
    none."""
    events = walked.events
    behind = (events["position"] + events["length"])[_ends(chunk, walked)]
    behind = behind[behind <= position]
    return int(behind[-1]) if len(behind) else 0


def _ends(chunk: RawChunk, walked: Walked) -> Bools:
    """Return which events end a transaction: no other one goes on in it. (XA END does, and XA START
    does not; their events are statements as any.)"""
    events = walked.events
    goes_on = events["kind"] == q.KIND_BEGIN
    if len(events):
        goes_on[:-1] |= events["flags"][1:] & EVENT_IN_TRANSACTION != 0
        goes_on[-1] |= _leaves_open(chunk, walked)
    return np.asarray(~goes_on)


def _leaves_open(chunk: RawChunk, walked: Walked) -> bool:
    """Return whether a transaction goes on behind a chunk's last event."""
    last = walked.events[-1]
    is_inside = bool(last["flags"] & EVENT_IN_TRANSACTION)
    if last["kind"] == q.KIND_SPECIAL and last["type_code"] == event_types.QUERY:
        text = query_of(chunk, walked, len(walked.events) - 1).sql
        return text.startswith("XA START") or (is_inside and not text.startswith("XA END"))
    return is_inside and last["kind"] != q.KIND_END


def event_at(chunk: RawChunk, position: int) -> tuple[bool, int]:
    """Return whether one of a chunk's own events begins there, and its header time."""
    data, head = chunk.data.data, chunk.head
    at, place, inner = head.carried_bytes, head.position, 0
    while at < len(data) and place < position:
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        if data[at + 4] == event_types.TRANSACTION_PAYLOAD and size == w.FRAME_BYTES:
            # What was compressed stands behind the frame, and takes up the room of one event.
            frame = data[at + event_types.HEADER_BYTES : at + size]
            place, length, _, inside = struct.unpack("<4q", frame)
            at, inner = at + size, at + size + inside
            if place == position:
                return True, int.from_bytes(data[at - size : at - size + 4], "little")
            place += length
            at = inner
            continue
        at, place = at + size, place + size
    if place != position or at >= len(data):
        return place == position, 0
    return True, int.from_bytes(data[at : at + 4], "little")
