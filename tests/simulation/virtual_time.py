"""An event loop whose time passes only while nobody has anything to do, with clocks to be set.

Inside `virtual_time` every clock of the `time` module shows the loop's time, work that the program
hands to threads is done at once, and nothing depends on how fast the machine is.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

EPOCH_S = 1_700_000_000.0
TURNS_MAX = 300_000


class Stuck(AssertionError):
    """Everybody waits, and no timer runs."""


class Clock:
    """`wall_offset_s`: how far the wall clock is off; an operator may step it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.wall_offset_s = EPOCH_S

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + self.wall_offset_s

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class _Selector(selectors.SelectSelector):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        self._turns += 1
        if self._turns > TURNS_MAX:
            raise Stuck(f"the loop has turned {TURNS_MAX} times")
        if timeout is not None and timeout > 0:
            self._clock.now += timeout
        elif timeout is None:
            raise Stuck("everybody waits for somebody else")
        return []  # one thread, and no socket: nothing comes from outside


class VirtualLoop(asyncio.SelectorEventLoop):
    """Threads' work is done in the loop, at once: there is one thread."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(_Selector(clock))
        self.clock = clock
        self.unexpected: list[str] = []
        """Errors that no task has taken."""
        self.set_exception_handler(self._note)

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.unexpected.append(f"{context['message']}: {context.get('exception')!r}")

    def _write_to_self(self) -> None:
        return  # nobody sleeps in a system call

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:
            future.set_exception(error)
        return future


@contextmanager
def virtual_time() -> Iterator[VirtualLoop]:
    """A loop of its own, current in this thread, with all clocks its own."""
    clock = Clock()
    names = ("monotonic", "perf_counter", "time", "sleep")
    kept = {name: getattr(time, name) for name in names}
    time.monotonic, time.perf_counter = clock.monotonic, clock.monotonic
    time.time, time.sleep = clock.wall, clock.sleep
    loop = VirtualLoop(clock)
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        for name, function in kept.items():
            setattr(time, name, function)
