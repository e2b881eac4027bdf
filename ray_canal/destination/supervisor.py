"""Repeats what may fail: the state that others see, and the pauses between attempts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from ray_canal.destination.failures import error_text
from ray_canal.destination.wakeup import Wakeup, wait_with_timeout
from ray_canal.logs import tell

logger = logging.getLogger(__name__)

BACKOFF_MIN_S = 0.2

STARTING, RUNNING, IDLE = "starting", "running", "idle"
FINISHED, FAILED, STOPPED = "finished", "failed", "stopped"

Attempt = Callable[[], Awaitable[bool]]
Failed = Callable[[Exception], Awaitable[bool]]
End = Callable[[], Awaitable[None]]


class Backoff:
    """Pauses that double from one failure to the next, up to `most_s`."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self.reset()

    def reset(self) -> None:
        """The next pause is a short one again."""
        self._next_s = BACKOFF_MIN_S

    def next(self) -> float:
        """Return the pause after one more failure, in seconds."""
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, self._most_s)
        return pause_s

    def lasted(self, seconds: float) -> None:
        """Note for how long the work had gone on that failed now: a long time begins the pauses
        again."""
        if seconds > 10 * self._next_s:
            self.reset()


class Supervisor:
    """State of a destination, and the loop that starts it again. `changed` wakes whoever waits for
    another state."""

    def __init__(self, changed: Wakeup, backoff_max_s: float) -> None:
        self._changed = changed
        self._backoff = Backoff(backoff_max_s)
        self._retry = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._is_over = False
        self.state = STARTING
        self.failure: Exception | None = None

    async def set(self, state: str, failure: Exception | None = None) -> None:
        """Enter a state."""
        if state != self.state:
            error = None if failure is None else error_text(failure)
            tell(logger, "state", "it is %s", state, state=state, error=error)
        self.state, self.failure = state, failure
        await self._changed.wake()

    def retry_now(self) -> None:
        """End the pause: what has failed may succeed now."""
        self._retry.set()

    @property
    def is_to_retry(self) -> bool:
        """Return whether `retry_now` was called during this attempt."""
        return self._retry.is_set()

    @property
    def has_given_up(self) -> bool:
        """Return whether it has failed and trying again cannot help; else subscribers wait for the
        recovery."""
        return self.state == FAILED and not getattr(self.failure, "retryable", False)

    async def give_up(self, error: Exception) -> None:
        """End the life for good, with this failure."""
        self._is_over = True
        if self._life is not None:
            self._life.cancel()
        await self.set(FAILED, error)

    def begin(self, attempt: Attempt, failed: Failed, end: End) -> None:
        """Begin a life in a task of its own; see `run`."""
        self._is_over = False
        self._life = asyncio.create_task(self.run(attempt, failed, end))

    async def end(self) -> None:
        """Return when the life that was begun is over."""
        self._is_over = True
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)

    async def run(self, attempt: Attempt, failed: Failed, end: End) -> None:
        """Repeat `attempt` until it returns True, or `failed`, which is told of each failure,
        returns True; `end` follows each attempt."""
        self._backoff.reset()
        while not self._is_over:  # an attempt may take its own end for one that was asked of it
            began = time.monotonic()
            self._retry.clear()
            try:
                if await attempt():
                    return
                continue
            except Exception as error:
                if await failed(error):
                    return
            finally:
                await end()
            self._backoff.lasted(time.monotonic() - began)
            with contextlib.suppress(asyncio.TimeoutError):
                await wait_with_timeout(self._backoff.next(), self._retry.wait())
