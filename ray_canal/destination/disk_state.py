"""State of the disk of a log. A disk that is full gives no sign when it has room again, so it
is tried again after a pause, for as long as it takes."""

from __future__ import annotations

import logging
import time

from ray_canal.destination.wakeup import NEVER
from ray_canal.model.reports import DiskReport

logger = logging.getLogger(__name__)

PAUSE_S = 1.0
"""Between a write that failed and the next one."""
_STALE_S = 15.0
"""After so long without another write that failed, nothing wants to go to disk any more."""
_TOLD_S = 60.0
"""A failure that lasts is logged so often."""


class DiskState:
    """The last write's outcome."""

    def __init__(self, destination: str, folder: str) -> None:
        self._where = f"destination {destination}: {folder}"
        self._problem = ""
        self._since = self._told_at = self._failed_at = 0.0
        self.try_at = NEVER
        """When the next write may be made, after one that failed; NEVER: none has failed."""

    @property
    def may_try(self) -> bool:
        """Return whether a write is worth a try now."""
        return self.try_at == NEVER or time.monotonic() >= self.try_at

    def failed(self, problem: str) -> None:
        """A write failed."""
        now = time.monotonic()
        if not self._is_failing(now):
            self._since = now
        if problem != self._problem or now - self._told_at > _TOLD_S:
            self._told_at = now
            logger.warning(
                "%s: the log cannot go to disk: %s; nothing is lost, it is tried again every %g s",
                self._where, problem, PAUSE_S,
            )  # fmt: skip
        self._problem, self._failed_at, self.try_at = problem, now, now + PAUSE_S

    def _is_failing(self, now: float) -> bool:
        return bool(self._problem) and now - self._failed_at < _STALE_S

    def worked(self) -> None:
        """A write succeeded."""
        if self._problem:
            failing_s = time.monotonic() - self._since
            logger.warning("%s: the log goes to disk again, after %.0f s", self._where, failing_s)
        self._problem, self.try_at = "", NEVER

    def report(self) -> DiskReport:
        """Return the state of the disk for `status`: `disk_error` is None and `disk_failing_s` 0
        while writes succeed, or none has been wanted for a while."""
        now = time.monotonic()
        if not self._is_failing(now):
            return {"disk_error": None, "disk_failing_s": 0.0}
        return {"disk_error": self._problem, "disk_failing_s": now - self._since}
