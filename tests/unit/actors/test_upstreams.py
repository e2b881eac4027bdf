"""Fetchers that share a process: in order, each for itself, gone when they end."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from ray_canal.actors.fetcher import Fetcher
from ray_canal.actors.upstreams import Upstreams
from ray_canal.config import InstanceConfig
from ray_canal.demo import binlog_files
from ray_canal.errors import CanalError


def config_of(*files: Path, follow: bool = False) -> str:
    source = {"files": [str(file) for file in files], "start": "earliest", "follow": follow}
    instance = {
        "destination": "x",
        "source": source,
        "chunk_bytes": 4096,
        "tsdb": {"enable": False},
    }
    return InstanceConfig.model_validate(instance).model_dump_json()


def test_calls_begin_in_the_order_of_their_numbers() -> None:
    asyncio.run(asyncio.wait_for(numbered(), 60))


async def numbered() -> None:
    upstreams = Upstreams(Fetcher)
    numbers = list(range(2, 8))
    calls = {n: asyncio.create_task(upstreams.call("a", n, "next_raw", 0.1)) for n in numbers[::-1]}
    opened = asyncio.create_task(upstreams.call("a", 1, "open", (), ""))
    await asyncio.sleep(0)
    made = await upstreams.call("a", 0, "make", config_of(binlog_files()[0]), False)
    assert made is None
    await opened
    chunks = [(await calls[n])[1] for n in numbers]
    positions = [chunk.head.position for chunk in chunks if chunk is not None]
    assert len(positions) == len(numbers)
    assert positions == sorted(set(positions))
    await upstreams.call("a", 8, "end")


def test_a_failure_is_its_own_and_a_waiting_one_can_be_ended(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(ended(tmp_path), 60))


async def ended(tmp_path: Path) -> None:
    upstreams = Upstreams(Fetcher)
    before = threading.active_count()
    await upstreams.call("good", 0, "make", config_of(binlog_files()[0], follow=True), False)
    await upstreams.call("good", 1, "open", (), "")
    await upstreams.call("bad", 0, "make", config_of(tmp_path / "none.000001"), False)
    with pytest.raises(CanalError):
        await upstreams.call("bad", 1, "open", (), "")
    reading, _ = await upstreams.call("good", 2, "next_raw", 0.1)
    assert reading.has_chunk
    number = 3
    while (await upstreams.call("good", number, "next_raw", 0.0))[1] is not None:
        number += 1
    waiting = asyncio.create_task(upstreams.call("good", number + 1, "next_raw", 60.0))
    status = await upstreams.call("good", number + 2, "status", None)
    assert status.position > 4
    assert not waiting.done()
    await upstreams.call("good", number + 3, "end")
    assert (await waiting)[1] is None
    await upstreams.call("bad", 2, "end")
    assert upstreams.keys() == []
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert threading.active_count() <= before
