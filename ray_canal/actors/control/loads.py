"""Loads: bytes a second and memory of each destination, over the last minutes. Counting only."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping

from ray_canal.actors.control.balance import Load

_OVER_S = 60.0
"""A change of load counts in full after some minutes."""
_SETTLED_S = 120.0


class Loads:
    """Averages by destination. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._averages: dict[str, tuple[float, Load]] = {}
        self._since: dict[str, float] = {}  # it began to be measured, or was moved

    def note(self, measured: Mapping[str, tuple[float, float]]) -> None:
        """Take what a process has measured (bytes a second and bytes of memory, by destination)
        into the averages, which follow it within minutes."""
        now = self._clock()
        for name, values in measured.items():
            self._since.setdefault(name, now)
            before_s, before = self._averages.get(name, (now, Load(*values)))
            weight = 1 - math.exp(-(now - before_s) / _OVER_S)
            averages = (
                old + weight * (new - old)
                for old, new in zip((before.bytes_per_s, before.memory_bytes), values, strict=True)
            )
            self._averages[name] = now, Load(*averages)

    def of(self, name: str) -> Load:
        """Return a destination's average; zeros while it is not known."""
        return self._averages.get(name, (0.0, Load()))[1]

    def moved(self, name: str) -> None:
        """Note that a destination was moved: its average is kept, and not acted on for a while."""
        self._since[name] = self._clock()

    def forget(self, name: str) -> None:
        """A destination was stopped."""
        self._averages.pop(name, None)
        self._since.pop(name, None)

    def unsettled(self, names: Iterable[str]) -> set[str]:
        """Return those that are not known for long enough, or were moved lately."""
        now = self._clock()
        return {name for name in names if now - self._since.get(name, now) < _SETTLED_S}
