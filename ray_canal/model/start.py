"""Where reading starts, as the fetcher tells the store. How it is decided:
source/start/decision.py.

It lives here because the store's process, which must come back fast, loads no decoder.
"""

from __future__ import annotations

from dataclasses import dataclass

from ray_canal.errors import SourceError
from ray_canal.model.position import EntryPosition, LogPosition
from ray_canal.model.timeline import NO_FILE, LogFile


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """Options of a start with cursors. By default it stands at the smallest one, and all of them
    must be had.

    `partial`: a cursor that this server cannot serve (purged, reset) is left out, as long as there
    is another one. `reach_bytes`: so is one that lies further behind the newest one, in bytes of
    binlog. Who is left out is for a catch-up. `unattended`: where the log began that nobody had
    subscribed to; for a start without cursors. `newest`: the last file of which something was
    handed out, acked or not. `read_to`: the end of the log that was read last, as far as it was
    read. `joins`: somebody reads that log already, so that a start without
    cursors is in the same log if it has that file."""

    partial: bool = False
    reach_bytes: int | None = None
    unattended: LogPosition | None = None
    newest: LogFile = NO_FILE
    read_to: EntryPosition | None = None
    joins: bool = False


ALL_CURSORS = StartOptions()


def begun(options: StartOptions) -> tuple[LogPosition, ...]:
    """Return where the log began before, if it did, of a start without cursors."""
    return () if options.unattended is None else (options.unattended,)


@dataclass(frozen=True, slots=True)
class Start:
    """The place to read from, and where each cursor lies in this log. `by_gtid`: the server is to
    leave out what `position.gtid` has. `how` tells people why it starts there. `same_log`: there
    are cursors (or it `joins`), each was written in this log and is still where it was, and the log
    still has what was handed out, or has purged it; without that, row ids begin a new timeline.
    `failures`: of each cursor, what keeps it from being served; None: it can be. `behind`: of each
    cursor, its bytes of binlog behind the newest one, if that was too far for this start; else 0.
    `other_log`: it is the cursors' server, and another log (reset, restored, replaced), so that
    nothing known of places in it holds. `leaves_out`: changes behind a cursor may be missing, as
    on_reset or on_purged has it."""

    position: EntryPosition
    cursors: tuple[EntryPosition, ...] = ()
    by_gtid: bool = False
    how: str = ""
    same_log: bool = False
    failures: tuple[SourceError | None, ...] = ()
    behind: tuple[int, ...] = ()
    other_log: bool = False
    leaves_out: bool = False
