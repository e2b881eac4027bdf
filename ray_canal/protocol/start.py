"""Where reading starts, as the fetcher tells the store. How it is decided: driver/start.py.

It lives here because the store's process, which must come back fast, loads no decoder.
"""

from __future__ import annotations

from dataclasses import dataclass

from ray_canal.protocol.position import EntryPosition


@dataclass(frozen=True, slots=True)
class Start:
    """Where to read from, and where each cursor lies in this log. `by_gtid`: the server is to leave
    out what `position.gtid` has. `how` tells people why it starts there. `same_log`: there are
    cursors, and each was written in this log and is still where it was; without that, row ids
    begin a new timeline."""

    position: EntryPosition
    cursors: tuple[EntryPosition, ...] = ()
    by_gtid: bool = False
    how: str = ""
    same_log: bool = False
