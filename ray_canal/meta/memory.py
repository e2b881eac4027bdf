"""Cursors in memory: for tests and demos. They end with the process."""

from __future__ import annotations

from ray_canal.errors import Fenced


class MemoryBackend:
    """See MetaBackend."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}
        self._records: dict[str, dict[int, str]] = {}

    def acquire(self, destination: str) -> int:
        self._epochs[destination] = self._epochs.get(destination, 0) + 1
        return self._epochs[destination]

    def load(self, destination: str) -> dict[int, str]:
        return dict(self._records.get(destination, {}))

    def save(self, destination: str, epoch: int, client_id: int, record: str) -> None:
        self._guard(destination, epoch)
        self._records.setdefault(destination, {})[client_id] = record

    def remove(self, destination: str, epoch: int, client_id: int) -> None:
        self._guard(destination, epoch)
        self._records.get(destination, {}).pop(client_id, None)

    def close(self) -> None:
        return None

    def _guard(self, destination: str, epoch: int) -> None:
        newest = self._epochs.get(destination, 0)
        if epoch != newest:
            raise Fenced(f"epoch {epoch} was replaced by epoch {newest}").at(
                destination=destination
            )
