"""Search a log's files: by time, by GTID set, by commit time; where transactions begin.

Files are bisected by their heads: a few events each, at most log2(files) + 2 heads. In the file
that is left, event headers are walked and no row is decoded (log_file.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ray_canal.binlog.chunk import GTID_ANONYMOUS
from ray_canal.binlog.executed import gtid_set_after
from ray_canal.binlog.trail import Folding, digests_of, extended, place_behind
from ray_canal.binlog.walked import digest_pieces, walk
from ray_canal.model.arrays import Bools
from ray_canal.model.gtid import GtidSet, MariadbGtid
from ray_canal.model.position import BINLOG_START, EntryPosition
from ray_canal.source.gtid_sets import is_mysql_set, missing_gtids, union
from ray_canal.source.start.log_file import (
    MICROS,
    WALK_CHUNK_BYTES,
    FileHead,
    FileTransactions,
    Log,
    Surroundings,
    closed_before,
    event_at,
    read_head,
    transactions,
    transactions_of,
)

_Wish = tuple[int, Callable[[FileTransactions], Bools]]
"""Index of the file from which on it counts, and which transactions are wanted."""
_FAR = 1 << 62  # behind every file's end


@dataclass(frozen=True, slots=True)
class Found:
    """The place where a search ended. Of the transaction that begins there: its GTID and original
    commit time; "" and 0: none does. Of the last one that was passed on the way: its original
    commit time, and its GTID's header time in seconds; 0: none was, or it has none."""

    place: EntryPosition
    gtid: str = ""
    original_us: int = 0
    passed_us: int = 0
    passed_s: int = 0


