"""Upstreams of Ray's actors and tasks: a fetcher in a process of its own, and the split upstream.

    fetcher.next_raw ─report──┐
         raw ref ─────────────┼─> parser.parse ─ref─> decode task ─info─> buffer ─> the log
                              └──────────────────────────^    └──decoded ref──────────^

The fetcher process fails alone and has a CPU to itself; each chunk costs two calls of Ray's. The
destination's process makes all calls, so it owns what comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import ray

from ray_canal.actors.answers import answered
from ray_canal.actors.log_settings import log_terms
from ray_canal.actors.placement import CONTROL_GROUP, ask_alive
from ray_canal.actors.upstream import stages
from ray_canal.binlog.chunk import ChunkInfo
from ray_canal.config import InstanceConfig
from ray_canal.destination.ports import Answer, Fetched, FetcherCalls
from ray_canal.destination.status.stages import FetchReport
from ray_canal.errors import InstanceNotRunning
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.model.position import EntryPosition, LogPosition, SourceIdentity
from ray_canal.model.schema_record import Records
from ray_canal.model.start import ALL_CURSORS, Start, StartOptions, begun
from ray_canal.source.port import SourceStatus

_END_S = 2.0


class FetcherProcess:
    """The handle of a fetcher actor. See destination/ports.py `FetcherCalls`."""

    decoding: Sequence[int] = ()

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def open(
        self,
        cursors: tuple[LogPosition, ...],
        delivered: str,
        records: Records,
        options: StartOptions = ALL_CURSORS,
    ) -> tuple[Start, SourceIdentity, Records]:
        opened: tuple[Start, SourceIdentity, Records] = await self._actor.open.remote(
            cursors, delivered, records, options
        )
        return opened

    def next_raw(self) -> Answer:
        return _answer(self._actor.next_raw)

    def next_decoded(self) -> Answer:
        return _answer(self._actor.next_decoded)

    def appended(self) -> None:
        """Only the fetcher's process knows what is being decoded."""

    def hurry(self) -> None:
        """A call for each get would cost more than a linger."""

    def processes(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        return {"fetcher": partial(_is_alive, self._actor)}

    async def status(self, oldest: EntryPosition | None) -> SourceStatus | None:
        reply = self._control(self._actor.status).remote(oldest)
        with contextlib.suppress(ray.exceptions.RayError):
            found: SourceStatus = await asyncio.wrap_future(reply.future())
            return found
        return None

    async def close(self) -> None:
        interrupted = self._control(self._actor.interrupt).remote()
        with contextlib.suppress(asyncio.TimeoutError, ray.exceptions.RayError):
            await answered(_END_S, interrupted)
        stages.end(self._actor)

    @staticmethod
    def _control(method: Any) -> Any:
        return method.options(concurrency_group=CONTROL_GROUP)


def _answer(method: Any) -> Answer:
    fetched_ref, chunk_ref = method.options(num_returns=2).remote()

    async def answer() -> Fetched:
        fetched: Fetched = await fetched_ref
        if not fetched.has_chunk or fetched.payload is not None:  # a small chunk is in it
            return fetched
        return replace(fetched, payload=chunk_ref)

    return answer


def _is_alive(actor: Any) -> Awaitable[object]:
    return asyncio.wrap_future(ask_alive(actor).future())


def whole_call(report: FetchReport, took_s: float) -> FetchReport:
    """Return the times of a call of the fetcher that took so long in all: what Ray does there to
    hand a chunk over is the fetcher's work, too."""
    return replace(report, busy_s=max(report.busy_s, took_s - report.waiting_s))


class SplitUpstream:
    """Parser and transaction buffer are actors, decoders are tasks on any node. See
    destination/ports.py `Upstream`."""

    calls_ahead = 1
    decoding_bytes = 0

    def __init__(self, config: InstanceConfig, fetcher: FetcherCalls) -> None:
        self._config = config
        self._fetcher = fetcher
        self._decode = stages.decode_task()
        self._terms = log_terms()
        self._parser: Any = None
        self._buffer: Any = None

    async def open(
        self,
        cursors: tuple[LogPosition, ...],
        delivered: str,
        records: Records,
        options: StartOptions,
    ) -> tuple[Start, SourceIdentity, Records]:
        start, identity, _ = await self._fetcher.open(cursors, delivered, records, options)
        position = start.position
        self._parser = stages.parser(self._config.at(identity.address))
        self._buffer = stages.transaction_buffer(self._config, position, position.gtid)
        at = cursors or begun(options)
        new: Records = await self._parser.begin.remote(at, records, start, identity)
        return start, identity, new

    def next(self) -> Answer:
        began_s = time.perf_counter()
        answer = self._fetcher.next_raw()

        async def fetched() -> Fetched:
            raw = await answer()
            report = raw.report and whole_call(raw.report, time.perf_counter() - began_s)
            if not raw.has_chunk:
                return Fetched(report=report)
            parsed_ref = self._parser.parse.remote(raw.payload)
            info_ref, decoded_ref = self._decode.remote(raw.payload, parsed_ref, self._terms)
            return Fetched(report=report, info=info_ref, payload=decoded_ref)

        return fetched

    async def add(self, info: ChunkInfo | Awaitable[ChunkInfo]) -> LogChunk:
        """A decode task may wait long for a CPU; for longer, its worker is taken for stopped."""
        limit_s = self._config.decode_timeout_s
        reply = self._buffer.add.remote(info)
        try:
            added: LogChunk = await answered(limit_s, reply)
            return added
        except asyncio.TimeoutError:
            ray.cancel(info, force=True)  # a worker that runs, but hangs, keeps no CPU
            raise InstanceNotRunning(
                f"a chunk was not decoded in {limit_s:g} s (decode_timeout_s): no CPU was free for "
                "it, or its worker was stopped"
            ) from None

    def appended(self) -> None:
        """Nobody waits for what is being decoded elsewhere."""

    def hurry(self) -> None:
        """A chunk costs more than a linger on its way through actors and tasks."""

    def processes(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """Return by process, as errors name it, a call that it answers while it lives."""
        own = {"parser": self._parser, "buffer": self._buffer}
        found = {name: partial(_is_alive, one) for name, one in own.items() if one is not None}
        return {**self._fetcher.processes(), **found}

    async def status(self, oldest: EntryPosition | None) -> SourceStatus | None:
        return await self._fetcher.status(oldest)

    async def close(self) -> None:
        await self._fetcher.close()
        for stage in (self._parser, self._buffer):
            if stage is not None:
                stages.end(stage)
