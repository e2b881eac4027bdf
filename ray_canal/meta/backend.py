"""The port behind which cursors live: compare-and-set on (destination, epoch)."""

from __future__ import annotations

from typing import Protocol

from ray_canal.errors import Fenced


class MetaBackend(Protocol):
    """A durable map (destination, client id) -> text, guarded by an epoch per destination.

    An owner takes the destination by `acquire`; each of its writes names the epoch it got. A write
    under another epoch than the destination's newest is refused with Fenced and changes nothing. A
    backend that cannot be reached raises MetaUnavailable; after that a write may or may not have
    happened, and writing it again is safe.
    """

    where: str
    """What an error calls it: the file, or the server and its tables or keys."""

    def acquire(self, destination: str, owner: str = "", after: int | None = None) -> int:
        """Raise the destination's epoch by one and return it; every earlier owner is fenced.

        With `after`, only if that is the newest epoch, or `owner` (any text that nobody else has)
        has made the newest one: so who was replaced does not take it back. Else raises Fenced.
        """
        ...

    def epoch(self, destination: str) -> int:
        """The newest epoch, 0 if nobody ever acquired the destination."""
        ...

    def load(self, destination: str) -> dict[int, str]:
        """Each subscriber's record."""
        ...

    def save(self, destination: str, epoch: int, client_id: int, record: str) -> None:
        """Write one record durably. Raises Fenced."""
        ...

    def remove(self, destination: str, epoch: int, client_id: int) -> None:
        """Forget one record. Raises Fenced."""
        ...

    def close(self) -> None: ...


def fenced(destination: str, epoch: int, newest: int) -> Fenced:
    """The error of an owner whose epoch is not the newest one."""
    error = Fenced(f"epoch {epoch} was replaced by epoch {newest}: another owner has taken over")
    error.at(destination=destination)
    return error
