"""Searching a log's files: by time, by GTID set, by commit time; where transactions begin.

Files are bisected by their heads: a few events each, at most log2(files) + 2 heads. In the file
that is left, event headers are walked and no row is decoded. Pure over the port `Log`, which a live
server and a directory of files both have. Times are microseconds since the epoch: the commit time
that MySQL 8.0.1 and later write, else the header's second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ray_canal.binlog import types
from ray_canal.binlog.chunk import (
    EVENT_IN_TRANSACTION,
    FLAVOR_MARIADB,
    GTID_ANONYMOUS,
    RawChunk,
)
from ray_canal.binlog.executed import gtid_set_after
from ray_canal.binlog.trail import Folding, digests_of, extended, place_behind
from ray_canal.binlog.walked import digest_pieces, walk
from ray_canal.kernels import walk as w
from ray_canal.protocol.gtid import GtidSet, MariadbGtid
from ray_canal.protocol.position import BINLOG_START, EntryPosition, SourceIdentity

MICROS = 1_000_000
_HEAD_CHUNK_BYTES = 16 << 10
_WALK_CHUNK_BYTES = 4 << 20
_PREVIOUS_GTIDS, _GTID_LIST = 35, 163

Ints = npt.NDArray[np.int64]


class Log(Protocol):
    """What a search asks of a log. Raises SourceError kinds."""

    @property
    def identity(self) -> SourceIdentity: ...

    @property
    def is_mariadb(self) -> bool: ...

    def files(self) -> Sequence[tuple[str, int]]:
        """(name, size in bytes), oldest first; at least one."""
        ...

    def end(self) -> EntryPosition:
        """Where the log ends now, with the GTIDs executed up to there."""
        ...

    def executed(self) -> str:
        """GTIDs of all that the server has; empty where there are none."""
        ...

    def purged(self) -> str:
        """GTIDs of what the server has executed and its log does not have."""
        ...

    def chunks(self, journal_name: str, chunk_bytes: int) -> Iterator[RawChunk]:
        """One file from its beginning to its present end; reads ahead about a chunk."""
        ...


@dataclass(frozen=True, slots=True)
class FileHead:
    """The first events of a file. `gtids`: executed before it; `created_s`: when it was begun;
    `first_us`: commit time of its first transaction, 0 if it has none or none is written."""

    journal_name: str
    created_s: int
    gtids: str = ""
    first_us: int = 0


@dataclass(frozen=True, slots=True)
class Transactions:
    """Transactions of a piece of a file, in its order: where each begins, its time, the commit time
    on the server where it was written (0: not written). `gtids` has a record for each, or none at
    all in logs from before GTIDs. `exact`: whether the time has microseconds, else it is a whole
    second."""

    journal_name: str
    position: Ints
    time_us: Ints
    original_us: Ints
    gtids: npt.NDArray[np.void]
    exact: npt.NDArray[np.bool_]

    def not_before(self, time_us: int) -> npt.NDArray[np.bool_]:
        """Which may be of this time or a later one."""
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
            return FileHead(journal_name, head.created_s, head.gtids, first_us)
    return head


def _control_events(chunk: RawChunk, journal_name: str) -> FileHead:
    """FORMAT_DESCRIPTION's time, and the GTIDs that PREVIOUS_GTIDS or GTID_LIST names."""
    data, trailer = chunk.data, types.CHECKSUM_BYTES if chunk.head.has_checksum else 0
    at, created_s, gtids = 0, 0, ""
    while at + types.HEADER_BYTES <= data.size:
        length = int.from_bytes(data[at + 9 : at + 13].tobytes(), "little")
        kind = int(data[at + 4])
        body = data[at + types.HEADER_BYTES : at + length - trailer]
        if kind == types.FORMAT_DESCRIPTION_EVENT:
            created_s = int.from_bytes(data[at : at + 4].tobytes(), "little")
        elif kind == _PREVIOUS_GTIDS:
            gtids = str(GtidSet.decode(body.tobytes()))
        elif kind == _GTID_LIST and chunk.head.flavor == FLAVOR_MARIADB:
            gtids = str(MariadbGtid.decode(body.tobytes()))
        else:
            break
        at += length
    return FileHead(journal_name, created_s, gtids)


def transactions(log: Log, journal_name: str) -> Iterator[Transactions]:
    """All transactions of a file, piece by piece."""
    for chunk in log.chunks(journal_name, _WALK_CHUNK_BYTES):
        yield _transactions(chunk)


