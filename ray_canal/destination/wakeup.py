"""How calls of an actor wait for something to change: no lock, so who waits may be cancelled at any
moment. (A condition around `wait_for` is not so: cancelled in the moment of its timeout, a waiter
takes the lock with it, and then nobody wakes any more.)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

NEVER = float("inf")
_SLICE_S = 1.0
_WAKING_S = 5.0
T = TypeVar("T")


def seen(task: asyncio.Future[Any]) -> None:
    """Take a task's failure as seen (a done callback), so that asyncio does not log it where
    nobody waits for the task any more."""
    if not task.cancelled():
        task.exception()


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work that goes on to its end if its caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(seen)
    return await asyncio.shield(task)


async def wait_with_timeout(limit_s: float, awaited: Awaitable[T]) -> T:
    """Await it, and return its result. Raises asyncio.TimeoutError after `limit_s` in which this
    process ran.

    A process that was stopped (or whose machine slept) finds its patience at an end in the moment
    in which it goes on, before any answer can come: that time is not counted.

    asyncio.wait_for, before Python 3.12, forgets that it was cancelled when what it waits for ends
    in the same moment; a loop around it then never ends."""
    work = asyncio.ensure_future(awaited)
    left_s, has_slept = limit_s, False
    try:
        while True:
            slice_s, began_s = min(left_s, _SLICE_S), time.monotonic()
            done, _ = await asyncio.wait({work}, timeout=slice_s)
            left_s -= slice_s
            if time.monotonic() - began_s > slice_s + _SLICE_S and not has_slept:
                # Whoever is to answer may have slept, too. (A machine that thrashes is late every
                # time: once is enough.)
                has_slept, left_s = True, max(left_s, min(limit_s, _WAKING_S))
            if done or left_s <= 0:
                break
    finally:
        if not work.cancel() and not work.cancelled():
            work.exception()  # has been looked at, also when this was cancelled
    if not done:
        raise asyncio.TimeoutError
    return work.result()


class Wakeup:
    """A change that calls of one event loop wait for."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    async def wake(self) -> None:
        """Let everybody who waits now go on."""
        happened, self._next = self._next, None
        if happened is not None:
            happened.set_result(None)

    async def wait(self, deadline: float = NEVER) -> bool:
        """Wait for any change; False when the deadline (monotonic seconds) came first."""
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        # Of many who wait for one future, none may cancel it: asyncio.wait does not.
        done, _ = await asyncio.wait({self._next}, timeout=None if deadline == NEVER else left_s)
        return bool(done)
