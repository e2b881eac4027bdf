"""A server's log with its search, and the errors for places that it does not have."""

from __future__ import annotations

from functools import cached_property

from ray_canal.errors import (
    LostRange,
    PositionNotFound,
    PositionPurged,
    SourceError,
    TransactionsMissing,
)
from ray_canal.model.position import BINLOG_START, EntryPosition, journal_key, utc_text
from ray_canal.source.gtid_sets import missing_gtids, unknown_gtids
from ray_canal.source.retention import describe_lost
from ray_canal.source.start.log_file import MICROS, Log
from ray_canal.source.start.search import Search

CLOCKS_APART_S = 10
"""So much later than the server's clock says is not the future yet: "now" by another clock."""
_TEXT_MAX = 400


class KnownLog:
    """A log. `wanted_gtids`: those of the place that was last found purged."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.wanted_gtids = ""

    @cached_property
    def search(self) -> Search:
        """The log's search, which keeps what it learns."""
        return Search(self._log)

    def earliest(self) -> EntryPosition:
        """Return the beginning of the oldest file."""
        return self.beginning(self.search.first.journal_name)

    def beginning(self, journal_name: str) -> EntryPosition:
        """Return the beginning of a file."""
        head = self.search.head(journal_name)
        gtids, created_s = head.gtids, head.created_s
        return EntryPosition(journal_name, BINLOG_START, gtid=gtids, created_s=created_s)

    def refuse_absent(self, position: EntryPosition) -> None:
        """Raise PositionPurged or PositionNotFound if there is no such file, or it is shorter."""
        files = self._log.files()
        sizes = dict(files)
        name, where = position.journal_name, self._log.identity.address
        if name in sizes:
            if position.position <= sizes[name]:
                return
            raise PositionNotFound(
                f"position {position.position} is past the end of {name}, which has {sizes[name]} "
                "bytes"
            ).at(name, position.position)
        self.refuse_purged(position)
        raise PositionNotFound(
            f"{where} has no binlog file {name!r}; it has {files[0][0]} … {files[-1][0]}"
        ).at(name, position.position)

    def refuse_never_executed(self, wanted: str) -> None:
        """Raise TransactionsMissing if a GTID set has what this server never had."""
        lacking = unknown_gtids(wanted, self._log.known_gtids())
        if not lacking:
            return
        have = self._log.executed() or "no GTIDs (gtid_mode)"
        error = TransactionsMissing(
            f"{self._log.identity.address} never had {_cut(lacking)}; it has {_cut(have)}. Leave "
            "out what is not this server's, or wait until it has it"
        )
        error.retryable = False  # it is a person's choice
        raise error

    def refuse_future(self, time_us: int) -> None:
        """Raise PositionNotFound if a time has not come yet for this server."""
        now_us = self._log.now_us()
        if time_us <= now_us + CLOCKS_APART_S * MICROS:
            return
        last = self.search.last_before(self.search.end())
        newest = "its log is empty"
        if last is not None:
            newest_s = last.last_us // MICROS or last.before_s
            newest = f"the newest in its log is of {utc_text(newest_s)}"
        raise PositionNotFound(
            f"{utc_text(time_us // MICROS)} is in the future for {self._log.identity.address}: its "
            f"clock says {utc_text(now_us // MICROS)}, and {newest}. Give a time that has passed, "
            "or latest"
        )

    def refuse_purged(self, position: EntryPosition) -> None:
        """Raise PositionPurged if its file is older than the oldest one."""
        first = self._log.files()[0][0]
        base, number = journal_key(position.journal_name)
        if base == journal_key(first)[0] and 0 <= number < journal_key(first)[1]:
            lost = missing_gtids(self.search.first.gtids, position.gtid) if position.gtid else ""
            raise self.purged(position, lost, f"binlog file {position.journal_name!r}")

    def purged(self, wanted: EntryPosition, gtids: str, what: str) -> PositionPurged:
        """Return the failure of a place that is purged, with the lost range. `gtids`: those
        lost."""
        first = self.search.first
        self.wanted_gtids = wanted.gtid
        lost = LostRange(
            str(wanted) if wanted.journal_name else "",
            f"{first.journal_name}:{BINLOG_START}",
            gtids,
            wanted.timestamp,
            first.first_us // MICROS or first.created_s,
        )
        error = PositionPurged(
            f"{self._log.identity.address} has purged {what}. Lost: {describe_lost(lost)}. "
            'Choose with source.on_purged: "earliest" goes on with what is left, "latest" at the '
            'log\'s end; "fail" waits for you. Keep binlogs longer (binlog_expire_logs_seconds)'
        )
        error.lost = lost
        return error.at(wanted.journal_name or None, wanted.position)

    def purged_before(self, time_us: int, what: str) -> PositionPurged:
        """Return the failure of a time before the log's first transaction."""
        seconds = time_us // MICROS
        return self.purged(EntryPosition("", timestamp=seconds), "", f"{what} {utc_text(seconds)}")

    def other_log(self, kind: type[SourceError], why: str, position: EntryPosition) -> SourceError:
        """Return the failure of a cursor whose server has another log now."""
        here = self._log.identity
        error = kind(
            f"MySQL at {here.address} (server {here.server_uuid}), cursor {position}: "
            f"{why}. Its log is not the one that was read: it was reset, restored from a copy, "
            "or got another name (log_bin), or the server was replaced. Choose with "
            'source.on_reset: "earliest" goes on with all that its log has now, "latest" at its '
            'end, "snapshot" too, with the rows that tables hold; "fail" waits for you'
        )
        error.other_log = True
        error.retryable = False
        return error.at(position.journal_name, position.position)

    def refuse_behind(self, delivered: str) -> None:
        """Raise TransactionsMissing if this server lacks GTIDs that were delivered."""
        if not self._log.executed():
            return
        lacking = unknown_gtids(delivered, self._log.known_gtids())
        if lacking:
            raise TransactionsMissing(
                f"MySQL at {self._log.identity.address} (server "
                f"{self._log.identity.server_uuid}) lacks transactions that were delivered "
                f"already: {lacking}; wait until it has them, or connect to a server that does"
            )


def _cut(gtids: str) -> str:
    return gtids if len(gtids) <= _TEXT_MAX else f"{gtids[:_TEXT_MAX]} …"