class Search:
    """Searches in one log; what is learned of its files' heads is kept for the next one. Every
    search raises SourceError and DecodeError kinds."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._names = [name for name, _ in log.files()]
        self._heads: dict[str, FileHead] = {}
        self._purged: str | None = None
        self._passed = EntryPosition("")
        self._by_gtids: dict[str, Found] = {}
        self._with_anonymous: dict[str, bool] = {}
        self.found = Found(EntryPosition(""))  # where the last search ended

    @property
    def first(self) -> FileHead:
        """The head of the oldest file."""
        return self.head(self._names[0])

    def head(self, journal_name: str) -> FileHead:
        """Return the head of a file. Its GTIDs include what was executed and never was in this log
        (as of a server made of a backup), which no file names."""
        if journal_name not in self._heads:
            head = read_head(self._log, journal_name)
            if self._purged is None:
                self._purged = self._log.purged()
            if self._purged:
                head = replace(head, gtids=union(self._purged, head.gtids))
            self._heads[journal_name] = head
        return self._heads[journal_name]

    def time(self, time_us: int) -> EntryPosition | None:
        """Return where the first transaction of this time or a later one begins, with the GTIDs
        before it; the end of what was looked at if there is none yet. None: the log begins later,
        so earlier ones may be gone.

        Where only seconds are written, those of the same second count as not earlier.
        """
        # A replica's log may be younger than the first transaction in it.
        older = 0 < self.first.first_time_us < time_us // MICROS * MICROS
        if not older and not self._begun_before(self._names[0], time_us):
            return None
        low = self._low(time_us)
        return self._first(low, lambda some: some.not_before(time_us))

    def gtids(self, executed: str) -> EntryPosition | None:
        """Return where the first transaction begins that is not in the set; if all are in it, the
        end of what was looked at. None: transactions that are not in the set lie before the log's
        beginning."""
        self.look_up([executed])
        if executed not in self._by_gtids:
            return None
        self.found = self._by_gtids[executed]
        return self.found.place

    def look_up(self, executed: Iterable[str]) -> None:
        """Look for the places of several GTID sets at once, so that each file is read once: `gtids`
        knows them then."""
        wanted: dict[str, _Wish] = {}
        for each in set(executed) - self._by_gtids.keys():
            low = self._last(partial(self._begins_within, each))
            if self._begins_within(each, self._names[low]):
                wanted[each] = low, partial(_not_in, each)
        found = self._firsts(list(wanted.values()))
        self._by_gtids.update(zip(wanted, found, strict=True))

    def anonymous(self, cursor: EntryPosition) -> EntryPosition | None:
        """Return where the first transaction without a GTID begins behind a cursor, in a file that
        `gtids` passes over because all GTIDs of it and before are in the cursor's set. None: there
        is none, or the time of the cursor's last transaction is not known."""
        since_us = cursor.commit_us or cursor.timestamp * MICROS
        low = self._low(since_us)
        high = self._last(partial(self._begins_within, cursor.gtid))
        if not since_us or not any(map(self._has_anonymous, self._names[low:high])):
            return None
        start = None
        if cursor.commit_us:
            start = self.commit(cursor.commit_us, 0, inside=cursor.is_inside)
        start = start or EntryPosition(self._names[low])
        for some, gtids in self._pieces(self._names[self._names.index(start.journal_name) : high]):
            wanted = some.gtids["flavor"] == GTID_ANONYMOUS
            if some.journal_name == start.journal_name:
                wanted &= some.position >= start.position
            if wanted.any():
                self.found = self._found(some, int(wanted.argmax()), gtids, 0, 0)
                return self.found.place
        return None

    def _has_anonymous(self, journal_name: str) -> bool:
        """Return whether a file that has ended has transactions without GTIDs. It is read once,
        however many cursors ask."""
        if journal_name not in self._with_anonymous:
            self._with_anonymous[journal_name] = any(
                bool((some.gtids["flavor"] == GTID_ANONYMOUS).any())
                for some in transactions(self._log, journal_name)
            )
        return self._with_anonymous[journal_name]

    def _begins_within(self, executed: str, journal_name: str) -> bool:
        """Return whether all that comes before this file is in the set."""
        return not missing_gtids(self.head(journal_name).gtids, executed)

    def one(self, gtid: str) -> EntryPosition | None:
        """Return where the transaction begins that has this one GTID of MySQL. None: it is not in
        this log."""
        name = self._names[self._last(lambda each: _lacks(self.head(each).gtids, gtid))]
        gtids = self.head(name).gtids
        if not _lacks(gtids, gtid):
            return None  # it was executed before the log's beginning
        number = int(gtid.rpartition(":")[2])
        for some in transactions(self._log, name):
            for index in np.flatnonzero(some.gtids["gno"] == number).tolist():
                if gtid_set_after("", some.gtids[index : index + 1]) == gtid:
                    gtids = gtid_set_after(gtids, some.gtids[:index])
                    return self._at(name, int(some.position[index]), gtids)
            gtids = gtid_set_after(gtids, some.gtids)
        return None

    def commit(
        self, original_us: int, window_us: int, *, inside: bool = False
    ) -> EntryPosition | None:
        """Return the place after (`inside`: of) the first transaction that was committed at this
        very microsecond on the server where it was written. It is looked for from `window_us`
        earlier on. None: it is not there."""
        found = False
        for some, gtids in self._pieces(self._since(original_us - window_us)):
            index = 0
            if not found:
                match = np.flatnonzero(some.original_us == original_us)
                found = bool(len(match))
                index = int(match[0]) + (not inside) if found else 0
            if found and index < len(some.position):
                gtids = gtid_set_after(gtids, some.gtids[:index])
                return self._at(some.journal_name, int(some.position[index]), gtids)
        return self._passed if found else None

    def trail(
        self, trail: str, last_us: int, window_us: int
    ) -> tuple[EntryPosition, int] | None:
        """Return the place after the transactions of a trail, the last of which is of about
        `last_us`: where, and how many of them come twice. It reads the log of the window before and
        behind. None: there is no trace of them."""
        names: list[str] = []
        behind: list[int] = []
        digests: list[int] = []
        wanted = np.array(digests_of(trail), np.uint64)
        for name in self._since(last_us - window_us):
            folding = Folding()
            for chunk in self._log.chunks(name, WALK_CHUNK_BYTES):
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
        found = self._at(names[at - 1], behind[at - 1])
        if self._log.executed():
            found = self.boundary(found.journal_name, found.position)
        passed = np.array(digests[:at], np.uint64)
        return replace(found, trail=extended("", passed)), twice

    def last_ones_s(self, executed: str, since_us: int) -> int | None:
        """Return the earliest header time, in seconds, of an event of the transactions that end a
        GTID set: the last one of each source or domain. They are looked for from `since_us` on.
        None: none of them is there."""
        earliest: int | None = None
        goes_on = False
        for name in self._since(since_us):
            for chunk in self._log.chunks(name, WALK_CHUNK_BYTES):
                walked = walk(chunk)
                some = transactions_of(chunk, walked)
                are_last = np.append(goes_on, _are_last(some, executed))
                events = walked.events
                of = np.searchsorted(some.position, events["position"], side="right")
                times = events["timestamp"][are_last[of]]
                if len(times):
                    earliest = min(int(times.min()), earliest or int(times.min()))
                goes_on = bool(are_last[-1])
        return earliest

    def boundary(self, journal_name: str, position: int) -> EntryPosition:
        """The position, or the beginning of the transaction that it is inside of; with the GTIDs
        executed before it."""
        return self.surroundings(journal_name, position).start

    def surroundings(self, journal_name: str, position: int) -> Surroundings:
        """Return what the file has around an offset. It is read up to there."""
        gtids, last = self.head(journal_name).gtids, None
        start = behind = BINLOG_START
        is_event = position == BINLOG_START
        entries = before_s = at_s = last_us = next_us = 0
        for chunk in self._log.chunks(journal_name, WALK_CHUNK_BYTES):
            walked = walk(chunk)
            some = transactions_of(chunk, walked)
            before = int(np.count_nonzero(some.position < position))
            if before:
                gtids = gtids if last is None else gtid_set_after(gtids, last)
                gtids = gtid_set_after(gtids, some.gtids[: before - 1])
                last = some.gtids[before - 1 : before]
                start = behind = int(some.position[before - 1])
                last_us, entries = int(some.original_us[before - 1]), 0
            next_us = next_us or int(some.original_us[some.position == position].sum())
            events = walked.events
            behind = max(behind, closed_before(chunk, walked, position))
            passed = events[events["position"] + events["length"] <= position]
            if len(passed):
                entries += int(np.count_nonzero(passed["position"] >= start))
                before_s = int(passed["timestamp"][-1])
            if chunk.head.end_position >= position:
                is_event |= chunk.head.end_position == position
                found, at_s = event_at(chunk, position)
                is_event |= found
            if chunk.head.end_position > position:
                break
        place = self._at(journal_name, position, gtids)
        if last is not None and behind > start:  # that transaction is over
            place = replace(place, gtid=gtid_set_after(gtids, last))
        elif last is not None:
            place = replace(place, position=start)
        inside = entries if place.position < position else 0
        return Surroundings(place, is_event, inside, before_s, at_s, last_us, next_us)

    def goes_on(self, place: EntryPosition) -> bool:
        """Return whether a transaction begins in the place's file, there or after it."""
        return any(
            bool((some.position >= place.position).any())
            for some in transactions(self._log, place.journal_name)
        )

    def last_before(self, place: EntryPosition) -> Surroundings | None:
        """Return what lies before a place where a transaction begins, or the log ends; None:
        nothing, it is the log's beginning."""
        names, position = self._names, place.position
        if place.journal_name in names:
            names = names[: names.index(place.journal_name) + 1]
        for name in reversed(names):
            found = self.surroundings(name, position)
            if found.before_s:
                return found
            position = _FAR
        return None

    def end(self) -> EntryPosition:
        """Return where the log ends now."""
        end = self._log.end()
        return replace(end, created_s=self.head(end.journal_name).created_s)

    # ---- parts

    def _at(self, journal_name: str, position: int, gtids: str = "") -> EntryPosition:
        created_s = self.head(journal_name).created_s
        return EntryPosition(journal_name, position, gtid=gtids, created_s=created_s)

    def _begun_before(self, journal_name: str, time_us: int) -> bool:
        """Return whether all that lies before this file is earlier than `time_us`."""
        head = self.head(journal_name)
        if head.first_us:
            return head.first_us < time_us
        return head.created_s < time_us // MICROS

    def _since(self, time_us: int) -> Sequence[str]:
        """The files in which a transaction of this time or a later one may lie."""
        return self._names[self._low(time_us) :]

    def _low(self, time_us: int) -> int:
        """The index of the first of them."""
        return self._last(lambda name: self._begun_before(name, time_us))

    def _last(self, holds: Callable[[str], bool]) -> int:
        """Index of the last file for which it holds, given that it holds up to some file and not
        from there on; 0 is taken for granted."""
        low, high = 0, len(self._names)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if holds(self._names[middle]) else (low, middle)
        return low

    def _first(self, low: int, wanted: Callable[[FileTransactions], Bools]) -> EntryPosition:
        """The beginning of the first wanted transaction from this file on, else the end as far as
        files were looked at."""
        (self.found,) = self._firsts([(low, wanted)])
        return self.found.place

    def _firsts(self, wishes: Sequence[_Wish]) -> list[Found]:
        """Return for each wish where its first transaction begins, else the end of the files as far
        as they were looked at: where the log ends by now there may be one."""
        found: dict[int, Found] = {}
        passed_us = passed_s = 0
        low = min((low for low, _ in wishes), default=len(self._names))
        for some, gtids in self._pieces(self._names[low:]):
            at = self._names.index(some.journal_name)
            for number, (first, wanted) in enumerate(wishes):
                if number in found or first > at:
                    continue
                match = np.flatnonzero(wanted(some))
                if len(match):
                    found[number] = self._found(some, int(match[0]), gtids, passed_us, passed_s)
            if len(found) == len(wishes):
                break
            if len(some.position):
                passed_us = int(some.original_us[-1])
                passed_s = int(some.time_us[-1]) // MICROS
        end = Found(self._passed, "", 0, passed_us, passed_s)
        return [found.get(number, end) for number in range(len(wishes))]

    def _found(
        self, some: FileTransactions, index: int, gtids: str, passed_us: int, passed_s: int
    ) -> Found:
        """Return the place of a piece's transaction. `gtids`, and what was passed: before the
        piece."""
        place = self._at(
            some.journal_name,
            int(some.position[index]),
            gtid_set_after(gtids, some.gtids[:index]),
        )
        if index:
            passed_us = int(some.original_us[index - 1])
            passed_s = int(some.time_us[index - 1]) // MICROS
        gtid = gtid_set_after("", some.gtids[index : index + 1])
        return Found(place, gtid, int(some.original_us[index]), passed_us, passed_s)

    def _pieces(self, names: Sequence[str]) -> Iterator[tuple[FileTransactions, str]]:
        """Yield the transactions of these files, piece by piece, with the GTIDs executed before
        the piece. `_passed` is the place behind the pieces before: where they end, or where the
        transaction begins that goes on there."""
        for name in names:
            gtids = self.head(name).gtids
            self._passed, goes_on = self._at(name, BINLOG_START, gtids), False
            for some in transactions(self._log, name):
                yield some, gtids
                after = gtid_set_after(gtids, some.gtids)
                if len(some.position) and some.position[-1] >= some.closed:
                    before = gtid_set_after(gtids, some.gtids[:-1])
                    self._passed, goes_on = self._at(name, int(some.position[-1]), before), True
                elif some.closed or not goes_on:
                    self._passed, goes_on = self._at(name, some.end, after), False
                gtids = after


def _lacks(executed: str, gtid: str) -> bool:
    return bool(missing_gtids(gtid, executed))


def _are_last(some: FileTransactions, executed: str) -> Bools:
    """Return which of these transactions end a GTID set, of their source or domain."""
    found = np.zeros(len(some.position), np.bool_)
    gtids = some.gtids
    if not len(gtids):
        return found
    if is_mysql_set(executed):
        for sid, tag, gno in GtidSet.parse(executed).last_ones():
            for index in np.flatnonzero(gtids["gno"] == gno).tolist():
                found[index] |= (gtids["sid"][index].tobytes(), gtids["tag"][index]) == (
                    sid, tag.encode("ascii"),
                )  # fmt: skip
    else:
        for domain, server_id, sequence in MariadbGtid.parse(executed).last_ones():
            found |= (
                (gtids["domain"] == domain)
                & (gtids["server_id"] == server_id)
                & (gtids["gno"] == sequence)
            )
    return found


def _not_in(executed: str, some: FileTransactions) -> Bools:
    """Return which of these transactions are not in the set; anonymous ones never are."""
    gtids = some.gtids
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
