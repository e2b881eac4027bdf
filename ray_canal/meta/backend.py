"""Port of the cursors' storage: compare-and-set on (destination, epoch)."""

from __future__ import annotations

import time
from typing import Protocol

from ray_canal.errors import EpochLost, Fenced, InstanceError


def clock_epoch() -> int:
    """The lowest epoch that may be given now: milliseconds since 1970. So an epoch is higher than
    those before it also where the newest one was forgotten: a file put back from a copy, a server
    that lost its last writes, cursors in memory."""
    return time.time_ns() // 1_000_000


class MetaBackend(Protocol):
    """A durable map (destination, client id) -> text, guarded by an epoch per destination.

    An owner takes the destination by `acquire`; each of its writes names the epoch it got. A write
    under another epoch than the destination's newest is refused and changes nothing: with Fenced,
    if the newest one is higher; with EpochLost, if it is lower, so that the backend has forgotten
    the owner's. A backend that cannot be reached raises MetaUnavailable; after that a write may or
    may not have happened, and writing it again is safe.
    """

    where: str
    """Name for error texts: the file, or the server and its tables or keys."""

    def acquire(self, destination: str, owner: str = "", after: int | None = None) -> int:
        """Give the destination a higher epoch and return it: the newest one plus one, or
        `clock_epoch()` if that is more. Every earlier owner is fenced.

        With `after`, only if no epoch above that was given, or `owner` (any text that nobody else
        has) was given the newest one: so who was replaced does not take it back. Else raises
        Fenced.
        """
        ...

    def epoch(self, destination: str) -> int:
        """The newest epoch, 0 if nobody ever acquired the destination."""
        ...

    def epoch_at_once(self, destination: str) -> int | None:
        """The same, without waiting for anything, from any thread; None: `epoch` has to be
        asked."""
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


def refused(destination: str, epoch: int, newest: int) -> InstanceError:
    """The error of an owner whose epoch is not the newest one."""
    if newest < epoch:
        return EpochLost(
            f"epoch {epoch} is not known where the cursors are, the newest there is {newest}: they "
            "were put back from a copy, or the server lost its last writes. A new epoch is taken; "
            "what was acked since then comes again"
        ).at(destination=destination)
    return fenced(destination, epoch, newest)


def fenced(destination: str, epoch: int, newest: int) -> Fenced:
    """The error of an owner that another one has replaced."""
    error = Fenced(
        f"epoch {epoch} was replaced by epoch {newest}: another owner has taken over; to take the "
        "destination back, stop it here and start it again"
    )
    error.at(destination=destination)
    return error
