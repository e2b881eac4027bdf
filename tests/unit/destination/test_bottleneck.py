"""The stage that limits a destination that runs: one is held back, and the status has to name it.

A real destination over the demo's files; where its pump has decoders, they are threads here. The
stage that is held back takes a hundred times as long as it needs.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ray_canal.binlog import decode as binlog_decode
from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk, RawChunk
from ray_canal.config import InstanceConfig
from ray_canal.destination import fetcher
from ray_canal.destination.fetcher_thread import FetcherThread
from ray_canal.destination.log_pipeline import LogPipeline
from ray_canal.destination.parsing import begin, event_parser
from ray_canal.destination.ports import Answer, Fetched, Upstream
from ray_canal.destination.pump import FusedUpstream
from ray_canal.destination.status.bottleneck import bottleneck
from ray_canal.destination.status.diagnosis import diagnose
from ray_canal.log.transaction_buffer import LogChunk
from ray_canal.source.files import BinlogFiles
from tests.local_destination import ALL, instance, run, running
from tests.local_runtime import LocalRuntime

DECODERS = 8
"""Of which the machine has a CPU for one: the others wait, and are not busy."""
HELD_S = 0.1
IN_A_ROW = 10
AS_IF_BEHIND = {"lag_bytes": 1 << 30, "connected": True}
"""Of a server; of files nobody knows how much there is to read."""


class SplitInThreads(FusedUpstream):
    """A fetcher that hands out raw chunks, a parser, decoders: what upstreams.py has as actors."""

    calls_ahead = 1

    def __init__(self, config: InstanceConfig) -> None:
        super().__init__(config, FetcherThread(config, False, lambda chunk: chunk))
        self._parser = event_parser(config)
        self._parsing, self._decoding = ThreadPoolExecutor(1), ThreadPoolExecutor(1)

    async def open(self, cursors: Any, delivered: str, records: Any, options: Any) -> Any:
        start, identity, _ = await super().open(cursors, delivered, records, options)
        return start, identity, begin(self._parser, cursors, records, start, identity)

    def next(self) -> Answer:
        answer = self._fetcher.next_raw()

        async def fetched() -> Fetched:
            raw = await answer()
            if raw.payload is None:
                return Fetched(report=raw.report)
            info, payload = self._decoded(raw.payload)  # type: ignore[arg-type]
            return Fetched(report=raw.report, info=info, payload=payload)

        return fetched

    def _decoded(self, raw: RawChunk) -> tuple[Awaitable[ChunkInfo], Awaitable[DecodedChunk]]:
        parsed = asyncio.wrap_future(self._parsing.submit(self._parser.parse, raw))

        async def decoded() -> tuple[ChunkInfo, DecodedChunk]:
            loop, given = asyncio.get_running_loop(), await parsed
            return await loop.run_in_executor(self._decoding, binlog_decode.decode, raw, given)

        task = asyncio.create_task(decoded())

        async def part(number: int) -> Any:
            return (await task)[number]

        return asyncio.ensure_future(part(0)), asyncio.ensure_future(part(1))

    async def add(self, info: ChunkInfo | Awaitable[ChunkInfo]) -> LogChunk:
        return await super().add(info if isinstance(info, ChunkInfo) else await info)

    async def close(self) -> None:
        await super().close()
        self._parsing.shutdown(wait=False, cancel_futures=True)
        self._decoding.shutdown(wait=False, cancel_futures=True)


class SplitRuntime(LocalRuntime):
    """Its destinations have decoders."""

    def decoders(self, config: InstanceConfig) -> int:
        return config.decoders or 0

    async def upstream(self, config: InstanceConfig) -> Upstream:
        return SplitInThreads(config) if config.decoders else await super().upstream(config)


def held(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every chunk spend HELD_S in a stage."""

    def slow(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*arguments: Any, **named: Any) -> Any:
            time.sleep(HELD_S)
            return method(*arguments, **named)

        return call

    if stage == "fetch":
        monkeypatch.setattr(BinlogFiles, "read", slow(BinlogFiles.read))
    elif stage == "decode":
        monkeypatch.setattr(binlog_decode, "measure", slow(binlog_decode.measure))
    else:
        append = LogPipeline.append

        async def later(*arguments: Any) -> None:
            await asyncio.sleep(HELD_S)
            await append(*arguments)

        monkeypatch.setattr(LogPipeline, "append", later)


@pytest.mark.parametrize("decoders", [0, DECODERS])
@pytest.mark.parametrize("stage", ["fetch", "decode", "store"])
def test_the_stage_that_is_held_back_is_named(
    stage: str, decoders: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2: by `status` and by `explain`, whether one process does all or decoders their part."""
    held(stage, monkeypatch)

    fetcher.load_everything()  # kernels that load are decoding, too

    async def story() -> None:
        config = instance(decoders=decoders)
        async with running(tmp_path, config, SplitRuntime()) as one:
            await one.subscribe(1, ALL)
            named = 0
            while named < IN_A_ROW:
                await asyncio.sleep(0.02)
                status = {**await one.status(), **AS_IF_BEHIND}
                assert status["state"] == "running"
                limit = bottleneck(status)
                named = named + 1 if limit and limit.stage == stage else 0
            assert diagnose(status, await one.subscribers()).stage == stage

    run(story())
