"""Limits that all connections share: memory for answers, and connection slots."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable


class MemoryBudget:
    """Bytes of rendered answers that wait for their readers.

    First come, first served. What is larger than the whole budget is given when nothing else is
    out, so that it passes, alone. Sizes are guesses until an answer is rendered: `correct` says
    what it became, and while that has led beyond the capacity, `settled` holds up whoever is about
    to render.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._unsettled: list[asyncio.Future[None]] = []

    @property
    def contended(self) -> bool:
        """Return whether somebody waits for bytes."""
        waiting = [*self._unsettled, *(place for _, place in self._queue)]
        return any(not place.cancelled() for place in waiting)

    def share(self, size_bytes: int) -> int:
        """Return what `take` accounts for so many bytes."""
        return min(size_bytes, self.capacity_bytes)

    async def take(self, size_bytes: int) -> int:
        """Wait for bytes. Returns what to give back."""
        share = self.share(size_bytes)
        if not self._queue and self.used_bytes + share <= self.capacity_bytes:
            self.used_bytes += share
            return share
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((share, place))
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._serve()  # those after it may fit now
            else:
                self.give(share)  # it was given in the same moment
            raise
        return share

    def correct(self, share: int, size_bytes: int) -> int:
        """Account for an answer that has become so many bytes; `share` was taken for it. Returns
        what to give back for it from now on."""
        self.used_bytes += size_bytes - share
        self._serve()
        return size_bytes

    async def settled(self) -> None:
        """Wait until the answers that are rendered fit into the budget. Never longer than they are
        being sent: they wait for nothing here."""
        while self.used_bytes > self.capacity_bytes:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._unsettled.append(place)
            await place

    def give(self, share: int) -> None:
        """Give bytes back."""
        self.used_bytes -= share
        self._serve()

    def _serve(self) -> None:
        if self.used_bytes <= self.capacity_bytes:
            settled, self._unsettled = self._unsettled, []
            for place in settled:
                if not place.done():
                    place.set_result(None)
        while self._queue:
            share, place = self._queue[0]
            if place.cancelled():
                self._queue.popleft()
                continue
            if self.used_bytes + share > self.capacity_bytes:
                return
            self._queue.popleft()
            self.used_bytes += share
            place.set_result(None)


class Places:
    """The limits on connections, and on those before their login.

    A flood of connections that do not log in displaces the oldest such ones, never one that has.
    """

    def __init__(self, connections_max: int, logins_max: int) -> None:
        self._connections_max = connections_max
        self._logins_max = logins_max
        self._pending: OrderedDict[Hashable, Callable[[], object]] = OrderedDict()
        self._admitted: set[Hashable] = set()

    @property
    def admitted(self) -> int:
        """Return the number of connections that have logged in."""
        return len(self._admitted)

    @property
    def pending(self) -> int:
        """Return the number of connections that have not logged in yet."""
        return len(self._pending)

    def enter(self, key: Hashable, displace: Callable[[], object]) -> None:
        """A new connection; `displace` ends it if a newer one needs its place."""
        if len(self._pending) >= self._logins_max:
            _, end = self._pending.popitem(last=False)
            end()
        self._pending[key] = displace

    def admit(self, key: Hashable) -> bool:
        """Count a connection as logged in. Returns False if there are too many that have."""
        self._pending.pop(key, None)
        if len(self._admitted) >= self._connections_max:
            return False
        self._admitted.add(key)
        return True

    def leave(self, key: Hashable) -> None:
        """Give back a connection's place, whichever it has."""
        self._pending.pop(key, None)
        self._admitted.discard(key)
