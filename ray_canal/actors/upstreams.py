"""A destination's fetcher as its pump sees it: a process of its own, or a thread of the store's.

The process fails alone and has a CPU to itself; each chunk costs two calls of Ray's. The thread
takes a destination without calls and with half the memory, and what ends it ends the store, too.
Either way the store's process owns what comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import ray

from ray_canal.actors import spawn
from ray_canal.actors.reserve import fetcher_of
from ray_canal.config import InstanceConfig
from ray_canal.destination.signal import answered, within
from ray_canal.limits import chunks_ahead
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.schema_record import Records
from ray_canal.model.start import ALL_CURSORS, Start, StartOptions

if TYPE_CHECKING:
    from ray_canal.actors.fetcher import Fetcher

_END_S = 2.0
_SWITCH_S = 0.0005
"""So long a thread that runs Python may keep another from it; by default a tenth of a small chunk's
latency each time."""
_ASIDE_BYTES = 512 << 10
"""From this size on, decoding takes much longer than handing it to another thread."""
T = TypeVar("T")
Found = Callable[[], Awaitable[tuple[Any, Any]]]
"""To be awaited for what a call will bring that was made already: what is said of a chunk (only a
Reading: there is none), and the chunk or its reference."""


class Upstream(Protocol):
    """Calls begin in their order; `status` and `close` pass a waiting read."""

    actor: Any
    """Whose process may stop or end by itself; None: it is ours."""
    coming: deque[int]
    """Bytes of the chunks that are read and perhaps not in the log yet, oldest first; the pump
    takes them off. 0: a small one, which nobody waits for. Empty where only another
    process knows."""

    async def open(
        self,
        cursors: tuple[LogPosition, ...],
        delivered: str,
        records: Records,
        options: StartOptions = ALL_CURSORS,
    ) -> tuple[Start, SourceIdentity, Records]:
        """See Fetcher.open."""

    def next_raw(self) -> Found:
        """See Fetcher.next_raw; the chunk as a reference."""

    def next_decoded(self) -> Found:
        """See Fetcher.next_decoded; a small chunk itself, others as a reference."""

    async def status(self, oldest: EntryPosition | None) -> Any:
        """See Fetcher.status. None: it is being closed."""

    async def close(self) -> None:
        """End it, in the middle of a read, too."""


async def upstream_of(config: InstanceConfig, *, fused: bool, within: bool) -> Upstream:
    """A new one; `within` this process. Raises ConfigError: a password is not kept any more."""
    if within:
        return ThreadUpstream(config.model_dump_json(), fused)
    return ActorUpstream(await fetcher_of(config, fused))


class ActorUpstream:
    """In a process of its own."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.coming: deque[int] = deque()

    async def open(
        self,
        cursors: tuple[LogPosition, ...],
        delivered: str,
        records: Records,
        options: StartOptions = ALL_CURSORS,
    ) -> tuple[Start, SourceIdentity, Records]:
        opened: tuple[Start, SourceIdentity, Records] = await self.actor.open.remote(
            cursors, delivered, records, options
        )
        return opened

    def next_raw(self) -> Found:
        return _awaited(self.actor.next_raw)

    def next_decoded(self) -> Found:
        return _awaited(self.actor.next_decoded)

    async def status(self, oldest: EntryPosition | None) -> Any:
        reply = self._beside(self.actor.status).remote(oldest)
        return await asyncio.wrap_future(reply.future())

    async def close(self) -> None:
        interrupted = self._beside(self.actor.interrupt).remote()
        with contextlib.suppress(asyncio.TimeoutError, ray.exceptions.RayError):
            await answered(_END_S, interrupted)
        spawn.end(self.actor)

    @staticmethod
    def _beside(method: Any) -> Any:
        return method.options(concurrency_group=spawn.CONTROL_GROUP)


