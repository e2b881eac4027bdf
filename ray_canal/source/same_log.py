"""Check that a server's files are still those that are read: a log can be reset, or restored from a
copy, under a dump."""

from __future__ import annotations

import logging
import time

from ray_canal.binlog.cutter import ChunkCutter
from ray_canal.config import SourceConfig
from ray_canal.errors import ConnectionLost, PositionNotFound, SourceError
from ray_canal.source.catalog import Catalog
from ray_canal.source.start.log_file import read_head
from ray_canal.source.start.server_log import ServerLog

log = logging.getLogger(__name__)

_SILENT_LOG_S = 10.0
"""Time without an event after which the log is checked: it costs a connection each time. A dump
whose log is reset sends nothing until the new file is longer than the old one was."""


class SameLog:
    """Checks of one server's log. `wake`: a file descriptor that ends waiting when it can be
    read."""

    def __init__(self, config: SourceConfig, wake: int) -> None:
        self._config = config
        self._wake = wake
        self._silent_at, self._silent_since = ("", 0), 0.0

    def created_s(self, journal_name: str) -> int:
        """Return the second in which the server's file of this name was made; 0 if it has none.
        Raises SourceError."""
        catalog = Catalog(self._config)
        try:
            if journal_name not in dict(catalog.binlogs()):
                return 0
            server_log = ServerLog(self._config, catalog, self._wake)
            return read_head(server_log, journal_name).created_s
        finally:
            catalog.close()

    def refuse_other(self, journal_name: str, created_s: int) -> None:
        """Check that the file after this one, which the dump has just left, is of the same log.

        Raises PositionNotFound: the log was reset, so files before the next one were left out;
        ConnectionLost: that cannot be known any more.
        """
        found = self.created_s(journal_name)
        if not found:
            raise ConnectionLost(
                f"MySQL at {self._config.address} has removed {journal_name} just when it was "
                "read; the start is decided again"
            ).at(journal_name)
        if found != created_s:
            raise PositionNotFound(
                f"MySQL at {self._config.address} went on with the file after {journal_name}, "
                "which is not the file any more that was read: its log was reset, or it was "
                "restored from a copy, under the dump"
            ).at(journal_name)

    def check_silent(self, cutter: ChunkCutter) -> None:
        """Check the file that is read, at times, while no event comes: a server may stay silent
        once its log was reset under the dump (MySQL 5.6 in its first file). Raises
        PositionNotFound."""
        here, now = (cutter.journal_name, cutter.position), time.monotonic()
        if here != self._silent_at:
            self._silent_at, self._silent_since = here, now
        if now - self._silent_since < _SILENT_LOG_S or not cutter.created_s:
            return
        self._silent_since = now
        catalog = Catalog(self._config)
        try:
            files = catalog.binlogs()
            if not files or files[-1] == here:
                return
            created_s = 0
            if here[0] in dict(files):
                server_log = ServerLog(self._config, catalog, self._wake)
                created_s = read_head(server_log, here[0]).created_s
        except SourceError as error:
            log.warning("%s; the log was not checked", error)
            return
        finally:
            catalog.close()
        if created_s != cutter.created_s:
            raise PositionNotFound(
                f"MySQL at {self._config.address} sends nothing, and {here[0]} is not the file "
                "any more that was read so far: its log was reset, or it was restored from a copy"
            ).at(*here)
