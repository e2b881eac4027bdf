"""Which batch ids a destination has given out, over restarts: its record, kept with the cursors.

Ids are small and rise by one, as Canal's do. They are reserved a few thousand at a time, so that
one that was given out before a restart never means another batch after it.
"""

from __future__ import annotations

from ray_canal.meta.manager import MetaManager

RESERVED = 4096
_AHEAD = 1024


class BatchIdRecord:
    """One destination's. Durable first: no id is given out above what the record says."""

    def __init__(self, destination: str) -> None:
        self._destination = destination
        self._reserved = 0

    def begin(self, meta: MetaManager, epoch: int) -> int:
        """A new log: behind which id its batches begin. Raises Fenced, EpochLost, ConfigError: the
        record is damaged."""
        start = max(meta.load_batch_ids(self._destination), self._reserved)
        self._reserve(meta, epoch, start)
        return start

    def runs_out(self, last_batch_id: int) -> bool:
        """Return whether more must be reserved before a batch behind this one is given out."""
        return last_batch_id + _AHEAD > self._reserved

    def reserve_behind(
        self, meta: MetaManager, destination: str, epoch: int, last_batch_id: int
    ) -> None:
        """Durable when it returns. Raises Fenced, EpochLost."""
        if self.runs_out(last_batch_id):
            self._reserve(meta, epoch, max(last_batch_id, self._reserved))

    def _reserve(self, meta: MetaManager, epoch: int, start: int) -> None:
        meta.save_batch_ids(self._destination, epoch, start + RESERVED)
        self._reserved = start + RESERVED
