"""Transactions of several connections that all see one moment, and which place of the log it is.

MariaDB (and Percona Server) say with each read view at which place of the log it is. MySQL says
only what is executed. So there a view is opened between two questions, and the log itself is asked
whether it had, where it ended after the view was opened, anything beyond what was executed before:
if not, the view has exactly that. MySQL 5.6, and MySQL without GTIDs, do not even say what shows:
there the log must not grow from before all of it shows (commits.py) until the view is open. While
many write this takes tries; and none, under a lock that lasts some milliseconds, for a user who
may lock.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from ray_canal.config import InstanceConfig
from ray_canal.errors import ServerSettingRefused, SourceError
from ray_canal.model.position import EntryPosition
from ray_canal.snapshot.commits import PendingCommits, shows_what_is_executed
from ray_canal.snapshot.log_watch import open_log_watch
from ray_canal.snapshot.moment_reader import MomentReading
from ray_canal.snapshot.prepared import PreparedTransactions
from ray_canal.snapshot.session import close, other_server, server_of
from ray_canal.source.catalog import Catalog
from ray_canal.source.connection import SERVER_SQL, connect, named_values, query, server_uuid
from ray_canal.source.gtid_sets import missing_gtids, union

_TRY_S = 30.0
_OLD_STATEMENT_S = 2
"""A statement that runs for so long would keep a lock waiting, and the lock all writers."""
_LOCKED_S = 5
"""The server itself ends a lock after so long, with its connection: a reader may be on a machine
that sleeps, and this process may."""
_Tries = Callable[
    [InstanceConfig, Catalog, Sequence[MomentReading], contextlib.ExitStack],
    Iterator[EntryPosition | None],
]
_BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT"


def open_views(
    config: InstanceConfig,
    catalog: Catalog,
    readers: Sequence[MomentReading],
    may_lock: bool = False,
) -> EntryPosition:
    """Begin a transaction in each reader, so that all see the rows of one place of the log, and
    return it. Raises ServerSettingRefused: no log, or no such place was found; SourceError."""
    with contextlib.ExitStack() as cleanup:
        if may_lock:
            place = _locked(config, catalog, readers)
            _refuse_others(config, catalog, readers)
            return place
        tries = _way(catalog, readers[0])
        for found in tries(config, catalog, readers, cleanup):
            if found is not None:
                _refuse_others(config, catalog, readers)
                return found
    raise ServerSettingRefused(
        f"MySQL at {config.source.address}: in {_TRY_S:g} s it never stood still long enough for "
        f"read views of {len(readers)} connections at one moment; take fewer readers, or allow "
        "a short lock (may_lock, --may-lock); let no XA transaction stay prepared"
    )


def _refuse_others(
    config: InstanceConfig, catalog: Catalog, readers: Sequence[MomentReading]
) -> None:
    """Raise ConnectionLost unless all readers see the server whose place was asked for."""
    expected = catalog.server_uuid()
    for found in {server_uuid(reader.query(SERVER_SQL)) for reader in readers} - {expected}:
        raise other_server(config.source.address, found, expected)


def _way(catalog: Catalog, reader: MomentReading) -> _Tries:
    if _snapshot_status(reader):
        return _told
    return _watched if shows_what_is_executed(catalog) else _settled


def _snapshot_status(reader: MomentReading) -> dict[str, str]:
    return named_values(reader.query("SHOW STATUS LIKE 'binlog\\_snapshot\\_%'"))


def _told(
    config: InstanceConfig,
    catalog: Catalog,
    readers: Sequence[MomentReading],
    cleanup: contextlib.ExitStack,
) -> Iterator[EntryPosition | None]:
    """Yield the place, of a server that says at which place a view is."""
    xa = _xa(config, catalog)
    deadline = time.monotonic() + _TRY_S
    while time.monotonic() < deadline:
        places, prepared = set(), xa.now()
        for reader in readers:
            reader.query(_BEGIN)
            found = _snapshot_status(reader)
            name = found.get("binlog_snapshot_file", "")
            places.add((name, int(found.get("binlog_snapshot_position") or 0)))
        if ("", 0) in places:
            catalog.position()  # says that there is no log
        if len(places) > 1 or prepared or xa.now():
            yield None
            continue
        [(name, position)] = places
        yield EntryPosition(name, position, gtid=gtid_at(catalog, name, position))


def gtid_at(catalog: Catalog, name: str, position: int) -> str:
    """MariaDB's GTIDs at a place of the log; of other servers none."""
    if not catalog.is_mariadb:
        return ""
    rows = catalog.rows("SELECT BINLOG_GTID_POS(%s, %s) AS gtid", name, position)
    return str(rows[0]["gtid"] or "")


