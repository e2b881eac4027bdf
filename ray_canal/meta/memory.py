"""Cursors in memory: for tests and demos. They end with the process."""

from __future__ import annotations

import threading

from ray_canal.meta.backend import clock_epoch, fenced, refused


class MemoryBackend:
    """A MetaBackend in memory, for tests."""

    where = "meta in memory"

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}
        self._owners: dict[str, str] = {}
        self._records: dict[str, dict[int, str]] = {}
        self._lock = threading.Lock()

    def acquire(self, destination: str, owner: str = "", after: int | None = None) -> int:
        with self._lock:
            newest = self.epoch(destination)
            is_mine = bool(owner) and self._owners.get(destination) == owner
            if after is not None and newest > after and not is_mine:
                raise fenced(destination, after, newest)
            self._owners[destination] = owner
            self._epochs[destination] = max(newest + 1, clock_epoch())
            return self._epochs[destination]

    def epoch(self, destination: str) -> int:
        return self._epochs.get(destination, 0)

    def epoch_at_once(self, destination: str) -> int | None:
        return self.epoch(destination)

    def load(self, destination: str) -> dict[int, str]:
        return dict(self._records.get(destination, {}))

    def save(self, destination: str, epoch: int, client_id: int, record: str) -> None:
        with self._lock:
            self._guard(destination, epoch)
            self._records.setdefault(destination, {})[client_id] = record

    def remove(self, destination: str, epoch: int, client_id: int) -> None:
        with self._lock:
            self._guard(destination, epoch)
            self._records.get(destination, {}).pop(client_id, None)

    def close(self) -> None:
        return None

    def _guard(self, destination: str, epoch: int) -> None:
        newest = self.epoch(destination)
        if epoch != newest:
            raise refused(destination, epoch, newest)
