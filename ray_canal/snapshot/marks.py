"""Marks of a range: what was visible before rows were read, and how far the log went after that, by
server.

MySQL: before, the GTIDs that it has executed (without GTIDs: where its log ends, once all of it
shows, commits.py); after, where its log ends. A place in the log alone would not do before: the log
has what nobody sees yet. MariaDB says of a read view at which place of the
log it is, which is the one before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ray_canal.binlog.chunk import GTID_MYSQL, ChunkInfo
from ray_canal.binlog.executed import gtid_set_after
from ray_canal.config import SourceConfig
from ray_canal.errors import ConnectionLost, ServerSettingRefused
from ray_canal.model.gtid import GtidSet
from ray_canal.model.position import BINLOG_START, EntryPosition
from ray_canal.snapshot.changes import LogPart
from ray_canal.snapshot.commits import (
    Ask,
    PendingCommits,
    has_gtids,
    shows_what_is_executed,
    version_of,
)
from ray_canal.snapshot.prepared import PreparedTransactions
from ray_canal.source.catalog import Catalog
from ray_canal.source.connection import query
from ray_canal.source.gtid_sets import missing_gtids

_SOURCE_LIMIT_S = 30.0
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of the log: the GTIDs of its transactions and where it ends."""

    gtids: GtidSet
    end: EntryPosition


def stretch_of(info: ChunkInfo, end: EntryPosition) -> Stretch:
    """Return the stretch of MySQL's log that a chunk's transactions are. It has no GTIDs if the
    last one has none (gtid_mode is being changed): then `gtid_executed` says nothing of its end."""
    gtids = info.gtids
    if not len(gtids) or gtids["flavor"][-1] != GTID_MYSQL:
        return Stretch(GtidSet(), end)
    return Stretch(GtidSet.parse(gtid_set_after("", gtids)), end)


@dataclass(frozen=True, slots=True)
class ExecutedLow:
    executed: GtidSet

    def has(self, stretch: Stretch) -> bool:
        return bool(stretch.gtids) and stretch.gtids.issubset(self.executed)


@dataclass(frozen=True, slots=True)
class PlaceLow:
    place: EntryPosition

    def has(self, stretch: Stretch) -> bool:
        return stretch.end <= self.place


class Marks(Protocol):
    """One server's way to tell them, over the connection that reads the rows. `sees_prepared`: it
    waits for XA transactions, as the server says which are prepared."""

    sees_prepared: bool

    def start(self) -> EntryPosition:
        """Return where the stream begins: everything before is visible from now on."""
        ...

    def low(self) -> ExecutedLow | PlaceLow:
        """Return the low mark: what the server had executed before the SELECT."""
        ...

    def high(self) -> EntryPosition:
        """Return the high mark: a place of the log behind all that the SELECT may have seen."""
        ...

    def stretch(self, part: LogPart) -> Stretch:
        """Return the stretch of the log between a part's two marks."""
        ...


def shown_now(marks: Marks) -> ExecutedLow | PlaceLow:
    """Return what shows by now, where no rows are read then. Raises SourceError kinds."""
    low = marks.low()
    marks.high()  # ends what `low` began
    return low


def marks_of(
    config: SourceConfig, catalog: Catalog, connection: Any, streamed: Catalog | None = None
) -> Marks:
    """`streamed`: the server whose log counts, where rows are read from a replica. Raises
    ServerSettingRefused: the server cannot tell."""

    def ask(sql: str) -> list[dict[str, Any]]:
        return query(connection, config, sql)

    if streamed is not None:
        return _replica_marks(config, catalog, ask, streamed)
    if ask("SHOW STATUS LIKE 'binlog\\_snapshot\\_file'"):
        catalog.position()  # says that there is no log
        return _ViewMarks(config, catalog, ask)
    pending = None
    if not shows_what_is_executed(catalog):
        pending = PendingCommits(config, catalog, ask)
        if not has_gtids(catalog):
            catalog.position()
            return _PlaceMarks(catalog, ask, pending)
    return _executed_marks(config, catalog, ask, pending)


def _executed_marks(
    config: SourceConfig, catalog: Catalog, ask: Ask, pending: PendingCommits | None
) -> _ExecutedMarks:
    if (catalog.variable("binlog_order_commits") or "ON").upper() != "ON":
        raise ServerSettingRefused(
            f"MySQL at {config.address}: binlog_order_commits is OFF, so transactions show in "
            "another order than the log's; run: SET GLOBAL binlog_order_commits = ON"
        )
    return _ExecutedMarks(config, catalog, ask, pending)


def _replica_marks(
    config: SourceConfig, catalog: Catalog, ask: Ask, streamed: Catalog
) -> _ReplicaMarks:
    if any(one.is_mariadb or not has_gtids(one) for one in (catalog, streamed)):
        raise ServerSettingRefused(
            f"MySQL at {config.address}: rows are read from a replica where it and the source are "
            "MySQL with gtid_mode = ON; leave snapshot.address out"
        )
    pending = None if shows_what_is_executed(catalog) else PendingCommits(config, catalog, ask)
    return _ReplicaMarks(config, _executed_marks(config, catalog, ask, pending), streamed)


