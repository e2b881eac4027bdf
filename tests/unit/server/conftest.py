"""A server on a free port over the demo's binlog files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from ray_canal.config import ServerConfig
from ray_canal.demo import binlog_files
from ray_canal.server.listener import TcpServer
from tests.served_destination import Decoded, ServedDestination, decoded, opener


@pytest.fixture(scope="session")
def shop() -> Decoded:
    return decoded(binlog_files())


@asynccontextmanager
async def serving(stores: dict[str, ServedDestination], **options: Any) -> AsyncIterator[TcpServer]:
    config = ServerConfig(**{"host": "127.0.0.1", "port": 0, **options})
    server = TcpServer(config, opener(stores))
    await server.start()
    try:
        yield server
    finally:
        await server.close()
        for store in set(stores.values()):
            await store.close()


def run(
    test: Callable[[], Awaitable[None]],
    limit_s: float = 60,
    run: Callable[[Coroutine[Any, Any, None]], None] = uvloop.run,
) -> None:
    """Run a test on an event loop: by default uvloop's, as Ray runs the server's actor."""

    async def limited() -> None:
        await asyncio.wait_for(test(), limit_s)

    run(limited())
