"""Measure how far reading is behind a source, in bytes of binlog that are not read yet."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from ray_canal.config import SourceConfig
from ray_canal.errors import CanalError
from ray_canal.model.position import EntryPosition, journal_key
from ray_canal.source.binlog_files import list_binlogs
from ray_canal.source.catalog import Catalog
from ray_canal.source.retention import PurgeDistance, purge_distance

_ASK_EVERY_S = 2.0


def behind_bytes(
    binlogs: Sequence[tuple[str, int]], journal_name: str, position: int
) -> int | None:
    """Return the bytes between a position and the end of the last of these files (name, size in
    bytes).

    None when the file is not among them.
    """
    here = journal_key(journal_name)
    sizes = {journal_key(name): size for name, size in binlogs}
    if here not in sizes:
        return None
    later = sum(size for key, size in sizes.items() if key > here)
    return later + max(sizes[here] - position, 0)


class LagMeter:
    """Distances of reading from the server's end, and from what it purges: it asks the server (its
    own connection, at most every two seconds) or looks at the files."""

    def __init__(self, config: SourceConfig) -> None:
        self._config = config
        self._catalog: Catalog | None = None
        self._binlogs: list[tuple[str, int]] = []
        self._retention_s = 0.0
        self._asked_at = float("-inf")
        self._written_at: dict[str, float] = {}
        self.server_gtid_set = ""

    def bytes_behind(self, journal_name: str, position: int) -> int | None:
        """Return the bytes to the end; None if the server does not answer or does not know the
        file."""
        self._ask()
        return behind_bytes(self._binlogs, journal_name, position)

    def end(self) -> tuple[str, int] | None:
        """Return the file that is written, and its size; None if the server does not answer."""
        self._ask()
        return max(self._binlogs, key=lambda each: journal_key(each[0]), default=None)

    def age_s(self) -> float:
        """Return for how long nobody was asked."""
        return time.monotonic() - self._asked_at

    def purge_distance(self, cursor: EntryPosition) -> PurgeDistance | None:
        """Return the purge distance of the oldest cursor; None for files, which nobody purges."""
        if self._config.files:
            return None
        self._ask()
        warning_s = 3600 * self._config.purge_warning_hours
        written_at = self._written_at.get(cursor.journal_name, 0.0)
        now = time.time()
        return purge_distance(
            self._binlogs, self._retention_s, cursor, now, warning_s, written_at
        )

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()

    def _ask(self) -> None:
        if time.monotonic() - self._asked_at > _ASK_EVERY_S:
            self._binlogs = []  # a list of before an outage would say that nothing is behind
            with contextlib.suppress(CanalError, OSError):
                self._binlogs = self._list()
                self._note_written(self._binlogs)
            self._asked_at = time.monotonic()

    def _note_written(self, binlogs: Sequence[tuple[str, int]]) -> None:
        """Note that the last of these files is being written now; forget those that are gone."""
        names = [name for name, _ in binlogs]
        self._written_at = {k: v for k, v in self._written_at.items() if k in names}
        if names:
            self._written_at[names[-1]] = time.time()

    def _list(self) -> list[tuple[str, int]]:
        if self._config.files:
            paths = list_binlogs(tuple(Path(name) for name in self._config.files))
            return [(path.name, path.stat().st_size) for path in paths]
        if self._catalog is None:
            self._catalog = Catalog(self._config)
        self._retention_s = self._catalog.retention_s()
        with contextlib.suppress(CanalError):  # the user may not ask, the server has none
            self.server_gtid_set = self._catalog.position().gtid
        return self._catalog.binlogs()
