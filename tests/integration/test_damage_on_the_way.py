"""Bytes that are damaged between a real server and a destination, by a proxy that flips a bit."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ray_canal.config import InstanceConfig
from ray_canal.errors import CorruptEvent
from tests.dumps import instance
from tests.local_destination import ALL, LocalDestination, run, running, take
from tests.proxy import Proxy
from tests.servers import Server

TEXT = b"a row whose bytes are changed"


@pytest.mark.parametrize("times", [1, 1000])
def test_a_corrupt_event_is_read_once_more(
    mysql97: Server, tmp_path: Path, times: int
) -> None:
    """B6: damage on the way costs a new connection; damage in the file stops the destination, at
    its second reading."""
    mysql97.execute("CREATE DATABASE way", "CREATE TABLE way.t (id INT PRIMARY KEY, v TEXT)")
    try:
        with Proxy((mysql97.host, mysql97.port)) as proxy:
            config = instance(mysql97, address=proxy.address, tls={"mode": "disabled"})
            config = config.model_copy(update={"decoders": 0})
            run(read(mysql97, proxy, config, tmp_path, times), 150)
    finally:
        mysql97.execute("DROP DATABASE way")


async def read(
    server: Server, proxy: Proxy, config: InstanceConfig, folder: Path, times: int
) -> None:
    async with running(folder, config) as store:
        await store.subscribe(1, ALL)
        proxy.flip(TEXT, times)
        for number in range(5):
            server.execute(f"INSERT INTO way.t VALUES ({number}, '{TEXT.decode()}')")
        if times > 1:
            with pytest.raises(CorruptEvent, match="checksum"):
                await rows_of(store)
            return
        assert await rows_of(store) == 5
        assert (await store.status())["generations"] == 2


async def rows_of(store: LocalDestination) -> int:
    rows, deadline = 0, time.monotonic() + 120
    while rows < 5 and time.monotonic() < deadline:
        head = await take(store, 1, 1000)
        rows += 0 if head is None else head.row_count
    return rows
