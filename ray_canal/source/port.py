"""The port that sources implement: a live server (live.py) and binlog files (files.py).

A source gives RawChunks in log order, each event once. What it needs from its caller is only to be
read: it never reads ahead of calls by more than its receive buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ray_canal.binlog.chunk import RawChunk
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.start import ALL_CURSORS, Start, StartOptions
from ray_canal.source.retention import PurgeDistance

Decided = Callable[[Start, SourceIdentity], None]
"""Called with where reading starts, in which log."""


def nothing(start: Start, identity: SourceIdentity) -> None:
    """Do nothing: for a caller who need not know before `resume` returns."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """The state of a source. Times are time.time() seconds, but `last_event_time`: the last event's
    header time. `master_position` is how far the server (or file) is known to go, None: not known.
    `errors` counts lost connections and failed attempts to connect, `failed_checks` those of health
    (source.detect_sql). `lag_bytes`: what the source has and we have not read, None: not known.
    `end`: the file that the source writes, and how far it went when it was last asked, `end_age_s`
    ago; None: not known.
    `purge`: how far the oldest cursor is from what the server purges next. `server_gtid_set`: what
    the server has executed, empty: not known."""

    journal_name: str
    position: int
    master_position: int | None = None
    last_event_time: int = 0
    received_bytes: int = 0
    last_heartbeat_time: float = 0.0
    connected: bool = True
    reconnects: int = 0
    errors: int = 0
    failed_checks: int = 0
    last_error: str = ""
    lag_bytes: int | None = None
    end: tuple[str, int] | None = None
    end_age_s: float = 0.0
    purge: PurgeDistance | None = None
    server_gtid_set: str = ""


class Source(Protocol):
    """The log that the fetcher reads. One thread calls; `status`, `hurry` and `interrupt` may be
    called from others.

    `waited_s`: seconds for which `read` has waited for the log, in all. For the rest of its time it
    worked, or got no CPU.
    """

    waited_s: float

    def open(self, start: EntryPosition | None) -> EntryPosition:
        """Stand at exactly `start` (None: where the configuration says); returns where it stands.

        Raises SourceError kinds: unreachable, refused, position unknown or purged.
        """
        ...

    def resume(
        self,
        cursors: Sequence[LogPosition],
        delivered: str = "",
        decided: Decided = nothing,
        options: StartOptions = ALL_CURSORS,
    ) -> Start:
        """Stand where the first of these cursors lies, be it in another server's log (none: where
        the configuration says). `delivered`: GTIDs that subscribers were given beyond them.
        `options`: which of them may be left out.

        `decided`: called as soon as that is known, of a server before its dump begins, if it can
        be: a dump that nobody reads yet keeps a semi-synchronous server's commits waiting. It is
        called again where the next of several servers has to do.

        Raises as `open`, TransactionsMissing, and what `decided` raises.
        """
        ...

    def read(self, linger_s: float, wait_s: float) -> RawChunk | None:
        """The next chunk; None if nothing came within `wait_s` (or `finished`, or interrupted).

        A chunk that is not full is handed out `linger_s` after its first event at the latest; see
        chunk_pace.py. Raises SourceError and DecodeError kinds; after one of them the source must
        be opened again.
        """
        ...

    def hurry(self) -> None:
        """Hand out what is there now without a linger: a subscriber waits."""
        ...

    @property
    def finished(self) -> bool:
        """Return whether no chunk will ever come: the end of files that are not followed."""
        ...

    @property
    def identity(self) -> SourceIdentity:
        """Return which log this is. Valid after `open`."""
        ...

    def status(self) -> SourceStatus: ...

    def interrupt(self) -> None:
        """End a waiting `read` and all later ones with None."""
        ...

    def close(self) -> None: ...
