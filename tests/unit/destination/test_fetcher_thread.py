"""An upstream in its store's process: in order, failing alone, gone when it ends."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ray_canal.binlog.chunk import ChunkInfo, DecodedChunk
from ray_canal.config import InstanceConfig
from ray_canal.demo import binlog_files
from ray_canal.destination import fetcher, fetcher_thread
from ray_canal.destination.fetcher_thread import FetcherThread
from ray_canal.errors import CanalError


def config_of(*files: Path, follow: bool = False) -> InstanceConfig:
    source = {"files": [str(file) for file in files], "start": "earliest", "follow": follow}
    instance = {
        "destination": "x",
        "source": source,
        "chunk_bytes": 4096,
        "tsdb": {"enable": False},
    }
    return InstanceConfig.model_validate(instance)


@pytest.mark.parametrize("decoder_bytes", [fetcher_thread._DECODER_BYTES, 1000])
def test_chunks_come_in_their_order_wherever_they_are_decoded(
    monkeypatch: pytest.MonkeyPatch, decoder_bytes: int
) -> None:
    monkeypatch.setattr(fetcher_thread, "_DECODER_BYTES", decoder_bytes)
    asyncio.run(asyncio.wait_for(in_order(), 120))


async def in_order() -> None:
    upstream = FetcherThread(config_of(binlog_files()[0]), True, lambda chunk: chunk)
    opened = asyncio.create_task(upstream.open((), "", ()))
    await asyncio.sleep(0)
    ahead = [upstream.next_decoded() for _ in range(6)]
    await opened
    places, decoded_bytes = [], 0
    while (found := await ahead.pop(0)()).has_chunk:
        assert isinstance(found.info, ChunkInfo)
        assert isinstance(found.payload, DecodedChunk)
        decoded_bytes += found.payload.arena.size
        places.append(found.info.head.position)
        ahead.append(upstream.next_decoded())
    assert found.report is not None
    assert found.report.finished
    assert len(places) > 10
    assert decoded_bytes
    assert places == sorted(set(places))
    await upstream.close()


def test_two_large_chunks_are_decoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one is done behind the second; they come in their order."""
    monkeypatch.setattr(fetcher_thread, "_DECODER_BYTES", 0)
    both, second = threading.Barrier(2), threading.Event()
    entered, really = itertools.count(), fetcher.decoded

    def decoded(*chunk: Any) -> Any:
        number = next(entered)
        if number < 2:
            both.wait(10)  # breaks if one thread decodes one after the other
            if number == 0:
                assert second.wait(10)
        done = really(*chunk)
        if number == 1:
            second.set()
        return done

    monkeypatch.setattr(fetcher, "decoded", decoded)
    asyncio.run(asyncio.wait_for(in_order(), 120))


def test_a_failure_is_its_own_and_a_waiting_one_can_be_ended(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(ended(tmp_path), 120))


async def ended(tmp_path: Path) -> None:
    before = threading.active_count()
    good = FetcherThread(config_of(binlog_files()[0], follow=True), True, lambda chunk: chunk)
    await good.open((), "", ())
    bad = FetcherThread(config_of(tmp_path / "none.000001"), True, lambda chunk: chunk)
    with pytest.raises(CanalError):
        await bad.open((), "", ())
    while not await is_quiet(waiting := called(good)):
        assert await waiting is not None
    assert not waiting.done()
    assert (await good.status(None)).position > 4  # beside the waiting read
    await good.close()
    assert await waiting is None
    await bad.close()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert threading.active_count() <= before


def called(upstream: FetcherThread) -> asyncio.Task[object]:
    """The next chunk, None: there was none."""

    async def chunk() -> object:
        return (await upstream.next_decoded()()).payload

    return asyncio.create_task(chunk())


async def is_quiet(waiting: asyncio.Task[object]) -> bool:
    """Whether nothing comes for a while."""
    done, _ = await asyncio.wait({waiting}, timeout=1.0)
    return not done


def test_a_status_that_is_asked_for_while_it_closes_is_no_error() -> None:
    async def asked() -> None:
        upstream = FetcherThread(config_of(binlog_files()[0]), True, lambda chunk: chunk)
        await upstream.open((), "", ())
        asking = asyncio.ensure_future(upstream.status(None))  # begins when this waits
        closing = asyncio.ensure_future(upstream.close())
        await asyncio.gather(asking, closing)
        assert await upstream.status(None) is None

    asyncio.run(asked())


class SlowOpener:
    """Stands for a fetcher whose source takes its time to be opened, or never answers."""

    at_once = most = 0
    lock = threading.Lock()
    silent = threading.Event()

    def __init__(self, config: InstanceConfig, fused: bool) -> None:
        self._answers = config.source.address != "silent:3306"

    def open(self, *given: Any) -> str:
        if not self._answers:
            self.silent.wait(60)
        with self.lock:
            SlowOpener.at_once += 1
            SlowOpener.most = max(self.most, self.at_once)
        time.sleep(0.02)
        with self.lock:
            SlowOpener.at_once -= 1
        return "opened"

    def interrupt(self) -> None:
        self.silent.set()

    def close(self) -> None:
        return


def test_a_process_opens_a_source_for_a_few_destinations_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Start 40 destinations at once, with no failure of one that gets no time; a source that is
    silent keeps nobody from another one."""
    monkeypatch.setattr(fetcher_thread, "_new_fetcher", SlowOpener)

    def upstream(address: str) -> FetcherThread:
        source = {"address": address}
        config = InstanceConfig.model_validate({"destination": "x", "source": source})
        return FetcherThread(config, True, lambda chunk: chunk)

    async def story() -> None:
        silent, live = ([upstream(f"{name}:3306") for _ in range(40)] for name in ("silent", "db"))
        waiting = [asyncio.create_task(each.open((), "", ())) for each in silent]
        found = await asyncio.gather(*(each.open((), "", ()) for each in live))
        assert found == ["opened"] * 40
        assert SlowOpener.most <= fetcher_thread.OPENINGS_MAX
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in (*silent, *live)))

    asyncio.run(asyncio.wait_for(story(), 60))
