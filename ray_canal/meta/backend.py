"""The port behind which cursors live: compare-and-set on (destination, epoch)."""

from __future__ import annotations

from typing import Protocol


class MetaBackend(Protocol):
    """A durable map (destination, client id) -> text, guarded by an epoch per destination.

    An owner takes the destination by `acquire`; each of its writes names the epoch it got. A write
    under an older epoch than the destination's is refused with Fenced and changes nothing.
    """

    def acquire(self, destination: str) -> int:
        """Raise the destination's epoch by one and return it; every earlier owner is fenced."""
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
