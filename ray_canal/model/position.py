"""Positions in a binlog: where an event is, where to resume, in what order they stand.

No I/O and no reading of binlogs here; GTID sets live in `gtid.py`.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, replace
from functools import total_ordering

from ray_canal.errors import ConfigError

BINLOG_START = 4
"""Offset of a binlog file's first event: after the 4 magic bytes."""

_NAME = re.compile(r"(?P<base>.+)\.(?P<number>\d+)\Z")


def journal_key(journal_name: str) -> tuple[str, int]:
    """(base, number) of a binlog file's name, by which names are compared (never as text).

    `mysql-bin.999999` < `mysql-bin.1000000`. A name without a number sorts first in its base.
    """
    found = _NAME.match(journal_name)
    return (found["base"], int(found["number"])) if found else (journal_name, -1)


def utc_text(seconds: int) -> str:
    """Return seconds since the epoch as YYYY-MM-DD HH:MM:SSZ."""
    return dt.datetime.fromtimestamp(seconds, dt.timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class EntryPosition:
    """A place in a source's binlog (Canal: EntryPosition).

    `position` is a byte offset at an event's boundary: everything before it has been consumed.
    `row` and `entry` > 0 mean: of the transaction that starts at `position`, so many rows and
    entries are consumed, too. `gtid` is the set executed up to `position` (may be empty),
    `timestamp` the last consumed event's header time in seconds (0 = unknown), `commit_us` when the
    last consumed transaction (or the one that the position is inside of) was committed on the
    server where it was written, in microseconds (0 = unknown): replicas keep it, so it names the
    transaction there. `trail` does that where neither GTIDs nor such times are written: digests of
    the last transactions before `position` (binlog/trail.py). `created_s` is when the server
    created the file (header time of its first event, seconds; 0 = unknown): with the name it tells
    the file from one of another log, as after RESET or on a server made of an older copy.
    `open_gtid` names the transaction that the position is inside of. `moved`: `row` and `entry`
    were counted on another server, which may pack rows into other events.
    Equality and order look at file, position, row and entry alone.
    """

    journal_name: str
    position: int = BINLOG_START
    row: int = 0
    gtid: str = ""
    timestamp: int = 0
    entry: int = 0
    commit_us: int = 0
    trail: str = ""
    created_s: int = 0
    open_gtid: str = ""
    moved: bool = False

    def key(self) -> tuple[tuple[str, int], int, int, int]:
        """Return it as a tuple that compares in the order of one log: file, offset, row, entry."""
        return journal_key(self.journal_name), self.position, self.row, self.entry

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EntryPosition) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def __lt__(self, other: EntryPosition) -> bool:
        if journal_key(self.journal_name)[0] != journal_key(other.journal_name)[0]:
            raise ConfigError(
                f"cannot compare positions of two binlog bases: {self} and {other}"
            )
        return self.key() < other.key()

    def __str__(self) -> str:
        inside = f"+{self.row}.{self.entry}" if self.row or self.entry else ""
        return f"{self.journal_name}:{self.position}{inside}"

    @property
    def is_inside(self) -> bool:
        """Return whether a part of the transaction that starts at `position` is consumed."""
        return bool(self.row or self.entry)

    @property
    def boundary(self) -> EntryPosition:
        """Return where its transaction starts: what a dump can start at. When the one before that
        was committed is not known."""
        if not self.is_inside:
            return self
        return replace(self, row=0, entry=0, commit_us=0, open_gtid="", moved=False)


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """The log that a position belongs to: `server_uuid` of the server, or the files' directory."""

    address: str
    server_uuid: str = ""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A subscriber's durable cursor: a position and the source that it belongs to."""

    identity: SourceIdentity
    position: EntryPosition

    def is_foreign(self, here: SourceIdentity) -> bool:
        """Return whether it is a place in another server's files. (Files' identity is no
        server.)"""
        known = self.identity.server_uuid
        return bool(known and here.server_uuid and known != here.server_uuid)
