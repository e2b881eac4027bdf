"""A TCP server on its own thread and event loop, for tests whose client blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ray_canal.config import ServerConfig
from ray_canal.server.listener import TcpServer
from tests.served_destination import ServedDestination, opener

T = TypeVar("T")


class ServingThread:
    """`port` to connect to; `do` runs a coroutine beside the server."""

    def __init__(self, server: TcpServer, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self._loop = loop

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def do(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(30)


@contextmanager
def serving_thread(stores: dict[str, ServedDestination], **options: Any) -> Iterator[ServingThread]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    config = ServerConfig(**{"host": "127.0.0.1", "port": 0, **options})
    serving = ServingThread(TcpServer(config, opener(stores)), loop)
    try:
        serving.do(serving.server.start())
        yield serving
    finally:
        serving.do(serving.server.close())
        for store in stores.values():
            serving.do(store.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(120)
        loop.close()
