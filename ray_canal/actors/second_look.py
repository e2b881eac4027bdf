"""A checksum error of a live dump may be the network's or a memory's, not the file's: the event is
read once more, over a new connection, before the destination stops for it."""

from __future__ import annotations

from ray_canal.config import SourceConfig
from ray_canal.errors import ConnectionLost, CorruptEvent


class SecondLook:
    """Remembers the place of the last corrupt event of one destination."""

    def __init__(self, source: SourceConfig) -> None:
        self._is_live = bool(source.address)
        self._seen: tuple[str | None, int | None] | None = None

    def at(self, failure: Exception) -> Exception:
        """Return what a generation's failure means: ConnectionLost, so that the next generation
        reads again, where it is a corrupt event of a server that is met for the first time; else
        the failure itself."""
        if not self._is_live or not isinstance(failure, CorruptEvent):
            return failure
        place = failure.journal_name, failure.position
        if place == self._seen:
            return failure
        self._seen = place
        return ConnectionLost(f"{failure}; it is read once more, over a new connection")
