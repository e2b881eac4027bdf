"""Classify the failure of a dump. A checksum error may be the network's or a memory's, not the
file's: the event is read once more, over a new connection, before the destination stops for it. And
what a server says as it ends a dump (its log was reset, a file is gone, it cannot read it, it is
another server now) is of the dump, not of a cursor."""

from __future__ import annotations

from ray_canal.config import SourceConfig
from ray_canal.errors import UNUSABLE_CURSOR, ConnectionLost, CorruptEvent, SourceError


def of_reading(failure: Exception) -> Exception:
    """Return what a failure means that ended a reading: ConnectionLost where the source ended it.
    What that means for the cursors is decided, and told, as it is opened again (source.on_reset,
    source.on_purged)."""
    if not isinstance(failure, UNUSABLE_CURSOR) and type(failure) is not SourceError:
        return failure
    return ConnectionLost(f"{failure}; it is looked at again where the cursors lie")


class SecondLook:
    """Remembers the place of the last corrupt event of one destination."""

    def __init__(self, source: SourceConfig) -> None:
        self._is_live = bool(source.address)
        self._seen: tuple[str | None, int | None] | None = None

    def at(self, failure: Exception, *, reading: bool) -> Exception:
        """Return what a generation's failure means: ConnectionLost, so that the next generation
        reads again, where it is a corrupt event of a server that is met for the first time, or
        ended a `reading` (see of_reading); else the failure itself."""
        if reading:
            failure = of_reading(failure)
        if not self._is_live or not isinstance(failure, CorruptEvent):
            return failure
        place = failure.journal_name, failure.position
        if place == self._seen:
            return failure
        self._seen = place
        return ConnectionLost(f"{failure}; it is read once more, over a new connection")