def _transactions(chunk: RawChunk) -> Transactions:
    walked = walk(chunk)
    if walked.failure is not None:
        raise walked.failure
    head, gtids, seconds = chunk.head, walked.gtids, walked.gtid_seconds
    if not len(gtids):
        starts = _starts_without_gtids(walked.events)
        found = walked.events[starts]
        none = np.zeros(len(starts), np.int64)
        return Transactions(
            head.journal_name,
            found["position"],
            found["timestamp"].astype(np.int64) * MICROS,
            none,
            gtids,
            none > 0,
        )
    own = gtids["position"] >= head.position  # one from before the chunk was carried along
    gtids, seconds = gtids[own], seconds[own]
    commit_us = gtids["commit_us"].astype(np.int64)
    return Transactions(
        head.journal_name,
        gtids["position"].astype(np.int64),
        np.where(commit_us > 0, commit_us, seconds * MICROS),
        gtids["original_us"].astype(np.int64),
        gtids,
        commit_us > 0,
    )


def _alone(events: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Which of them are statements that are a transaction each."""
    in_transaction = events["flags"] & EVENT_IN_TRANSACTION != 0
    return np.asarray((events["kind"] == w.KIND_SPECIAL) & ~in_transaction)


def _starts_without_gtids(events: npt.NDArray[np.void]) -> Ints:
    starts: Ints = np.flatnonzero((events["kind"] == w.KIND_BEGIN) | _alone(events))
    carried = events["gtid"] >= 0  # its transaction began in an earlier piece
    return np.asarray(starts[~carried[starts]])


class Search:
    """Searches in one log; what is learned of its files' heads is kept for the next one. Every
    search raises SourceError and DecodeError kinds."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._names = [name for name, _ in log.files()]
        self._heads: dict[str, FileHead] = {}
        self._purged: str | None = None
        self.found_us = 0  # original commit time of the transaction that a search ended at

    @property
    def first(self) -> FileHead:
        """The head of the oldest file."""
        return self.head(self._names[0])

    def head(self, journal_name: str) -> FileHead:
        """With what was executed and never was in this log (as of a server made of a backup), which
        no file names."""
        if journal_name not in self._heads:
            head = read_head(self._log, journal_name)
            if self._purged is None:
                self._purged = self._log.purged()
            if self._purged:
                both = GtidSet.parse(self._purged).union(GtidSet.parse(head.gtids))
                head = replace(head, gtids=str(both))
            self._heads[journal_name] = head
        return self._heads[journal_name]

    def time(self, time_us: int) -> EntryPosition | None:
        """Where the first transaction of this time or a later one begins, with the GTIDs before it;
        the log's end if there is none yet. None: the log begins later, so earlier ones may be gone.

        Where only seconds are written, those of the same second count as not earlier.
        """
        if not self._begun_before(self._names[0], time_us):
            return None
        return self._first(self._since(time_us), lambda some: some.not_before(time_us))

    def gtids(self, executed: str) -> EntryPosition | None:
        """Where the first transaction begins that is not in the set; the log's end if all are in
        it. None: transactions that are not in the set lie before the log's beginning."""
        low = self._last(lambda name: not missing_gtids(self.head(name).gtids, executed))
        if missing_gtids(self.head(self._names[low]).gtids, executed):
            return None
        return self._first(self._names[low:], lambda some: _not_in(some.gtids, executed))

    def commit(
        self, original_us: int, window_us: int, *, inside: bool = False
    ) -> EntryPosition | None:
        """Behind (`inside`: at) the first transaction that was committed at this very microsecond
        on the server where it was written. It is looked for from `window_us` earlier on. None: it
        is not there."""
        found = False
        for name in self._since(original_us - window_us):
            gtids = self.head(name).gtids
            for some in transactions(self._log, name):
                index = 0
                if not found:
                    match = np.flatnonzero(some.original_us == original_us)
                    found = bool(len(match))
                    index = int(match[0]) + (not inside) if found else 0
                if found and index < len(some.position):
                    gtids = gtid_set_after(gtids, some.gtids[:index])
                    return EntryPosition(name, int(some.position[index]), gtid=gtids)
                gtids = gtid_set_after(gtids, some.gtids)
        return self._log.end() if found else None

    def trail(
        self, trail: str, last_us: int, window_us: int
    ) -> tuple[EntryPosition, int] | None:
        """Behind the transactions of a trail, the last of which is of about `last_us`: where, and
        how many of them come twice. It reads the log of the window before and behind. None: there
        is no trace of them."""
        names: list[str] = []
        behind: list[int] = []
        digests: list[int] = []
        wanted = np.array(digests_of(trail), np.uint64)
        for name in self._since(last_us - window_us):
            folding = Folding()
            for chunk in self._log.chunks(name, _WALK_CHUNK_BYTES):
                walked = walk(chunk)
                if walked.failure is not None:
                    raise walked.failure
                seconds = walked.events["timestamp"]
                if len(seconds) and int(seconds.min()) * MICROS > last_us + window_us:
                    break
                closed = folding.add(digest_pieces(chunk, walked))
                hits = np.flatnonzero(np.isin(closed.digests, wanted))
                if digests or len(hits):
                    first = 0 if digests else int(hits[0])
                    digests += closed.digests[first:].tolist()
                    behind += closed.behind[first:].tolist()
                    names += [name] * (len(closed.behind) - first)
        place = place_behind(wanted.tolist(), digests)
        if place is None:
            return None
        at, twice = place
        found = EntryPosition(names[at - 1], behind[at - 1])
        if self._log.executed():
            found = self.boundary(found.journal_name, found.position)
        passed = np.array(digests[:at], np.uint64)
        return replace(found, trail=extended("", passed)), twice

    def boundary(self, journal_name: str, position: int) -> EntryPosition:
        """The position, or the beginning of the transaction that it is inside of; with the GTIDs
        executed before it."""
        gtids = self.head(journal_name).gtids
        start = behind = BINLOG_START
        last = None
        for chunk in self._log.chunks(journal_name, _WALK_CHUNK_BYTES):
            some = _transactions(chunk)
            before = int(np.count_nonzero(some.position < position))
            if before:
                gtids = gtids if last is None else gtid_set_after(gtids, last)
                gtids = gtid_set_after(gtids, some.gtids[: before - 1])
                last = some.gtids[before - 1 : before]
                start = behind = int(some.position[before - 1])
            behind = max(behind, _closed_before(chunk, position))
            if chunk.head.end_position >= position:
                break
        if last is None:
            return EntryPosition(journal_name, position, gtid=gtids)
        if behind > start:  # that transaction is over
            return EntryPosition(journal_name, position, gtid=gtid_set_after(gtids, last))
        return EntryPosition(journal_name, start, gtid=gtids)

    # ---- parts

    def _begun_before(self, journal_name: str, time_us: int) -> bool:
        """Whether all that lies before this file is earlier than `time_us`."""
        head = self.head(journal_name)
        if head.first_us:
            return head.first_us < time_us
        return head.created_s < time_us // MICROS

    def _since(self, time_us: int) -> Sequence[str]:
        """The files in which a transaction of this time or a later one may lie."""
        return self._names[self._last(lambda name: self._begun_before(name, time_us)) :]

    def _last(self, holds: Callable[[str], bool]) -> int:
        """Index of the last file for which it holds, given that it holds up to some file and not
        from there on; 0 is taken for granted."""
        low, high = 0, len(self._names)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if holds(self._names[middle]) else (low, middle)
        return low

    def _first(
        self, names: Sequence[str], wanted: Callable[[Transactions], npt.NDArray[np.bool_]]
    ) -> EntryPosition:
        """The beginning of the first wanted transaction in these files, else the log's end."""
        for name in names:
            gtids = self.head(name).gtids
            for some in transactions(self._log, name):
                match = np.flatnonzero(wanted(some))
                if len(match):
                    index = int(match[0])
                    self.found_us = int(some.original_us[index])
                    gtids = gtid_set_after(gtids, some.gtids[:index])
                    return EntryPosition(name, int(some.position[index]), gtid=gtids)
                gtids = gtid_set_after(gtids, some.gtids)
        self.found_us = 0
        return self._log.end()


def _closed_before(chunk: RawChunk, position: int) -> int:
    """Where the last transaction of the chunk that ends at or before `position` ends; 0: none."""
    events = walk(chunk).events
    ends = (events["kind"] == w.KIND_END) | _alone(events)
    behind = (events["position"] + events["length"])[ends]
    behind = behind[behind <= position]
    return int(behind[-1]) if len(behind) else 0


def missing_gtids(wanted: str, have: str) -> str:
    """What of one GTID set (or MariaDB position) the other lacks; empty: nothing."""
    if not wanted:
        return ""
    if not is_mysql_set(wanted):
        position = MariadbGtid.parse(have if not is_mysql_set(have) else "")
        return ",".join(
            part for part in wanted.split(",") if not MariadbGtid.parse(part).issubset(position)
        )
    return str(GtidSet.parse(wanted).subtract(GtidSet.parse(have)))


def is_mysql_set(text: str) -> bool:
    """Whether it is MySQL's form, `uuid:1-5`, and not MariaDB's, `0-1-5`."""
    return ":" in text


def _not_in(gtids: npt.NDArray[np.void], executed: str) -> npt.NDArray[np.bool_]:
    """Which of these transactions are not in the set; anonymous ones never are."""
    outside = gtids["flavor"] == GTID_ANONYMOUS
    if not missing_gtids(gtid_set_after("", gtids), executed):
        return np.asarray(outside)  # a look at the whole is enough
    if is_mysql_set(executed):
        mine = GtidSet.parse(executed)
        for index, gtid in enumerate(gtids):
            sid, tag = gtid["sid"].tobytes(), gtid["tag"].decode("ascii")
            outside[index] |= not mine.contains(sid, int(gtid["gno"]), tag)
    else:
        position = MariadbGtid.parse(executed)
        for index, gtid in enumerate(gtids):
            outside[index] |= not position.contains(int(gtid["domain"]), int(gtid["gno"]))
    return np.asarray(outside)
