"""A spare: a process that has everything loaded and waits to become a destination's fetcher.

The start of a fetcher's process is most of a recovery: the interpreter, Ray, libraries and kernels
from their cache, seconds of CPU one after the other. So the controller keeps one such process
ready on each node that needs fetchers (spare_pool.py).

A spare is owned by nobody, so that it outlives the controller, and who took it must not be
survived by it: a free one lives as long as its name is in Ray's key-value store, one that was taken
as long as somebody asks whether it is alive (pump.py does, every few seconds).
"""

from __future__ import annotations

import contextlib
import threading
import time

import ray

from ray_canal.actors.priority import as_ray_itself
from ray_canal.actors.upstream import fetcher, spare_record
from ray_canal.destination.fetcher import load_everything
from ray_canal.errors import InstanceRestarted

_LEASE_S = 60.0
_CHECK_PERIOD_S = 5.0


class FetcherActor(fetcher.FetcherActor):
    """Named so that the process is called what it becomes."""

    def __init__(self, name: str, node: str) -> None:
        as_ray_itself()
        self._name, self._node = name, node
        self._taken = False
        self._asked_at = time.monotonic()
        type(self).__name__ = "Spare"  # the process's title after its next call
        load_everything()
        spare_record.announce(node, name)
        threading.Thread(target=self._watch, daemon=True).start()

    def adopt(self, instance_json: str, fused: bool, told: dict[str, str]) -> None:
        """Be the fetcher of this destination from now on. Raises InstanceRestarted: it is another
        one's."""
        if self._taken:  # by who found it while this caller's process stood still
            raise InstanceRestarted("the spare process is the fetcher of another destination")
        self.remember(told)
        self._taken = True
        type(self).__name__ = "FetcherActor"
        super().__init__(instance_json, fused)

    def alive(self) -> None:
        """Answer, and live on."""
        self._asked_at = time.monotonic()
        super().alive()

    def _watch(self) -> None:
        """Give the process its title by a call of it, then end it when nobody asks for it."""
        with contextlib.suppress(Exception):  # Ray's head does not answer: the next call gives it
            ray.get_runtime_context().current_actor.alive.remote()
        while True:
            time.sleep(_CHECK_PERIOD_S)
            with contextlib.suppress(Exception):  # Ray's head does not answer: the next look comes
                if not self._taken and spare_record.free_name(self._node) == self._name:
                    self._asked_at = time.monotonic()
                if time.monotonic() - self._asked_at > _LEASE_S:
                    ray.kill(ray.get_runtime_context().current_actor)
                    return