def _watched(
    config: InstanceConfig,
    catalog: Catalog,
    readers: Sequence[MomentReading],
    cleanup: contextlib.ExitStack,
) -> Iterator[EntryPosition | None]:
    """Begin the readers' transactions, again and again for a while; yield the position that they
    all see, or None where a commit came between. For a MySQL server whose `gtid_executed` has what
    its transactions show; its log is watched meanwhile."""
    began = _executed(catalog)
    watch = open_log_watch(config, began, catalog)
    cleanup.callback(watch.close)
    xa = _xa(config, catalog)
    deadline = time.monotonic() + _TRY_S
    while time.monotonic() < deadline:
        executed = _executed(catalog)
        for reader in readers:
            reader.query(_BEGIN)
        prepared, place = xa.now(), catalog.position()
        if prepared or place.gtid != executed or missing_gtids(
            union(began, watch.up_to(place)), executed
        ):
            yield None
        else:
            yield EntryPosition(place.journal_name, place.position, gtid=executed)


def _settled(
    config: InstanceConfig,
    catalog: Catalog,
    readers: Sequence[MomentReading],
    cleanup: contextlib.ExitStack,
) -> Iterator[EntryPosition | None]:
    """Yield the place or None for each try, of any other MySQL."""
    pending = PendingCommits(config.source, catalog, catalog.rows)
    deadline = time.monotonic() + _TRY_S
    while time.monotonic() < deadline:
        before = catalog.position()
        pending.wait()
        for reader in readers:
            reader.query(_BEGIN)
        after = catalog.position()
        yield after if after == before else None


def _xa(config: InstanceConfig, catalog: Catalog) -> PreparedTransactions:
    """Return what lists the XA transactions whose rows are in the log, and in no view."""
    return PreparedTransactions(config.source, catalog.rows, is_mariadb=catalog.is_mariadb)


def _executed(catalog: Catalog) -> str:
    """Return what Catalog.gtid_executed does, by one question."""
    rows = catalog.rows("SELECT @@GLOBAL.gtid_executed AS gtids")
    return str(rows[0]["gtids"]).replace("\n", "")


def _locked(
    config: InstanceConfig, catalog: Catalog, readers: Sequence[MomentReading]
) -> EntryPosition:
    """Open them under FLUSH TABLES WITH READ LOCK, which ends before this returns. Raises
    ConnectionLost, too: it ended before the views were open."""
    old = catalog.rows(
        "SELECT ID, TIME, INFO FROM information_schema.PROCESSLIST WHERE COMMAND IN"
        " ('Query', 'Execute') AND TIME > %s AND ID <> CONNECTION_ID()", _OLD_STATEMENT_S
    )  # fmt: skip
    if old:
        raise SourceError(
            f"MySQL at {config.source.address}: connection {old[0]['ID']} runs a statement since "
            f"{old[0]['TIME']} s, for which a lock would keep all writers waiting; try later"
        )
    locker = connect(config.source)
    try:
        limits = f"SET SESSION lock_wait_timeout = 2, SESSION wait_timeout = {_LOCKED_S}"
        query(locker, config.source, limits)
        query(locker, config.source, "FLUSH TABLES WITH READ LOCK")
        found, expected = server_of(locker, config.source), catalog.server_uuid()
        if found != expected:
            raise other_server(config.source.address, found, expected)
        for reader in readers:
            reader.query(_BEGIN)
        place, prepared = catalog.position(), _xa(config, catalog).now()
        query(locker, config.source, "UNLOCK TABLES")
        if prepared:
            raise SourceError(
                f"MySQL at {config.source.address}: {len(prepared)} XA transactions are prepared, "
                "whose rows are in the log and in no view; try later, or look at XA RECOVER"
            )
        return place
    finally:
        close(locker)
