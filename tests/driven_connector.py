"""An AsyncConnector with the face of a blocking one, so that both run the same tests."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from typing import Any

import pytest

import ray_canal as canal
from ray_canal.client.connector import AsyncConnector, Connector
from ray_canal.client.message import Message
from tests.loop_thread import LoopThread


@functools.cache
def _loop() -> LoopThread:
    return LoopThread()


class DrivenConnector:
    """Its calls run on an event loop in another thread; each returns when it is done."""

    def __init__(self, *arguments: Any, make: Callable[..., Any] = AsyncConnector, **named: Any):
        async def made() -> Any:
            return make(*arguments, **named)

        self._connector: AsyncConnector = _loop().run(made())
        self.destination, self.client_id = self._connector.destination, self._connector.client_id

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._connector, name)
        return lambda *arguments, **named: _loop().run(method(*arguments, **named))

    def messages(self, *arguments: Any, **named: Any) -> Generator[Message, None, None]:
        messages = self._connector.messages(*arguments, **named)

        async def step() -> Message | None:
            return await anext(messages, None)

        try:
            while (message := _loop().run(step())) is not None:
                yield message
        finally:
            _loop().run(messages.aclose())

    def __enter__(self) -> DrivenConnector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


both_connectors = pytest.mark.parametrize(
    "connector_of", [Connector, DrivenConnector], ids=["blocking", "asyncio"]
)
"""A test with this runs on both, made from a transport and a client id."""
both_connects = pytest.mark.parametrize(
    "connect",
    [canal.connect, functools.partial(DrivenConnector, make=canal.connect_async)],
    ids=["blocking", "asyncio"],
)
"""A test with this runs on what `connect` and `connect_async` return."""
