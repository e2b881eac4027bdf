"""When subscribers last called, and for how long the destination has run without a call of theirs.

Time is counted by a clock that nobody sets, and only while the destination serves: a machine that
slept, a step of the wall clock or an outage of the source makes nobody look gone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

TICK_S = 5.0
"""How often `tick` is called, at the least."""


class Attendance:
    """The calls of one destination's subscribers. `now`: monotonic seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._ticked_at = now()
        self._called_at: dict[int, float] = {}
        self._idle_s: dict[int, float] = {}
        self._waiting: Counter[int] = Counter()

    def came(self, client_id: int) -> None:
        """A call of this subscriber."""
        self._called_at[client_id] = self._now()

    @contextmanager
    def waiting(self, client_id: int) -> Iterator[None]:
        """A call of this subscriber that may take long: it is there all the time."""
        self._waiting[client_id] += 1
        self.came(client_id)
        try:
            yield
        finally:
            self._waiting[client_id] -= 1
            self.came(client_id)

    def tick(self, known: Collection[int], *, serves: bool) -> None:
        """Count the time since the last tick for those of `known` who have not called since.
        `serves`: whether calls could be answered."""
        now = self._now()
        passed_s = min(now - self._ticked_at, 3 * TICK_S)
        for client_id in known:
            if self._waiting[client_id] or self._called_at.get(client_id, -1.0) >= self._ticked_at:
                self._idle_s[client_id] = 0.0
            elif serves:
                self._idle_s[client_id] = self._idle_s.get(client_id, 0.0) + passed_s
        quiet = {i for i, at in self._called_at.items() if at < self._ticked_at}
        for gone in (self._idle_s.keys() | quiet) - set(known):
            if not self._waiting[gone]:
                self.forget(gone)
        self._ticked_at = now

    def remember(self, client_id: int, idle_s: float) -> None:
        """So long it had not called when that was last written; a later life of ours goes on."""
        self._idle_s.setdefault(client_id, idle_s)

    def idle_s(self, client_id: int) -> float:
        """Seconds that the destination has served without a call of this subscriber."""
        return self._idle_s.get(client_id, 0.0)

    def since_call_s(self, client_id: int) -> float | None:
        """Seconds since its last call, for people; None: none in this life of the destination."""
        if self._waiting[client_id]:
            return 0.0
        at = self._called_at.get(client_id)
        return None if at is None else self._now() - at

    def forget(self, client_id: int) -> None:
        """Drop one that is no subscriber any more."""
        self._called_at.pop(client_id, None)
        self._idle_s.pop(client_id, None)
        self._waiting.pop(client_id, None)
