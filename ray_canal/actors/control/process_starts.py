"""How often the process that several destinations share has begun.

What ends it (a fault in native code, the kernel's memory limit, a hang for which the controller
kills it) ends all of them, and may come again with the same bytes of one server's log. Of a process
that ends again and again the controller gives each destination one of its own (controller.py): then
whose fault it is goes on ending alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from ray_canal.actors.ray_internals import kv_delete, kv_get, kv_put

ENDS_MAX = 3
"""So many ends within so many seconds are often."""
WITHIN_S = 600.0


def are_often(begun_s: Sequence[float], now_s: float) -> bool:
    """Return whether a process that has begun at these times ends often."""
    return sum(0.0 <= now_s - begun < WITHIN_S for begun in begun_s) > ENDS_MAX


class Starts:
    """The records of one namespace, in Ray's key-value store: the last starts of each process."""

    def __init__(self, namespace: str) -> None:
        self._prefix = f"ray_canal:starts:{namespace}:"

    def note(self, process: str) -> None:
        """Note that it begins now."""
        begun_s = [*self._begun_s(process), time.time()][-ENDS_MAX - 1 :]
        kv_put(self._prefix + process, json.dumps(begun_s))

    def are_often(self, process: str) -> bool:
        """Return whether a process was started so often lately that something is wrong with it."""
        return are_often(self._begun_s(process), time.time())

    def forget(self, process: str) -> None:
        """Drop one that was stopped because nothing is left in it."""
        kv_delete(self._prefix + process)

    def _begun_s(self, process: str) -> list[float]:
        found = kv_get(self._prefix + process)
        return [] if found is None else list(json.loads(found))
