"""An event loop whose time passes only while nobody has anything to do, with clocks to be set.

Inside `virtual_time` every clock of the `time` module shows the loop's time, work that the program
hands to threads is done at once, and nothing depends on how fast the machine is.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import time
from collections import deque
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


class _Due(float):
    """A callback, and when it is due. It is that number, which the heap compares fast."""

    __slots__ = ("args", "callback", "context", "gone")
    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: contextvars.Context
    gone: bool

    def cancel(self) -> None:
        self.gone = True

    def cancelled(self) -> bool:
        return self.gone

    def when(self) -> float:
        return float(self)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Threads' work is done in the loop, at once: there is one thread, and no socket, so nothing
    comes from outside. What asyncio does for others at each turn is left out: a life has thousands.
    """

    _stopping: bool

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.unexpected: list[str] = []
        """Errors that no task has taken."""
        self._turns = 0
        self._soon: deque[_Due] = deque()
        self._timers: list[_Due] = []
        self.set_exception_handler(self._note)

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.unexpected.append(f"{context['message']}: {context.get('exception')!r}")

    def time(self) -> float:
        return self.clock.now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        due = _due(self.clock.now, callback, args, context)
        self._soon.append(due)
        return due

    call_soon_threadsafe = call_soon

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        due = _due(when, callback, args, context)
        heapq.heappush(self._timers, due)
        return due

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_at(self.clock.now + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """Do what is to be done now; time passes where that is nothing."""
        self._turns += 1
        if self._turns > TURNS_MAX:
            raise Stuck(f"the loop has turned {TURNS_MAX} times")
        soon, timers, clock = self._soon, self._timers, self.clock
        while timers and timers[0].gone:
            heapq.heappop(timers)
        if not soon and not self._stopping:
            if not timers:
                raise Stuck("everybody waits for somebody else")
            clock.now = max(clock.now, float(timers[0]))
        while timers and timers[0] <= clock.now:
            soon.append(heapq.heappop(timers))
        for _ in range(len(soon)):
            due = soon.popleft()
            if not due.gone:
                self._do(due)

    def _do(self, due: _Due) -> None:
        try:
            due.context.run(due.callback, *due.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            message = f"Exception in callback {due.callback}"
            self.call_exception_handler({"message": message, "exception": error})

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:
            future.set_exception(error)
        return future


def _due(when: float, callback: Any, args: tuple[Any, ...], context: Any) -> _Due:
    due = _Due(when)
    due.callback, due.args, due.gone = callback, args, False
    due.context = contextvars.copy_context() if context is None else context
    return due


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
