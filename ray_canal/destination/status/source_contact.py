"""Contact to the source over time: whether it is connected, and how old its rows
are, also while the source is away and nobody answers."""

from __future__ import annotations

import time
from collections.abc import Callable

from ray_canal.source.port import SourceStatus

_SILENT_S = 30.0
"""An upstream that gives no status for so long counts as disconnected; a busy one may miss a few
status calls."""


class SourceContact:
    """Contact with one source. `now`: seconds since the epoch."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._answered_at = self._up_to_date_at = now()
        self._connected = False
        self._lag_s: float | None = None

    @property
    def connected(self) -> bool:
        """True while the source's connection stands."""
        return self._connected

    @property
    def lag_seconds(self) -> float | None:
        """Age in seconds of the newest row that was read, 0 at the log's end; None: not known.

        While the source is away: seconds since all of it was known to be read. So it grows in an
        outage, where a figure of the last contact would stay at 0."""
        return self._lag_s

    def note(
        self, status: SourceStatus | None, last_event_time: int, *, failed: bool = False
    ) -> None:
        """Take the upstream's newest status (None: it gave none, or has `failed`).
        `last_event_time`: the newest event in the log, in seconds since the epoch; 0: none."""
        now = self._now()
        if status is not None:
            self._answered_at = now
            self._connected = status.connected
        if failed or now - self._answered_at > _SILENT_S:
            self._connected = False
        if status is not None and status.connected and status.lag_bytes == 0:
            self._up_to_date_at = now
            self._lag_s = 0.0
            return
        newest = last_event_time or (status.last_event_time if status is not None else 0)
        if self._connected:
            is_known = status is not None and status.lag_bytes is not None and newest > 0
            self._lag_s = max(0.0, now - newest) if is_known else self._lag_s
        else:
            self._lag_s = max(0.0, now - max(newest, self._up_to_date_at))

    def end(self, *, at_end: bool) -> None:
        """Nothing is read any more, on purpose. `at_end`: all of the source was read."""
        self._connected = False
        self._lag_s = 0.0 if at_end else None
