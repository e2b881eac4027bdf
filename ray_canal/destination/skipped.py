"""Events of a destination that were left out: told in the program's log, counted for status and
metrics.
"""

from __future__ import annotations

import logging

from ray_canal.binlog.chunk import ChunkInfo

logger = logging.getLogger(__name__)


class SkippedEvents:
    """`count` since the process began; an event that is read again counts again. `last`: which it
    was, and why."""

    def __init__(self, destination: str) -> None:
        self._destination = destination
        self.count = 0
        self.last = ""

    def note(self, info: ChunkInfo) -> None:
        """Count and log the events that a chunk left out."""
        for event in info.skipped:
            self.count += 1
            self.last = event.told(info.head.journal_name)
            logger.warning(
                "destination %s: an event was left out: %s", self._destination, self.last
            )
