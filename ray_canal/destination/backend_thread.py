"""Blocking calls of one backend (cursors, schema records), kept off the store's event loop.

One thread a backend, so calls run one at a time, in the order in which they were made. After a
failure that took long, calls fail at once for a while: a server that does not answer is asked every
few seconds, and nobody waits in a queue behind others that wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ray_canal.errors import InstanceNotRunning, MetaUnavailable

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)

LONG_S = 0.2
"""A failure that took longer opens the circuit breaker; a refused connection costs nobody time."""
BREAK_S = 3.0
_CLOSE_LIMIT_S = 5.0


class BackendThread:
    """Runs functions that block; `run` awaits them. One event loop."""

    def __init__(self, name: str) -> None:
        """`name`: of the thread."""
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._broken_until_s = 0.0
        self._broken = ""

    async def run(self, function: Callable[P, T], *values: P.args, **named: P.kwargs) -> T:
        """Call it in the thread, after all calls that were made before.

        A call that has begun goes on if its caller is cancelled; one that has not is left out.
        Raises what it raises; MetaUnavailable while the circuit is broken; InstanceNotRunning once
        the thread was closed.
        """
        if self._closed:
            raise InstanceNotRunning("the destination was stopped, should start first")
        self._refuse_broken()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            if reply.cancelled():
                return
            result: Any = None
            failure: BaseException | None = None
            try:
                self._refuse_broken()
                result = self._timed(lambda: function(*values, **named))
            except BaseException as error:  # told to who waits for it
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_settle, reply, result, failure)

        self._calls.put(call)
        return await reply

    def _timed(self, call: Callable[[], T]) -> T:
        began_s = time.monotonic()
        try:
            return call()
        except MetaUnavailable as error:
            ended_s = time.monotonic()
            if ended_s - began_s > LONG_S:
                self._broken, self._broken_until_s = str(error), ended_s + BREAK_S
            raise

    def _refuse_broken(self) -> None:
        left_s = self._broken_until_s - time.monotonic()
        if left_s > 0:
            raise MetaUnavailable(f"{self._broken}; it is asked again in {left_s:.1f} s")

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    async def close(self, last: Callable[[], None]) -> None:
        """Run a last function after what was called before; a thread that hangs in a call is left
        to itself."""
        if self._closed or self._thread is None:
            self._closed = True
            return
        self._broken_until_s = 0.0
        closing = asyncio.ensure_future(self.run(last))
        await asyncio.sleep(0)  # it is in the queue
        self._closed = True
        self._calls.put(None)
        done, _ = await asyncio.wait({closing}, timeout=_CLOSE_LIMIT_S)
        for task in done:
            if (error := task.exception()) is not None:
                logger.warning("%s could not be closed: %s", self._name, error)


def _settle(reply: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    if reply.done():
        return
    if failure is None:
        reply.set_result(result)
    else:
        reply.set_exception(failure)
