"""Ends of reads that go up to where a destination's log ended when they began: places in the log,
whatever the clocks of the server and of the reader say."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ray_canal.model.position import journal_key
from ray_canal.views.row_places import RowPlace

EMPTY_GETS = 2
"""One may come while a chunk is being decoded."""
_SOURCE_AWAY_S = 10.0
"""A source that does not say where it ends is waited for so long."""
_RESET_S = 30.0
"""A log that ends before what was read of it was reset. So long its destination has to notice it,
which takes 10 s where the source stays silent."""
_FULL_S = 0.2
_STALE_S, _LOOK_S = 5.0, 0.2
"""So long an end is waited for that the source told after the read began."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a destination has read its source, and where that ended when it was last asked,
    `end_age_s` ago (None: not known); rows before these places stand before them. `full_s`: for how
    long the log has had no room to go on. `detached`: the subscriber that asks reads by a stream of
    its own, and is not where the destination is."""

    read: RowPlace
    end: RowPlace | None
    full_s: float = 0.0
    detached: bool = False
    end_age_s: float = 0.0


def reach_of(status: Mapping[str, Any], client_id: int) -> Reach | None:
    """The reach of a destination by its status; None: it stands at no source now."""
    source = status.get("fetched")
    if source is None or not source.journal_name:
        return None

    def place(journal_name: str, position: int) -> RowPlace:
        return RowPlace(
            status["timeline"], journal_key(journal_name)[1], position, -1, journal_name
        )

    end = place(*source.end) if status.get("connected") and source.end is not None else None
    store = status.get("store") or {}
    full_s = float(store.get("full_s") or 0.0)
    detached = bool(store.get("subscribers", {}).get(str(client_id), {}).get("detached"))
    read = place(source.journal_name, source.position)
    return Reach(read, end, full_s, detached, source.end_age_s)


class LogEnd:
    """The end of one read. `reach`: as of the destination now."""

    def __init__(self, reach: Callable[[], Reach | None]) -> None:
        self._reach = reach
        self._began_s = time.monotonic()
        self._place: RowPlace | None = None
        self._read: RowPlace | None = None
        """How far the destination had read when this began."""
        self._patience_s = _SOURCE_AWAY_S
        self._empty_gets = 0
        self._is_there = False
        while self._look() and time.monotonic() - self._began_s < _STALE_S:
            time.sleep(_LOOK_S)

    def is_reached(self, last: RowPlace) -> bool:
        """Note the last row of a message; whether it stands behind the end."""
        self._empty_gets = 0
        return self._place is not None and last.key > self._place.key

    def is_empty(self) -> bool:
        """Note that a get gave nothing; whether nothing more is to come before the end: the
        destination has read up to it, or its log is full."""
        self._empty_gets += 1
        if self._empty_gets < EMPTY_GETS:
            return False
        self._empty_gets, was_there = 0, self._is_there
        self._look()
        return was_there and self._is_there

    def _look(self) -> bool:
        """Return whether the source has told its end before this read began: what was written
        between counts."""
        for_s = time.monotonic() - self._began_s
        reach = self._reach()
        if reach is None:
            return False
        self._read = self._read or reach.read
        if self._place is None and reach.end is not None and for_s < reach.end_age_s < _STALE_S:
            return True
        if self._place is None:
            end = reach.end
            if end is not None and end.key < self._read.key and reach.end_age_s < for_s:
                self._patience_s, end = _RESET_S, None
            self._place = None if end is None else max(end, reach.read, key=_key)
            if time.monotonic() - self._began_s > self._patience_s:
                self._place = self._place or reach.read
        has_read = self._place is not None and reach.read.key >= self._place.key
        self._is_there = not reach.detached and (has_read or reach.full_s > _FULL_S)
        return False


def _key(place: RowPlace) -> tuple[int, int, int, int]:
    return place.key
