"""A second connection to cursors in a file, which says that an epoch is the newest while the first
one waits for the disk.

SQLite readers do not wait for a writer (sqlite.org/wal.html). Only a yes counts: whatever else is
found is left to the first connection, whose calls are in order with this owner's own takeovers.
"""

from __future__ import annotations

import time

from ray_canal.config import MetaConfig
from ray_canal.destination.backend_thread import BackendThread
from ray_canal.errors import CanalError
from ray_canal.meta.manager import MetaManager
from ray_canal.meta.open import open_backend


class SecondReader:
    """Of one destination; opened when it is first needed."""

    def __init__(self, destination: str, config: MetaConfig) -> None:
        self._destination = destination
        self._config = config
        self._thread = BackendThread(f"reader of cursors of {destination}")
        self._opened: MetaManager | None = None

    async def newest_at(self, epoch: int) -> float | None:
        """Return a moment (monotonic seconds) of this call at which the epoch was the destination's
        newest; None: it was not, or that cannot be told here."""
        if self._config.backend != "sqlite":
            return None
        try:
            return await self._thread.run(self._read, epoch)
        except CanalError:
            return None

    def _read(self, epoch: int) -> float:
        if self._opened is None:
            self._opened = MetaManager(open_backend(self._config, must_exist=True))
        began_s = time.monotonic()
        try:
            self._opened.refuse_fenced(self._destination, epoch)
        except CanalError:
            self._close()  # the file may be another one by now
            raise
        return began_s

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    async def close(self) -> None:
        """Release the file, if it was opened."""
        await self._thread.close(self._close)
