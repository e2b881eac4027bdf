"""Async code that is run by a caller who blocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ray_canal.destination.blocking import complete


async def at_once(value: int) -> int:
    return value


def test_it_returns_what_the_coroutine_returns() -> None:
    async def work() -> int:
        return await at_once(1) + await at_once(2)

    assert complete(work()) == 3


def test_it_raises_what_the_coroutine_raises() -> None:
    async def work() -> None:
        raise KeyError("it failed")

    with pytest.raises(KeyError, match="it failed"):
        complete(work())


def test_steps_of_a_generator_are_run() -> None:
    async def numbers() -> AsyncIterator[int]:
        yield await at_once(1)

    found = numbers()
    assert complete(found.__anext__()) == 1  # type: ignore[arg-type]
    with pytest.raises(StopAsyncIteration):
        complete(found.__anext__())  # type: ignore[arg-type]


def test_what_waits_for_an_event_loop_is_ended_and_told() -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError, match="waits for an event loop"):
        complete(work())
    assert ended == [True]
