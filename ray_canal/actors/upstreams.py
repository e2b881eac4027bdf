"""Upstreams that live in a store's process: each is a Fetcher with a thread of its own.

For many destinations that are mostly idle: a waiting thread costs a few KiB, a process of Ray's
60 MB and a hundredth of a core. What a fetcher raises is its own; what ends the process, ends all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ray_canal.actors.signal import Signal

_BESIDE = ("status", "interrupt")  # pass a waiting read


class Upstreams:
    """Fetchers by key. One event loop. `new`: makes a fetcher of the arguments of "make"."""

    def __init__(self, new: Callable[..., Any]) -> None:
        self._new = new
        self._hosted: dict[str, _Hosted] = {}

    async def call(self, key: str, number: int, method: str, *arguments: Any) -> Any:
        """Call number so much of this key: 0 is "make", the last one "end"; others are the
        fetcher's. Calls begin in the order of their numbers."""
        hosted = self._hosted.setdefault(key, _Hosted(key, self._new))
        await hosted.turn(number)
        if method == "end":
            del self._hosted[key]
        return await asyncio.wrap_future(hosted.submit(method, *arguments))

    def keys(self) -> list[str]:
        return list(self._hosted)


class _Hosted:
    """One fetcher: calls in order on one thread, those that must pass on another."""

    def __init__(self, key: str, new: Callable[..., Any]) -> None:
        self._new = new
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"upstream {key[:6]}")
        self._beside = ThreadPoolExecutor(1, thread_name_prefix=f"beside {key[:6]}")
        self._fetcher: Future[Any] = Future()
        self._next = 0
        self._changed = Signal()

    async def turn(self, number: int) -> None:
        """Wait until all earlier calls have begun."""
        while number != self._next:
            await self._changed.wait()
        self._next += 1
        await self._changed.wake()

    def submit(self, method: str, *arguments: Any) -> Future[Any]:
        if method == "make":
            fetcher = self._fetcher = self._thread.submit(self._new, *arguments)
            return self._thread.submit(lambda: fetcher.result() and None)  # it stays here
        if method == "end":
            self._beside.submit(lambda: self._fetcher.result().interrupt())
            closed = self._thread.submit(lambda: self._fetcher.result().close())
            self._thread.shutdown(wait=False)
            self._beside.shutdown(wait=False)
            return closed
        thread = self._beside if method in _BESIDE else self._thread
        return thread.submit(lambda: getattr(self._fetcher.result(), method)(*arguments))