def _awaited(method: Any) -> Found:
    found_ref, chunk_ref = method.options(num_returns=2).remote()

    async def found() -> tuple[Any, Any]:
        said = await found_ref
        return said if isinstance(said, tuple) else (said, chunk_ref)  # a small chunk is with it

    return found


class ThreadUpstream:
    """In this process: calls in order on one thread, those that must pass on another, and two that
    decode large chunks while the next one is read."""

    actor = None

    def __init__(self, instance_json: str, fused: bool) -> None:
        sys.setswitchinterval(_SWITCH_S)
        self.coming: deque[int] = deque()
        self._thread, self._decoders, self._beside = (
            ThreadPoolExecutor(count, thread_name_prefix=name)
            for count, name in ((1, "upstream"), (chunks_ahead(0), "decoder"), (1, "beside"))
        )
        self._fetcher: Future[Fetcher] = self._thread.submit(_new_fetcher, instance_json, fused)
        self._closed = False

    async def open(
        self,
        cursors: tuple[LogPosition, ...],
        delivered: str,
        records: Records,
        options: StartOptions = ALL_CURSORS,
    ) -> tuple[Start, SourceIdentity, Records]:
        return await self._call(lambda fetcher: fetcher.open(cursors, delivered, records, options))

    def next_raw(self) -> Found:
        called = self._submit(lambda fetcher: _kept(*fetcher.next_raw()))
        return lambda: asyncio.wrap_future(called)

    def next_decoded(self) -> Found:
        called = self._submit(self._next_decoded)

        async def found() -> tuple[Any, Any]:
            answer = await asyncio.wrap_future(called)
            return await asyncio.wrap_future(answer) if isinstance(answer, Future) else answer

        return found

    async def status(self, oldest: EntryPosition | None) -> Any:
        if self._closed:
            return None
        asked = self._beside.submit(lambda: self._fetcher.result().status(oldest))
        try:
            return await asyncio.wrap_future(asked)
        except Exception:
            if self._closed:  # meanwhile
                return None
            raise

    async def close(self) -> None:
        """The threads end by themselves, when what they are at has ended."""
        self._closed = True
        interrupted = self._beside.submit(lambda: self._fetcher.result().interrupt())
        self._thread.submit(self._last)
        self._beside.shutdown(wait=False)
        with contextlib.suppress(Exception):  # whatever keeps it from that, it ends
            await within(_END_S, asyncio.wrap_future(interrupted))

    def _last(self) -> None:
        self._thread.shutdown(wait=False)
        self._decoders.shutdown(wait=False)
        self._fetcher.result().close()

    async def _call(self, work: Callable[[Fetcher], T]) -> T:
        return await asyncio.wrap_future(self._submit(work))

    def _submit(self, work: Callable[[Fetcher], T]) -> Future[T]:
        return self._thread.submit(lambda: work(self._fetcher.result()))

    def _next_decoded(self, fetcher: Fetcher) -> tuple[Any, Any] | Future[tuple[Any, Any]]:
        from ray_canal.actors.fetcher import decoded

        reading, chunk = fetcher.next_parsed()
        if chunk is None:
            return reading, None
        if chunk[0].size_bytes < _ASIDE_BYTES:
            self.coming.append(0)
            return _kept(*decoded(reading, *chunk))
        self.coming.append(chunk[0].size_bytes)
        waiting = [chunk]
        del chunk  # it goes when it is decoded, not when its columns have been put, too
        return self._decoders.submit(lambda: _kept(*decoded(reading, *waiting.pop())))


def _new_fetcher(instance_json: str, fused: bool) -> Fetcher:
    # Where each fetcher has a process, a store's does without what they need.
    from ray_canal.actors.fetcher import Fetcher

    return Fetcher(instance_json, fused)


def _kept(said: Any, chunk: Any) -> tuple[Any, Any]:
    """What is said of a chunk, and the chunk where others can read it: large ones in the object
    store, whose owner is this process as it is of what it calls for."""
    if isinstance(said, tuple):  # a small chunk is with it
        return said
    return said, None if chunk is None else ray.put(chunk)
