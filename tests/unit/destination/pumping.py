"""What a log pipeline does with a pump, without a log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ray_canal.destination.pump import Pump
from ray_canal.log.transaction_buffer import LogChunk


async def pumped(
    pump: Pump, append: Callable[[LogChunk], None], room: Callable[[int], Awaitable[None]]
) -> None:
    """Pump until the source ends. Raises what a stage or `append` raises."""

    async def fill() -> None:
        while (pulled := await pump.next()) is not None:
            append(pulled[0])
            pump.appended(pulled[0])

    tasks: list[asyncio.Task[Any]] = [
        asyncio.create_task(pump.run(room)),
        asyncio.create_task(fill()),
    ]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def nothing(chunk: LogChunk, payload: Any) -> None:
    """Nothing has to be durable before a chunk is in a log."""


def noted(chunk: LogChunk) -> None:
    """Nobody counts chunks."""
