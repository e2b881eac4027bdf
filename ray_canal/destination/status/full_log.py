"""Telling people who keeps a full log from going on, and for how long."""

from __future__ import annotations

import logging
from collections.abc import Sequence

logger = logging.getLogger(__name__)

_TOLD_AT_S = (60.0, 600.0, 3600.0)


class FullLogWarning:
    """One destination's. A log that is full for seconds is back-pressure, and no news."""

    def __init__(self, destination: str) -> None:
        self._destination = destination
        self._next_s = _TOLD_AT_S[0]

    def look(self, full_s: float, held_by: Sequence[int], calls: str) -> None:
        """Warn after a minute, ten minutes, an hour, and each hour. `full_s`: for how long the log
        has had no room (0: it has); `calls`: when those who hold it last called."""
        if full_s < self._next_s:
            if not full_s:
                self._next_s = _TOLD_AT_S[0]
            return
        later = (s for s in _TOLD_AT_S if s > full_s)
        self._next_s = next(later, full_s + _TOLD_AT_S[-1])
        whose = ", ".join(map(str, held_by))
        if not held_by:
            logger.info(
                "destination %s: the log is full for %.0f s and nobody has subscribed",
                self._destination, full_s,
            )  # fmt: skip
            return
        logger.warning(
            "destination %s: the log is full for %.0f s and waits for subscriber %s (%s). Nothing "
            "more is read until it acks; if it is gone: `ray-canal unsubscribe %s CLIENT_ID`; if "
            "it is only slow: policy spill or detach",
            self._destination, full_s, whose, calls, self._destination,
        )  # fmt: skip
