"""Is a cursor's place still that place of the same log? A server keeps its identity when its log
is reset (RESET BINARY LOGS AND GTIDS, RESET MASTER), when it is restored from an older copy, and,
as far as MariaDB's server_id goes, when it is replaced. Pure, over a log that can be searched.

A file is known by its name and the second in which the server created it: no reset, restore or
replacement keeps both, as a server begins a new file whenever it starts. Where that second differs,
only the very microsecond of the last commit says that it is the same file. A cursor that does not
know the second (of an earlier version, or Canal's) is checked by what is around its place in the
file: where events begin, GTIDs, commit times, event times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ray_canal.model.position import EntryPosition, LogPosition, journal_key, utc_text
from ray_canal.model.timeline import LogFile
from ray_canal.source.gtid_sets import is_mysql_set, missing_gtids, union
from ray_canal.source.start.log_file import Log, Surroundings
from ray_canal.source.start.search import Search

_YOUNG_BYTES = 64 << 20
"""Bytes of a file that are read to tell two that were created in the same second."""

_OUT_OF_ORDER = (
    " (to the second; if the cursor is from a replica that applied in parallel without "
    "slave_preserve_commit_order, and no server was reset or restored, this may be the right log: "
    "then `ray-canal subscriber NAME CLIENT_ID seek GTIDS`, with the cursor_gtid that its `show` "
    "tells, goes on after them)"
)


@dataclass(frozen=True, slots=True)
class CursorPlace:
    """A cursor's `position` with all that is known of it now; None: it is not there, `why` says why
    not."""

    position: EntryPosition | None
    why: str = ""


def has_file(log: Log, search: Search, file: LogFile) -> bool:
    """Return whether a file that was read is still in the log, or has been purged; True for none. A
    server that was put back to an older copy does not have it. Raises SourceError, DecodeError
    kinds."""
    names = [name for name, _ in log.files()]
    if file.journal_name in names:
        return search.head(file.journal_name).created_s == file.created_s
    (base, number), (first_base, first) = journal_key(file.journal_name), journal_key(names[0])
    return not file.journal_name or (base == first_base and number < first)


def has_bytes(log: Log, place: EntryPosition) -> bool:
    """Return whether a file is as long as it was read, or has been purged. A crash of the server's
    machine takes what was not synced (sync_binlog); so does a copy that is put back."""
    size = dict(log.files()).get(place.journal_name)
    return size is None or _is_within(place, size)


def _is_within(place: EntryPosition, size: int) -> bool:
    """Return whether a file of so many bytes may have a place; what was consumed of a transaction
    lies behind its beginning."""
    return place.position < size if place.is_inside else place.position <= size


def acked_gtids(position: EntryPosition) -> str:
    """The GTIDs of all that a subscriber was given and has acked, of one of them in part."""
    return union(position.gtid, position.open_gtid)


def own_place(log: Log, search: Search, cursor: LogPosition, lacking: str) -> CursorPlace:
    """A cursor's place in a file of its name. `lacking`: GTIDs of the cursor that the server does
    not count as executed. Raises SourceError and DecodeError kinds."""
    position = cursor.position
    name, size = position.journal_name, dict(log.files()).get(position.journal_name)
    if size is None:
        files = log.files()
        return CursorPlace(None, f"it has no {name}, but {files[0][0]} … {files[-1][0]}")
    if not _is_within(position, size):
        return CursorPlace(None, f"{name} ends at {size}")
    created_s = search.head(name).created_s
    another = bool(position.created_s) and position.created_s != created_s
    knows_gtids = position.gtid or not log.executed()
    if position.created_s and not another and not lacking and knows_gtids:
        # A reset within the file's first second gives another one of the same name and age.
        is_young = 0 < position.timestamp <= created_s and position.position <= _YOUNG_BYTES
        why = _misfit_of_young(position, search) if is_young and position.commit_us else ""
        return CursorPlace(None, why) if why else CursorPlace(position)
    around = search.surroundings(name, position.position)
    if not cursor.identity.server_uuid:
        return _imported(position, around, lacking)
    why = _misfit(position, around, log.purged())
    if why:
        why = f"at {position.position} in {name}, {why}"
    # A server in between may make up a file's first event. Then the microsecond of a commit tells.
    if another and (why or not _same_commit(position, around)):
        created = f"{utc_text(created_s)}, the cursor's {utc_text(position.created_s)}"
        why = f"its {name} was created {created}" + (f"; {why}" if why else "")
    if why:
        return CursorPlace(None, why)
    gtid = position.gtid or (around.start.gtid if log.executed() else "")
    return CursorPlace(replace(position, created_s=created_s, gtid=gtid))


def _misfit_of_young(position: EntryPosition, search: Search) -> str:
    """Return why the commit before a cursor of a file's first second is not the cursor's; empty: it
    is, or has no microsecond."""
    around = search.surroundings(position.journal_name, position.position)
    commit_us = around.next_us if position.is_inside else around.last_us
    why = "" if around.is_event else "no event begins"
    if commit_us and commit_us != position.commit_us:
        why = _misfit_of_times(position, around)
    return f"at {position.position} in {position.journal_name}, {why}" if why else ""


def _same_commit(position: EntryPosition, around: Surroundings) -> bool:
    """Return whether the transaction at a place has the commit time that the cursor knows."""
    commit_us = around.next_us if position.is_inside else around.last_us
    return bool(commit_us) and position.commit_us == commit_us


def _misfit(position: EntryPosition, around: Surroundings, purged: str) -> str:
    """Return why a cursor's place in this log does not fit what the cursor knows of it; empty: all
    that is known fits."""
    if not around.is_event:
        return "no event begins"
    if around.start.position != position.position:
        return f"a transaction goes on that began at {around.start.position}"
    if position.gtid and around.start.gtid:
        here, there = around.start.gtid, position.gtid
        lacking = missing_gtids(there, here)
        if lacking:
            return f"transactions {lacking} have not been executed yet"
        more = missing_gtids(missing_gtids(here, there), purged)
        if more:
            return f"transactions {more} have been executed already"
    return _misfit_of_times(position, around)


def misfit_of_last(position: EntryPosition, around: Surroundings) -> str:
    """Return why what comes before a place that was found by GTID is not the cursor's last
    transaction, whose file the log has no more; empty: it is. Where it is in another file, that has
    another name now, and the commit's microsecond or the file's age must say so; else the log gave
    these GTIDs again, or (MariaDB, gtid_strict_mode off) lower ones later."""
    why = _misfit_of_times(position, around)
    created_s = around.start.created_s
    if why or _same_commit(position, around) or position.created_s == created_s:
        return why
    known = f"{utc_text(position.created_s)}" if position.created_s else "it does not know when"
    return f"the file was created {utc_text(created_s)}, the cursor's {known}"


def _misfit_of_times(position: EntryPosition, around: Surroundings) -> str:
    """Return why a place after the cursor's last transaction (or before the one that it is inside
    of) is none, by their times; empty: these fit, or are unknown."""
    commit_us = around.next_us if position.is_inside else around.last_us
    if position.commit_us and commit_us:
        if position.commit_us == commit_us:
            return ""
        return _committed_then(commit_us, position.commit_us)
    last_s = around.before_s
    if not position.is_inside and position.timestamp and last_s not in (0, position.timestamp):
        return (
            f"the event before is of {utc_text(last_s)}, the cursor's of "
            f"{utc_text(position.timestamp)}"
        )
    return ""


def begun_again(
    position: EntryPosition, found: EntryPosition, search: Search, window_us: int
) -> str:
    """Return why a place that another server has by the cursor's GTIDs is not the cursor's: it
    began its GTIDs again and has later transactions under them; empty: it has them, or it is not
    known. Two servers may have the transactions of several sources in different orders, so what
    comes before the place may be any transaction that was delivered. `search` has just found it."""
    if not position.commit_us:
        return _begun_again_by_seconds(position, found, search, window_us)
    if position.is_inside:
        here_us = search.found.original_us if search.found.gtid == position.open_gtid else 0
        if here_us in (0, position.commit_us):
            return ""
        return _committed_then(here_us, position.commit_us)
    if 0 < search.found.passed_us <= position.commit_us:
        return ""
    before = search.last_before(found)
    if before is None or before.last_us <= position.commit_us:
        return ""
    if search.commit(position.commit_us, window_us) is not None:
        return ""
    return _misfit_of_times(position, before)


def _begun_again_by_seconds(
    position: EntryPosition, found: EntryPosition, search: Search, window_us: int
) -> str:
    """Return the same where commits have no microseconds (before MySQL 8.0.1, MariaDB): the last
    transactions that were delivered are later here than the last event that was.

    All servers keep the times of a transaction's rows. MariaDB 10 and MySQL 5 give its GTID and its
    end that of the last row on a replica, and that of the commit where it was written; so the
    earliest of its events is the one to compare.

    A replica of MySQL 5 that applies in parallel and not in the order of commits may have delivered
    an older transaction last. Nothing that a cursor holds tells its last GTIDs from others given
    again after a restore, whose log would be passed over: it is refused, and told what to do.
    """
    if not position.timestamp or 0 < search.found.passed_s <= position.timestamp:
        return ""
    before = search.last_before(found)
    if before is None or before.before_s <= position.timestamp:
        return ""
    here_s = search.last_ones_s(position.gtid, position.timestamp * 1_000_000 - window_us)
    if here_s is None or here_s <= position.timestamp:
        return ""
    then = _committed_then(here_s * 1_000_000, position.timestamp * 1_000_000)
    return then + _OUT_OF_ORDER if is_mysql_set(position.gtid) else then


def _committed_then(here_us: int, cursor_us: int) -> str:
    return (
        f"the transaction was committed {utc_text(here_us // 1_000_000)}, the cursor's "
        f"{utc_text(cursor_us // 1_000_000)}"
    )


def _imported(position: EntryPosition, around: Surroundings, lacking: str) -> CursorPlace:
    """Return where a cursor of Canal is, which is where the last acked entry begins, and has that
    entry's time."""
    where = f"at {position.position} in {position.journal_name}"
    if lacking:
        return CursorPlace(None, f"it has not executed {lacking}")
    if not around.is_event:
        return CursorPlace(None, f"{where}, no event begins")
    if not position.timestamp:
        return CursorPlace(
            None, f"{where}: the cursor names neither a server nor a time to know it by"
        )
    if around.at_s not in (0, position.timestamp):
        return CursorPlace(
            None,
            f"{where} is an event of {utc_text(around.at_s)}, the cursor's is of "
            f"{utc_text(position.timestamp)}",
        )
    start = around.start
    return CursorPlace(replace(start, entry=around.entries, timestamp=position.timestamp))
