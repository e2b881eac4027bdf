"""Measure how far the oldest cursor is from what the server purges next. Pure; lag.py asks the
server.

A server purges whole files, oldest first: those whose last event is older than its retention, and
those that somebody purges by hand. The file that is being written is never purged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ray_canal.errors import LostRange
from ray_canal.model.position import EntryPosition, journal_key, utc_text


@dataclass(frozen=True, slots=True)
class PurgeDistance:
    """`bytes`: of binlog that the server still has before the cursor; None: not known, or the
    cursor's file is gone. `seconds`: until the retention may take the cursor's file, at the least;
    None: never, or not known. `warning` is empty while there is nothing to fear."""

    bytes: int | None = None
    seconds: float | None = None
    warning: str = ""


def purge_distance(
    binlogs: Sequence[tuple[str, int]],
    retention_s: float,
    cursor: EntryPosition,
    now: float,
    warning_s: float,
    written_at: float = 0.0,
) -> PurgeDistance:
    """The distance of a cursor. `binlogs`: (name, size in bytes), oldest first; `retention_s` 0:
    nothing is purged by age; `now` in seconds since the epoch. `written_at`: when the cursor's file
    was known to be the one that is being written, 0: never; a cursor without a time (of a
    subscriber that has acked nothing) is then at least that young."""
    if not binlogs:
        return PurgeDistance()
    here = journal_key(cursor.journal_name)
    keys = [journal_key(name) for name, _ in binlogs]
    if here not in keys:
        gone = here[0] == keys[0][0] and here < keys[0]
        return PurgeDistance(warning=f"{cursor} is purged already" if gone else "")
    index = keys.index(here)
    kept = sum(size for _, size in binlogs[:index]) + cursor.position
    if index == len(keys) - 1:
        return PurgeDistance(kept)
    seconds = None
    last_s = max(cursor.timestamp, written_at)
    if retention_s > 0 and last_s:
        seconds = last_s + retention_s - now
    warning = ""
    if seconds is not None and seconds < warning_s:
        warning = (
            f"the server purges {cursor.journal_name}, which the oldest cursor needs, in about "
            f"{max(seconds, 0) / 3600:.1f} h; consume faster, or keep binlogs longer "
            "(binlog_expire_logs_seconds)"
        )
    elif index == 0 and seconds is None:  # it may go at any time, by hand or by size
        warning = f"the oldest cursor is in {cursor.journal_name}, the next file to be purged"
    return PurgeDistance(kept, seconds, warning)


def describe_lost(lost: LostRange) -> str:
    """Return what a purge took away, in one line for people."""
    parts = [f"{lost.start or 'everything'} … {lost.end}"]
    if lost.gtids:
        parts.append(f"transactions {lost.gtids}")
    if lost.start_time or lost.end_time:
        start = utc_text(lost.start_time) if lost.start_time else "an unknown time"
        end = utc_text(lost.end_time) if lost.end_time else "now"
        parts.append(f"{start} … {end}")
    return ", ".join(parts)
