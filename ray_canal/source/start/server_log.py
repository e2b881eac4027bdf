"""A live server's binlog as a log to search (log_file.py's port): each file over a dump of its
own, which ends where the search has seen enough."""

from __future__ import annotations

import contextlib
import os
import select
import uuid
from collections.abc import Iterator, Sequence

from ray_canal.binlog.chunk import RawChunk
from ray_canal.binlog.cutter import ChunkCutter
from ray_canal.config import SourceConfig
from ray_canal.errors import UNUSABLE_CURSOR, ConnectionLost, ServerSettingRefused, SourceError
from ray_canal.model.position import EntryPosition, SourceIdentity
from ray_canal.source.catalog import Catalog
from ray_canal.source.connection import translated
from ray_canal.source.dump import BinlogDump, ReplicaIdentity
from ray_canal.source.start.log_file import WIDE_OFFSET, takes_wide_offsets

_RECEIVE_BYTES = 64 << 10
"""At a file's head little is wanted; the server sends no more than buffers hold."""
_POLL_S = 1.0


class ServerLog:
    """One server's log. `read` names the files that were read, in order: what a search cost."""

    def __init__(self, config: SourceConfig, catalog: Catalog, wake: int) -> None:
        """Take a server's log. `wake`: a file descriptor that ends waiting when it becomes
        readable."""
        self._config = config
        self._catalog = catalog
        self._wake = wake
        self._files: list[tuple[str, int]] = []
        self._identity: SourceIdentity | None = None
        self._is_mariadb: bool | None = None
        self._replica = ReplicaIdentity(str(uuid.uuid4()))
        self.read: list[str] = []

    @property
    def identity(self) -> SourceIdentity:
        if self._identity is None:
            self._identity = SourceIdentity(self._config.address, self._catalog.server_uuid())
        return self._identity

    @property
    def is_mariadb(self) -> bool:
        if self._is_mariadb is None:
            self._is_mariadb = self._catalog.is_mariadb
        return self._is_mariadb

    def files(self) -> Sequence[tuple[str, int]]:
        self._files = self._catalog.binlogs()
        if not self._files:
            raise ServerSettingRefused(f"MySQL at {self._config.address} has no binlog file")
        return self._files

    def end(self) -> EntryPosition:
        return self._catalog.position()

    def executed(self) -> str:
        return self._catalog.gtid_executed()

    def known_gtids(self) -> str:
        return self._catalog.known_gtids()

    def offsets_max(self) -> int:
        mode = self._catalog.variable("gtid_mode") or ""
        return 1 << 63 if takes_wide_offsets(self._catalog.version, mode) else WIDE_OFFSET

    def takes_gtid_sets(self) -> bool:
        return self.is_mariadb or (self._catalog.variable("gtid_mode") or "").upper() == "ON"

    def leaves_rows_out(self) -> str:
        return self._catalog.leaves_rows_out()

    def purged(self) -> str:
        return self._catalog.gtid_purged()

    def now_us(self) -> int:
        return self._catalog.now_us()

    def _refuse_purged(self, journal_name: str) -> None:
        """Raise ConnectionLost if a file that was listed is not there any more, so that the
        decision that needs it is made again."""
        if journal_name not in dict(self.files()):
            raise ConnectionLost(
                f"MySQL at {self._config.address} has purged {journal_name} just when it was "
                "looked at; the log is looked at again"
            )

    def chunks(self, journal_name: str, chunk_bytes: int) -> Iterator[RawChunk]:
        if journal_name not in dict(self._files):
            self._refuse_purged(journal_name)
        size = dict(self._files)[journal_name]
        self.read.append(journal_name)
        buffer_bytes = max(_RECEIVE_BYTES, min(chunk_bytes, self._config.receive_buffer_bytes))
        # Nobody acknowledges what is only looked at.
        changed = {"receive_buffer_bytes": buffer_bytes, "semi_sync": False}
        config = self._config.model_copy(update=changed)
        cutter = ChunkCutter(
            chunk_bytes,
            config.event_bytes_max,
            skips=config.skipped_places,
            on_undecodable=config.on_undecodable,
        )
        cutter.begin_file(journal_name)
        dump = BinlogDump(config, cutter)
        try:
            place = EntryPosition(journal_name)
            ended: SourceError | None = None
            self._replica = dump.start(place, self._replica, by_gtid=False, follow=False)
            while cutter.journal_name == journal_name:
                chunk = cutter.next()
                if chunk is None and (ended is not None or cutter.position >= size):
                    chunk = cutter.flush()  # what there is comes before what went wrong
                    if chunk is None and cutter.position >= size:
                        return
                    if chunk is None and ended is not None:
                        if isinstance(ended, UNUSABLE_CURSOR):
                            self._refuse_purged(journal_name)
                        raise ended
                if chunk is None:
                    try:
                        arrived = dump.receive(_POLL_S, self._wake)
                    except SourceError as error:
                        ended = error
                        continue
                    if not arrived and _readable(self._wake):
                        raise ConnectionLost(f"{journal_name}: the search was interrupted")
                    continue
                if chunk.head.journal_name == journal_name:
                    yield chunk
        finally:
            dump.close()


@contextlib.contextmanager
def log_of_server(config: SourceConfig, catalog: Catalog) -> Iterator[ServerLog]:
    """Yield a server's log for a look that nobody has to wake. The catalog stays open."""
    with translated(config):
        wake, writer = os.pipe()
    try:
        yield ServerLog(config, catalog, wake)
    finally:
        os.close(wake)
        os.close(writer)


def _readable(descriptor: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