class _ExecutedMarks:
    """Marks of MySQL with GTIDs."""

    def __init__(
        self, config: SourceConfig, catalog: Catalog, ask: Ask, pending: PendingCommits | None
    ) -> None:
        """`pending`: what is executed may not show yet."""
        self._pending = pending
        self._address = config.address
        self._catalog = catalog
        self._ask = ask
        # MySQL 5.6 writes none of them into its log before they are committed.
        self._prepared = None
        if pending is None:
            self._prepared = PreparedTransactions(config, ask, is_mariadb=False)
        self.sees_prepared = self._prepared is None or self._prepared.may_look
        self._uuid = ""
        self._status = _status_words(catalog)

    def start(self) -> EntryPosition:
        executed = self.executed()
        first = "" if executed else self._catalog.binlogs()[0][0]
        return EntryPosition(first, BINLOG_START, gtid=executed)

    def executed(self) -> str:
        """All of it shows."""
        [row] = self._ask("SELECT @@GLOBAL.gtid_executed AS gtids, @@server_uuid AS uuid")
        found = _text(row["uuid"])
        if self._uuid and found != self._uuid:
            raise ConnectionLost(f"MySQL at {self._address} is now another server: {found}")
        self._uuid = found
        if self._pending is not None:
            self._pending.wait()
        return _text(row["gtids"]).replace("\n", "")

    def low(self) -> ExecutedLow:
        executed = self.executed()
        if self._prepared is not None:
            self._prepared.wait()
        return ExecutedLow(GtidSet.parse(executed))

    def high(self) -> EntryPosition:
        return _log_end(self._ask, self._status)

    def stretch(self, part: LogPart) -> Stretch:
        return stretch_of(part.info, part.end)


class _ReplicaMarks:
    """Marks of MySQL whose rows are read from a replica. What those show lies in the source's log
    before its end of afterwards, as soon as the source has executed all that the replica had.
    (Where the replica is not one of the source but next to it, its last transaction may show a
    moment before the replica counts it: then it comes once more, by the log.)"""

    def __init__(self, config: SourceConfig, rows: _ExecutedMarks, streamed: Catalog) -> None:
        self._address = config.address
        self._rows = rows
        self._streamed = streamed
        self.sees_prepared = rows.sees_prepared

    def start(self) -> EntryPosition:
        return self._rows.start()

    def low(self) -> ExecutedLow:
        return self._rows.low()

    def high(self) -> EntryPosition:
        def late(ahead: str) -> str:
            return (
                f"MySQL at {self._address} (snapshot.address) has executed {ahead}, and the "
                f"source has not: is it a replica of it?"
            )

        wait_until_executed(self._streamed, self._rows.executed(), _SOURCE_LIMIT_S, late)
        return self._streamed.position()

    def stretch(self, part: LogPart) -> Stretch:
        return self._rows.stretch(part)


class _ViewMarks:
    """Marks of MariaDB: each chunk is read in a transaction, whose place the server tells. The low
    one is that of another one before it: what was prepared then has ended since."""

    def __init__(self, config: SourceConfig, catalog: Catalog, ask: Ask) -> None:
        self._ask = ask
        self._status = _status_words(catalog)
        self._prepared = PreparedTransactions(config, ask, is_mariadb=catalog.is_mariadb)
        self.sees_prepared = self._prepared.may_look

    def _view(self) -> EntryPosition:
        self._ask("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        rows = self._ask("SHOW STATUS LIKE 'binlog\\_snapshot\\_%'")
        found = {_text(row["Variable_name"]).lower(): _text(row["Value"]) for row in rows}
        return EntryPosition(
            found["binlog_snapshot_file"], int(found["binlog_snapshot_position"])
        )

    def start(self) -> EntryPosition:
        place = self._view()
        self._ask("COMMIT")
        return place

    def low(self) -> PlaceLow:
        low = PlaceLow(self.start())
        self._prepared.wait()
        self._view()
        return low

    def high(self) -> EntryPosition:
        """Return where the log ends, not the view's place: RENAME TABLE between the two gives it
        the rows of another table."""
        self._ask("COMMIT")
        return _log_end(self._ask, self._status)

    def stretch(self, part: LogPart) -> Stretch:
        return Stretch(GtidSet(), part.end)


class _PlaceMarks:
    """Marks of MySQL without GTIDs. What is pending includes XA transactions."""

    sees_prepared = True

    def __init__(self, catalog: Catalog, ask: Ask, pending: PendingCommits) -> None:
        self._ask = ask
        self._pending = pending
        self._status = _status_words(catalog)

    def start(self) -> EntryPosition:
        return self.low().place

    def low(self) -> PlaceLow:
        place = self.high()
        self._pending.wait()
        return PlaceLow(place)

    def high(self) -> EntryPosition:
        return _log_end(self._ask, self._status)

    def stretch(self, part: LogPart) -> Stretch:
        return Stretch(GtidSet(), part.end)


def wait_until_executed(
    server: Catalog, gtids: str, limit_s: float, late: Callable[[str], str]
) -> None:
    """Return once a server has executed these transactions. Raises ConnectionLost after `limit_s`
    seconds, with what `late` says of those that are missing."""
    deadline = time.monotonic() + limit_s
    while missing := missing_gtids(gtids, server.gtid_executed()):
        if time.monotonic() > deadline:
            raise ConnectionLost(late(missing))
        time.sleep(_PAUSE_S)


def _status_words(catalog: Catalog) -> str:
    words = ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")
    return words[0] if version_of(catalog) >= (8, 4) and not catalog.is_mariadb else words[1]


def _log_end(ask: Ask, status: str) -> EntryPosition:
    [row] = ask(status)
    return EntryPosition(_text(row["File"]), int(row["Position"]))


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
