"""A second connection to the cursors' file says yes, or leaves the question to the first one."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

from ray_canal.config import MetaConfig
from ray_canal.destination.ownership import Claim, Ownership
from ray_canal.destination.second_reader import SecondReader


def test_it_answers_while_a_write_waits(tmp_path: Path) -> None:
    async def go() -> None:
        config = MetaConfig(path=str(tmp_path / "meta.db"))
        ownership, reader = Ownership("orders", config, Claim()), SecondReader("orders", config)
        await ownership.open()
        epoch = await ownership.acquire()
        writer = sqlite3.connect(config.path, isolation_level=None)
        writer.execute("begin immediate")  # whoever writes now waits
        before_s = time.monotonic()
        at_s = await reader.newest_at(epoch)
        assert at_s is not None
        assert before_s <= at_s <= time.monotonic()
        assert await reader.newest_at(epoch - 1) is None
        writer.execute("rollback")
        writer.close()
        successor = Ownership("orders", config, Claim())
        await successor.open()
        newer = await successor.acquire()
        assert await reader.newest_at(epoch) is None
        assert await reader.newest_at(newer) is not None
        for each in (reader, successor, ownership):
            await each.close()

    asyncio.run(go())


def test_it_says_nothing_of_a_file_that_is_gone_or_of_another_backend(tmp_path: Path) -> None:
    async def go() -> None:
        config = MetaConfig(path=str(tmp_path / "meta.db"))
        reader = SecondReader("orders", config)
        assert await reader.newest_at(0) is None  # it makes no file
        assert not Path(config.path).exists()
        ownership = Ownership("orders", config, Claim())
        await ownership.open()
        epoch = await ownership.acquire()
        assert await reader.newest_at(epoch) is not None
        Path(config.path).rename(tmp_path / "moved.db")
        assert await reader.newest_at(epoch) is None
        assert await SecondReader("orders", MetaConfig(backend="memory")).newest_at(epoch) is None
        await reader.close()
        await ownership.close()

    asyncio.run(go())


def test_an_owner_confirms_while_its_ack_waits_for_the_disk(tmp_path: Path) -> None:
    async def go() -> None:
        config = MetaConfig(path=str(tmp_path / "meta.db"))
        ownership = Ownership("orders", config, Claim())
        await ownership.open()
        epoch = await ownership.acquire()
        writer = sqlite3.connect(config.path, isolation_level=None)
        writer.execute("begin immediate")
        ack = asyncio.ensure_future(ownership.remove(epoch, 7))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(ownership.confirm(epoch, time.monotonic()), 5)
        assert not ack.done()
        writer.execute("rollback")
        writer.close()
        await ack
        await ownership.close()

    asyncio.run(go())
