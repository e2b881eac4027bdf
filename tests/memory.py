"""What a deployment's processes and its object store take, sampled as it runs.

A process's own memory is its anonymous pages, by share (Pss_Anon of smaps_rollup): not the
libraries' files, nor the object store that it maps, which is counted once, from the raylet.
"""

from __future__ import annotations

import threading
from collections import defaultdict

import ray
from ray._private.internal_api import get_memory_info_reply, get_state_from_address

from tests.processes import family, share_bytes

OBJECTS, UNCLEARED = "objects", "objects, cleared or not"


class Sampler:
    """`with Sampler(*roles) as peak:` samples until the end. `peak[role]`, `peak[OBJECTS]`: the
    most at any moment, in bytes, of all processes of the role together; at first, what is now."""

    def __init__(self, *roles: str, period_s: float = 0.5) -> None:
        self._roles, self._period_s = roles, period_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._state = get_state_from_address(ray.get_runtime_context().gcs_address)
        self.peak: dict[str, int] = defaultdict(int)

    def __enter__(self) -> dict[str, int]:
        self.peak.update(self.now())
        self._thread.start()
        return self.peak

    def __exit__(self, *failure: object) -> None:
        self._stop.set()
        self._thread.join()

    def objects(self) -> tuple[int, int]:
        """Bytes of the objects that somebody refers to, and of all that were not cleared away yet:
        Ray does that once a second, or when it needs the room."""
        stats = get_memory_info_reply(self._state).store_stats
        return int(stats.object_store_bytes_primary_copy), int(stats.object_store_bytes_used)

    def now(self) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for process in family():
            try:
                title = (process.cmdline() or [""])[0]
            except Exception:  # it ended meanwhile
                continue
            for role in self._roles:
                if title.startswith(role):
                    found[role] += share_bytes(process.pid, "Pss_Anon")
        found[OBJECTS], found[UNCLEARED] = self.objects()
        return found

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            for role, size in self.now().items():
                self.peak[role] = max(self.peak[role], size)
