"""Decide where reading starts, in Canal's order, over a log that can be searched. No I/O here.

1. Cursors of the server that is read: each at its own place, once it is clear that the server's log
   is still the one that it was written for (own_log.py); else `source.on_reset` decides.
2. Cursors of another server (a standby, or a new server at the address), in this order: by the GTID
   sets that they have executed; after the transaction that they ended with, found by its commit
   time in microseconds; after the transactions that they ended with, found by their content;
   `fallback_s` before the time of their last event, which repeats what was delivered in between.
3. No cursor: `source.start`. A position inside a transaction goes back to its beginning.

`source.on_purged` decides where what is needed has been purged.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from ray_canal.config import SourceConfig
from ray_canal.errors import (
    UNUSABLE_CURSOR,
    ConfigError,
    PositionNotFound,
    PositionPurged,
    SourceError,
    TransactionsMissing,
)
from ray_canal.model.gtid import GtidSet, MariadbGtid
from ray_canal.model.position import (
    EntryPosition,
    LogPosition,
    journal_key,
    utc_text,
)
from ray_canal.model.start import ALL_CURSORS, Start, StartOptions
from ray_canal.source.gtid_sets import (
    common,
    is_mysql_set,
    missing_gtids,
    union,
    unknown_gtids,
)
from ray_canal.source.retention import describe_lost
from ray_canal.source.start.asked_once import AskedOnce
from ray_canal.source.start.known_log import KnownLog
from ray_canal.source.start.log_file import MICROS, WIDE_OFFSET, Log
from ray_canal.source.start.own_log import (
    acked_gtids,
    begun_again,
    has_bytes,
    has_file,
    misfit_of_last,
    own_place,
)
from ray_canal.source.start.reach import lowest_of, too_far_behind
from ray_canal.source.start.search import Search

log = logging.getLogger(__name__)

_UNDER_GTIDS = "has other transactions under the GTIDs of those delivered: where they end, {}"


def decide(
    source: SourceConfig,
    cursors: Sequence[LogPosition],
    log: Log,
    delivered: str = "",
    options: StartOptions = ALL_CURSORS,
) -> Start:
    """Return where reading starts: at the smallest cursor that can be served; without cursors where
    a log began that nobody has subscribed to, else at `source.start`. `delivered`: GTIDs that
    subscribers were given after their cursors. A cursor that cannot be served is an error; with
    `partial` only if none can, and `Start.failures` has those of the others.

    Raises PositionPurged (on_purged = "fail"), PositionNotFound, TransactionsMissing, ConfigError,
    SourceError and DecodeError kinds.
    """
    decision = _Decision(source, AskedOnce(log))
    if not cursors:
        return decision.without_cursors(options)
    moved = [cursor for cursor in cursors if cursor.is_foreign(log.identity)]
    if moved:
        decision.known.refuse_behind(delivered)
        decision.look_up(moved)
    found = [decision.tried(cursor, partial=options.partial) for cursor in cursors]
    failures = tuple(place if isinstance(place, SourceError) else None for place in found)
    places = [None if isinstance(place, SourceError) else place for place in found]
    errors = [error for error in failures if error is not None]
    if len(errors) == len(cursors):
        raise next((error for error in errors if error.retryable), errors[0])
    files = log.files()
    behind = too_far_behind(places, files, options.reach_bytes, one_name=options.partial)
    near = (place for place, far in zip(places, behind, strict=True) if not far)
    served = [place for place in near if place is not None]
    lowest = lowest_of(served, files)
    by_gtid = bool(moved) and all(place.gtid for place in served) and decision.may_be_by_gtid()
    if by_gtid:
        # Only what every subscriber has may be left out.
        everywhere = common([place.gtid for place in served])
        by_gtid = is_mysql_set(everywhere) or decision.is_ahead(everywhere, lowest)
        lowest = replace(lowest, gtid=everywhere) if by_gtid else lowest
    if not decision.can_begin_at(lowest):
        # The cursors stay where they are: what comes before them is passed over.
        decision.reasons.append(f"{lowest} is too far for its server: the file from its beginning")
        lowest, by_gtid = decision.known.beginning(lowest.journal_name), False
    how = "; ".join(dict.fromkeys(decision.reasons)) or "saved cursor"
    here = all(
        cursor.identity.server_uuid == log.identity.server_uuid
        for cursor, place in zip(cursors, places, strict=True)
        if place is not None
    )
    same_log = here and decision.goes_on(options)
    at = tuple(place or cursor.position for place, cursor in zip(places, cursors, strict=True))
    other_log, leaves_out = decision.other_log, decision.leaves_out
    return Start(lowest, at, by_gtid, how, same_log, failures, behind, other_log, leaves_out)


def configured_start(source: SourceConfig, log: Log) -> EntryPosition:
    """Return `source.start` as a position of this log, where a destination without a cursor begins.
    Raises what `decide` raises."""
    return _Decision(source, log).configured().position


class _Decision:
    """One decision, whose searches share what they learn. `reasons`: the decisions, for people.
    `displaced`: a cursor of this server was not found at its place; `other_log`: it is of another
    log, and source.on_reset has decided."""

    def __init__(self, source: SourceConfig, log: Log) -> None:
        self._source = source
        self._log = log
        self.known = KnownLog(log)
        self._gtids_before: dict[EntryPosition, str] = {}  # of places that were found by GTID
        self.reasons: list[str] = []
        self.displaced = self.other_log = self.leaves_out = False
        self._has_anonymous = False

    @property
    def search(self) -> Search:
        return self.known.search

    # ---- no cursor

    def configured(self) -> Start:
        source = self._source
        how: str = source.start
        try:
            position = self._configured()
        except PositionPurged as error:
            position = self._after_purge(error)
            how = self.reasons[-1]
        if not self.can_begin_at(position):
            raise PositionNotFound(
                f"{position}: this server can only be asked for offsets below 4 GiB; start at the "
                "next file"
            ).at(position.journal_name, position.position)
        return Start(position, by_gtid=not position.journal_name, how=how)

    def can_begin_at(self, position: EntryPosition) -> bool:
        """Return whether the server can be asked for such an offset."""
        return position.position < WIDE_OFFSET or position.position < self._log.offsets_max()

    def _configured(self) -> EntryPosition:
        source = self._source
        if source.start == "latest":
            return self.search.end()
        if source.start == "earliest":
            return self.known.earliest()
        if source.start == "gtid":
            return self._from_gtid_set()
        if source.start == "timestamp":
            self.known.refuse_future(source.start_time_us)
            return self._from_time(source.start_time_us, "source.timestamp")
        if source.start == "position":
            self.known.refuse_absent(EntryPosition(source.journal_name, source.position))
            return self.search.boundary(source.journal_name, source.position)
        raise ConfigError(f"source.start = {source.start!r}: a server cannot be read from there")

    def _from_gtid_set(self) -> EntryPosition:
        """Return a position of GTIDs alone: the server finds the file, and leaves out single
        transactions, too."""
        text = self._source.gtid_set
        wanted = str(MariadbGtid.parse(text) if self._log.is_mariadb else GtidSet.parse(text))
        if self._log.is_mariadb:
            lost = missing_gtids(self.search.first.gtids, wanted)
        else:
            lost = missing_gtids(self._log.purged(), wanted)
        if lost:
            raise self.known.purged(EntryPosition("", gtid=wanted), lost, "source.gtid_set")
        self.known.refuse_never_executed(wanted)
        return EntryPosition("", gtid=wanted)

    def _from_time(self, time_us: int, what: str) -> EntryPosition:
        found = self.search.time(time_us)
        if found is not None:
            return found
        if journal_key(self.search.first.journal_name)[1] <= 1:  # of all: nothing is gone
            return self.known.earliest()
        raise self.known.purged_before(time_us, what)

    def without_cursors(self, options: StartOptions) -> Start:
        """Return where a log without subscribers began, if it still has that place; else nobody
        loses anything. `options.unattended` None: it has not begun yet."""
        began = options.unattended
        if began is None:
            start = self.configured()
            return replace(start, same_log=options.joins and self.goes_on(options))
        try:
            place = self.placed(began)
            how = "; ".join(self.reasons) or "nobody has subscribed yet: where it began"
            here = began.identity.server_uuid == self._log.identity.server_uuid
            same_log = here and self.goes_on(options)
            return Start(place, how=how, same_log=same_log, other_log=self.other_log)
        except UNUSABLE_CURSOR as error:
            why = f"nobody has subscribed, and the log's beginning {began.position} is gone"
            log.warning("%s: %s (%s)", self._log.identity.address, why, error)
            other_log = error.other_log
        try:
            start = self.configured()
            return replace(start, how=f"{why}; {start.how}", other_log=other_log)
        except UNUSABLE_CURSOR:
            how = f"{why}, as is what source.start says: at the end"
            return Start(self.search.end(), how=how, other_log=other_log)

    def goes_on(self, options: StartOptions) -> bool:
        """Return whether the log is certainly the one that was read, also beyond the cursors."""
        if self.displaced or not has_file(self._log, self.search, options.newest):
            return False
        return options.read_to is None or has_bytes(self._log, options.read_to)

    # ---- cursors

    def look_up(self, moved: Sequence[LogPosition]) -> None:
        """Look for the places of another server's cursors by their GTIDs, all at once."""
        if self._log.executed():
            gtids = (cursor.position.gtid for cursor in moved)
            self.search.look_up(filter(None, gtids))

    def tried(self, cursor: LogPosition, *, partial: bool) -> EntryPosition | SourceError:
        """Return where a cursor lies; with `partial` also why this server cannot serve it."""
        displaced = self.displaced
        try:
            return self.placed(cursor)
        except UNUSABLE_CURSOR as error:
            if not partial:
                raise
            self.displaced = displaced  # it is not among those that are delivered
            return error

    def placed(self, cursor: LogPosition) -> EntryPosition:
        """Return where a cursor lies in this log."""
        try:
            is_moved = cursor.is_foreign(self._log.identity)
            return self._after_rename(self._moved(cursor) if is_moved else self._own(cursor))
        except SourceError as error:
            self.displaced = True
            if isinstance(error, PositionPurged):
                return self._after_purge(error)
            return self._after_reset(error)

    def _own(self, cursor: LogPosition) -> EntryPosition:
        """Return where a cursor of this server is, if its log is still the cursor's; of a file that
        is gone or renamed, by GTID."""
        position = cursor.position
        delivered = acked_gtids(position)
        lacking = unknown_gtids(delivered, self._log.known_gtids()) if delivered else ""
        place = own_place(self._log, self.search, cursor, lacking)
        if place.position is not None:
            return place.position
        if lacking:
            raise self.known.other_log(
                TransactionsMissing,
                f"lacks transactions that were delivered already: {lacking}; {place.why}",
                position,
            )
        by_gtid = bool(position.gtid and self._log.executed())
        if not by_gtid:
            self.known.refuse_purged(position)
        if not by_gtid or self._should_be_listed(position):
            raise self.known.other_log(PositionNotFound, place.why, position)
        found = self.search.gtids(position.gtid)
        if found is None:
            lost = missing_gtids(self.search.first.gtids, position.gtid)
            raise self.known.purged(position, lost, f"what comes after the cursor ({place.why})")
        before = self.search.last_before(found)
        if before is not None:
            before = replace(before, next_us=self.search.found.original_us)
            other = misfit_of_last(position, before)
            if other:
                why = f"{_UNDER_GTIDS.format(other)}; {place.why}"
                raise self.known.other_log(TransactionsMissing, why, position)
        self.displaced = True
        self.reasons.append(f"{place.why}; found by GTID")
        first, found = found, self._with_anonymous(position, found)
        same = found == first or self._is_open_one(position)
        return replace(
            found,
            row=position.row if same else 0,
            entry=position.entry if same else 0,
            timestamp=position.timestamp,
            commit_us=position.commit_us,
            open_gtid=position.open_gtid,
            moved=position.moved,
        )

    def _after_rename(self, place: EntryPosition) -> EntryPosition:
        """Return where the log continues after this place, if that is the end of all files of its
        name; else the place."""
        names = [name for name, _ in self._log.files()]
        if place.is_inside or place.journal_name not in names[:-1]:
            return place
        number = names.index(place.journal_name) + 1
        if journal_key(names[number])[0] == journal_key(place.journal_name)[0]:
            return place
        if self.search.goes_on(place):
            return place
        self.displaced = True
        self.reasons.append(f"after {place}, the log continues as {names[number]}")
        first = self.known.beginning(names[number])
        return replace(first, timestamp=place.timestamp, commit_us=place.commit_us)

    def _should_be_listed(self, position: EntryPosition) -> bool:
        """Return whether its file is not older than the oldest one: a log's numbers only rise."""
        base, number = journal_key(position.journal_name)
        first_base, first_number = journal_key(self._log.files()[0][0])
        return base == first_base and number >= first_number

    def _moved(self, cursor: LogPosition) -> EntryPosition:
        position, here = cursor.position, self._log.identity
        self.known.refuse_behind(acked_gtids(position))
        switch = f"moved from server {cursor.identity.server_uuid} to {here.server_uuid}"
        if position.gtid and self._log.executed():
            found = self.search.gtids(position.gtid)
            if found is None:
                lost = missing_gtids(self.search.first.gtids, position.gtid)
                raise self.known.purged(position, lost, f"the cursor, {switch}")
            self._refuse_begun_again(position, found)
            self.reasons.append(f"{switch}, by GTID")
            found = self._with_anonymous(position, found)
            self._gtids_before[found] = found.gtid
            found = replace(found, gtid=union(found.gtid, position.gtid))
            return self._with_rows(position, found, same=self._is_open_one(position))
        window_us = round(self._source.fallback_s * MICROS)
        if position.commit_us:
            inside = position.is_inside
            found = self.search.commit(position.commit_us, window_us, inside=inside)
            if found is not None:
                which = "inside" if inside else "after"
                self.reasons.append(f"{switch}, {which} the transaction of {position.commit_us} µs")
                return self._with_rows(position, found, same=True)
        if not position.timestamp:
            raise PositionNotFound(
                f"{switch}: the cursor at {position} has neither GTIDs that this server knows nor "
                "a time; move its subscriber (`ray-canal subscriber`, seek), or remove it "
                "(`ray-canal unsubscribe`)"
            ).at(position.journal_name, position.position)
        if position.trail:
            place = self.search.trail(position.trail, position.timestamp * MICROS, window_us)
            if place is not None:
                found, twice = place
                again = f"; {twice} of them come twice" if twice else ""
                self.reasons.append(f"{switch}, after the last transactions by their rows{again}")
                return self._with_rows(position, found, same=False)
        since = position.timestamp * MICROS - window_us
        self.reasons.append(f"{switch}, from {utc_text(since // MICROS)} on: some will come twice")
        by_time = self.search.time(since)
        if by_time is not None:
            return by_time
        # Not all of the window is there; what comes after the cursor is, if the log is older. The
        # number of its first file does not tell: the server may have been made since.
        older = self.search.first.created_s < position.timestamp
        if not older and self.search.time(position.timestamp * MICROS) is None:
            raise self.known.purged_before(since, f"what comes after the cursor ({switch}),")
        return self.known.earliest()

    def _with_anonymous(self, position: EntryPosition, found: EntryPosition) -> EntryPosition:
        """Return a place that was found by GTID; or an earlier one, where transactions without
        GTIDs follow the cursor, which gtid_mode was changed for."""
        anonymous = self.search.anonymous(position)
        if anonymous is None:
            return found
        self._has_anonymous = True  # asked by GTID, the server passes over them, too
        self.reasons.append("from the first transaction behind the cursor that has no GTID on")
        return anonymous

    def _refuse_begun_again(self, position: EntryPosition, found: EntryPosition) -> None:
        """Raise TransactionsMissing if this server, too, has begun its GTIDs again."""
        other = begun_again(position, found, self.search, round(self._source.fallback_s * MICROS))
        if other:
            raise self.known.other_log(TransactionsMissing, _UNDER_GTIDS.format(other), position)

    def _is_open_one(self, old: EntryPosition) -> bool:
        """Return whether the transaction that was just found is the one that the cursor is inside
        of: it has the same GTID, or the same commit time."""
        if old.open_gtid:
            return old.open_gtid == self.search.found.gtid
        return bool(old.commit_us) and old.commit_us == self.search.found.original_us

    def _with_rows(self, old: EntryPosition, found: EntryPosition, *, same: bool) -> EntryPosition:
        """Return the place that was found, with the rows that are consumed of the transaction that
        begins there, if that is the one that the cursor is inside of (`same`) and has all of its
        rows; else it comes again as a whole."""
        place = replace(found, timestamp=old.timestamp, commit_us=old.commit_us)
        if not old.is_inside or not same:
            return place
        why = self._log.leaves_rows_out()
        if why:
            self.reasons.append(f"a transaction that was acked in part comes as a whole: {why}")
            return place
        counted = replace(place, row=old.row, entry=old.entry, open_gtid=old.open_gtid)
        return replace(counted, moved=True)

    def may_be_by_gtid(self) -> bool:
        """Return whether the server sends all that comes after the places, if asked by GTID."""
        return not self._has_anonymous and self._log.takes_gtid_sets()

    def is_ahead(self, gtids: str, place: EntryPosition) -> bool:
        """Return whether transactions of the set come after a place that was found by GTID."""
        return bool(missing_gtids(gtids, self._gtids_before.get(place.boundary, place.gtid)))

    # ---- purged

    def _after_purge(self, error: PositionPurged) -> EntryPosition:
        """Return the place that source.on_purged chooses; raise the error if it is "fail"."""
        policy = self._source.on_purged
        if policy in ("fail", "snapshot") or error.lost is None:
            raise error
        position = self.known.earliest() if policy == "earliest" else self.search.end()
        self.leaves_out = True
        lost = error.lost
        if policy == "latest":
            gtids = missing_gtids(position.gtid, self.known.wanted_gtids) if lost.gtids else ""
            lost = replace(lost, end=str(position), gtids=gtids, end_time=0)
        self.reasons.append(f"purged, on_purged = {policy!r}; lost: {describe_lost(lost)}")
        log.warning("%s: %s", self._log.identity.address, self.reasons[-1])
        return position

    def _after_reset(self, error: SourceError) -> EntryPosition:
        """Return the place that source.on_reset chooses in another log of the cursor's server;
        raise other errors."""
        policy = self._source.on_reset
        if policy in ("fail", "snapshot") or not error.other_log:
            raise error
        self.reasons.append(f"another log, on_reset = {policy!r}: {error}")
        log.warning("%s: %s", self._log.identity.address, self.reasons[-1])
        self.other_log = self.leaves_out = True
        return self.known.earliest() if policy == "earliest" else self.search.end()
