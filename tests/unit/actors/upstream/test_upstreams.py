"""The handle of a fetcher's process, over calls that answer by pickled copies, as Ray's do."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable
from typing import Any

from ray_canal.actors.upstream.upstreams import FetcherProcess, whole_call
from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk, RawChunk
from ray_canal.destination.fetcher import SMALL_CHUNK_BYTES, Fetcher
from ray_canal.destination.ports import Fetched
from ray_canal.destination.pump import FusedUpstream
from ray_canal.destination.status.stages import FetchReport
from ray_canal.model.start import ALL_CURSORS
from tests.local_destination import binlog_files, instance


class Calls:
    """An actor's handle: each call is made at once, its answer is a copy to be awaited."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    def __getattr__(self, name: str) -> Call:
        return Call(getattr(self._fetcher, name))


class Call:
    def __init__(self, method: Any, returns: int = 1) -> None:
        self._method, self._returns = method, returns

    def options(self, num_returns: int) -> Call:
        return Call(self._method, num_returns)

    def remote(self, *arguments: Any) -> Any:
        answer = pickle.loads(pickle.dumps(self._method(*arguments), protocol=5))
        if self._returns == 1:
            return _later(answer)
        return tuple(_later(each) for each in answer)


async def _done(answer: Any) -> Any:
    return answer


def _later(answer: Any) -> asyncio.Task[Any]:
    return asyncio.ensure_future(_done(answer))


async def everything(fused: bool) -> list[Fetched]:
    config = instance(binlog_files()[:1])
    fetcher = Fetcher(config, fused)
    handle = FetcherProcess(Calls(fetcher))
    await handle.open((), "", (), ALL_CURSORS)
    found = []
    while (fetched := await (handle.next_decoded if fused else handle.next_raw)()()).has_chunk:
        found.append(fetched)
    fetcher.close()
    assert fetched.report is not None
    assert fetched.report.finished
    assert fetched.payload is None
    return found


def test_small_chunks_come_with_their_info_and_others_as_references() -> None:
    async def run() -> None:
        found = await everything(fused=True)
        assert len(found) > 1
        for each in found:
            assert isinstance(each.info, ChunkInfo)
            if isinstance(each.payload, Awaitable):
                assert (await each.payload).arena.size > SMALL_CHUNK_BYTES
            else:
                assert isinstance(each.payload, DecodedChunk)
                assert each.payload.arena.size <= SMALL_CHUNK_BYTES

    asyncio.run(run())


def test_raw_chunks_are_references_always() -> None:
    async def run() -> None:
        found = await everything(fused=False)
        assert found
        for each in found:
            assert each.info is None
            assert isinstance(each.payload, Awaitable)
            assert isinstance(await each.payload, RawChunk)

    asyncio.run(run())


def test_a_fused_upstream_passes_on_what_the_process_brings() -> None:
    async def run() -> None:
        config = instance(binlog_files()[:1])
        fetcher = Fetcher(config, True)
        upstream = FusedUpstream(config, FetcherProcess(Calls(fetcher)))
        await upstream.open((), "", (), ALL_CURSORS)
        fetched = await upstream.next()()
        assert fetched.info is not None
        added = await upstream.add(fetched.info)
        fetcher.close()
        assert added.info.stage_seconds["buffer"] >= 0

    asyncio.run(run())


def test_handing_a_chunk_over_is_work_of_the_fetcher() -> None:
    assert whole_call(FetchReport(True, False, 0.1, 0.2), 1.0) == FetchReport(True, False, 0.8, 0.2)
    assert whole_call(FetchReport(True, False, 0.1, 2.0), 2.0) == FetchReport(True, False, 0.1, 2.0)
