"""Names the transactions that a log had up to a place, beyond those that were executed before.

The log has a transaction before anyone can see its rows. So whether rows that were read are those
of a place of the log is not asked of the server's variables, but of the log itself.
"""

from __future__ import annotations

import time

import numpy as np

from ray_canal.binlog.executed import gtid_set_after
from ray_canal.binlog.walked import walk
from ray_canal.config import InstanceConfig
from ray_canal.errors import ConnectionLost
from ray_canal.model.arrays import Records
from ray_canal.model.position import BINLOG_START, EntryPosition, journal_key
from ray_canal.snapshot.session import other_server, second_replica
from ray_canal.source.catalog import Catalog
from ray_canal.source.live import LiveSource
from ray_canal.source.port import Source

_WAIT_S = 0.2


def open_log_watch(config: InstanceConfig, executed: str, catalog: Catalog) -> LogWatch:
    """Return a watch of a MySQL server's log from a set of GTIDs on, over a connection of its own.
    Raises SourceError kinds; ConnectionLost, too: that leads to another server."""
    replica = second_replica(config.source, gtid=True)
    source = LiveSource(config.model_copy(update={"source": replica}))
    try:
        first_file = "" if executed else catalog.binlogs()[0][0]
        source.open(EntryPosition(first_file, BINLOG_START, gtid=executed))
        found, expected = source.identity.server_uuid, catalog.server_uuid()
        if found != expected:
            raise other_server(config.source.address, found, expected)
    except BaseException:
        source.close()
        raise
    return LogWatch(source, config.source.read_timeout_s + config.source.connect_timeout_s)


class LogWatch:
    """Collects the GTIDs of a log, read from an open source, and closes that at the end."""

    def __init__(self, source: Source, limit_s: float) -> None:
        """`limit_s`: how long the log may take to reach a place."""
        self._source = source
        self._limit_s = limit_s
        self._found: list[tuple[str, Records]] = []
        self._head = EntryPosition("")

    def up_to(self, place: EntryPosition) -> str:
        """Return the GTIDs of the log before this place, beyond those that it began with. Raises
        SourceError kinds; ConnectionLost: the log does not get there."""
        deadline = time.monotonic() + self._limit_s
        while not self._head.journal_name or self._head < place:
            if time.monotonic() > deadline:
                raise ConnectionLost(f"the log does not reach {place}: it is at {self._head}")
            self._advance()
        gtids = ""
        for name, records in self._found:
            before = journal_key(name) < journal_key(place.journal_name)
            chosen = records if before else records[records["position"] < place.position]
            if before or name == place.journal_name:
                gtids = gtid_set_after(gtids, chosen)
        return gtids

    def _advance(self) -> None:
        raw = self._source.read(0.0, _WAIT_S)
        if raw is None:
            status = self._source.status()
            self._head = EntryPosition(status.journal_name, status.master_position or 0)
            return
        walked = walk(raw)
        if walked.failure is not None:
            raise walked.failure
        if len(walked.gtids):
            self._found.append((raw.head.journal_name, np.array(walked.gtids)))
        self._head = EntryPosition(raw.head.journal_name, raw.head.end_position)

    def close(self) -> None:
        self._source.close()
