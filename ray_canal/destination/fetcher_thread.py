"""A fetcher as threads of the destination's process: no calls between processes and half the
memory; what ends it ends the destination, too."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from ray_canal.binlog.chunk import DecodedChunk, RawChunk
from ray_canal.config import InstanceConfig
from ray_canal.destination.ports import Answer, Fetched
from ray_canal.destination.wakeup import wait_with_timeout
from ray_canal.limits import chunks_ahead
from ray_canal.model.message import Payload
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.schema_record import Records
from ray_canal.model.start import ALL_CURSORS, Start, StartOptions
from ray_canal.source.port import SourceStatus

if TYPE_CHECKING:
    from ray_canal.destination.fetcher import Fetcher

_END_S = 2.0
_SWITCH_S = 0.0005
"""So long a thread that runs Python may keep another from it; by default a tenth of a small chunk's
latency each time."""
_DECODER_BYTES = 512 << 10
"""From this size on, decoding takes much longer than handing it to another thread."""
OPENINGS_MAX = 8
"""So many destinations of a process open the same source at a time. Of 200 at once, each gets so
little of the interpreter and the CPUs that reads exceed their time limit, and all take longer. A
source that does not answer keeps nobody from another one."""
_openings: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Semaphore]] = (
    WeakKeyDictionary()
)
T = TypeVar("T")
KeepChunk = Callable[[RawChunk | DecodedChunk], Payload]


class FetcherThread:
    """Calls in order on one thread, those that must pass on another, and two threads that decode
    large chunks while the next one is read. `keep`: puts a chunk where other processes can read it,
    and returns its reference."""

    def __init__(self, config: InstanceConfig, fused: bool, keep: KeepChunk) -> None:
        sys.setswitchinterval(_SWITCH_S)
        self._keep = keep
        self._address = config.source.address
        self.decoding: deque[int] = deque()
        self._thread, self._decoders, self._control = (
            ThreadPoolExecutor(count, thread_name_prefix=name)
            for count, name in ((1, "upstream"), (chunks_ahead(0), "decoder"), (1, "control"))
        )
        self._fetcher: Future[Fetcher] = self._thread.submit(_new_fetcher, config, fused)
        self._closed = False

    async def open(
        self,
        cursors: tuple[LogPosition, ...],
        delivered: str,
        records: Records,
        options: StartOptions = ALL_CURSORS,
    ) -> tuple[Start, SourceIdentity, Records]:
        async with _opening(self._address):
            called = self._submit(
                lambda fetcher: fetcher.open(cursors, delivered, records, options)
            )
            return await asyncio.wrap_future(called)

    def next_raw(self) -> Answer:
        called = self._submit(lambda fetcher: self._kept(*fetcher.next_raw()))
        return lambda: asyncio.wrap_future(called)

    def next_decoded(self) -> Answer:
        called = self._submit(self._next_decoded)

        async def answer() -> Fetched:
            found = await asyncio.wrap_future(called)
            return await asyncio.wrap_future(found) if isinstance(found, Future) else found

        return answer

    def appended(self) -> None:
        if self.decoding:
            self.decoding.popleft()

    def hurry(self) -> None:
        if self._fetcher.done() and not self._closed and self._fetcher.exception() is None:
            self._fetcher.result().hurry()

    def processes(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        return {}

    async def status(self, oldest: EntryPosition | None) -> SourceStatus | None:
        if self._closed:
            return None
        asked = self._control.submit(lambda: self._fetcher.result().status(oldest))
        try:
            return await asyncio.wrap_future(asked)
        except Exception:
            if self._closed:  # meanwhile
                return None
            raise

    async def close(self) -> None:
        """The threads end by themselves, when what they are at has ended."""
        self._closed = True
        interrupted = self._control.submit(lambda: self._fetcher.result().interrupt())
        self._thread.submit(self._last)
        self._control.shutdown(wait=False)
        with contextlib.suppress(Exception):  # whatever keeps it from that, it ends
            await wait_with_timeout(_END_S, asyncio.wrap_future(interrupted))

    def _last(self) -> None:
        self._thread.shutdown(wait=False)
        self._decoders.shutdown(wait=False)
        self._fetcher.result().close()

    def _submit(self, work: Callable[[Fetcher], T]) -> Future[T]:
        return self._thread.submit(lambda: work(self._fetcher.result()))

    def _next_decoded(self, fetcher: Fetcher) -> Fetched | Future[Fetched]:
        from ray_canal.destination.fetcher import decoded

        report, chunk = fetcher.next_parsed()
        if chunk is None:
            return Fetched(report=report)
        if chunk[0].size_bytes < _DECODER_BYTES:
            self.decoding.append(0)
            return self._kept(*decoded(report, *chunk))
        self.decoding.append(chunk[0].size_bytes)
        waiting = [chunk]
        del chunk  # it goes when it is decoded, not when its columns have been kept, too
        return self._decoders.submit(lambda: self._kept(*decoded(report, *waiting.pop())))

    def _kept(self, fetched: Fetched, chunk: RawChunk | DecodedChunk | None) -> Fetched:
        """Add the chunk where others can read it; None: there is none, or it is there already."""
        return fetched if chunk is None else replace(fetched, payload=self._keep(chunk))


def _opening(address: str) -> asyncio.Semaphore:
    here = _openings.setdefault(asyncio.get_running_loop(), {})
    return here.setdefault(address, asyncio.Semaphore(OPENINGS_MAX))


def _new_fetcher(config: InstanceConfig, fused: bool) -> Fetcher:
    # Where each fetcher has a process, a destination's does without what they need.
    from ray_canal.destination.fetcher import Fetcher

    return Fetcher(config, fused)
