"""Turns: one call at a time for a subscriber; who connects ends a waiting get."""

from __future__ import annotations

import asyncio

import pytest

from ray_canal.canal.session import Identity
from ray_canal.server.turns import Superseded, Turns
from tests.unit.server.conftest import run

ONE, OTHER = Identity("orders", 1), Identity("orders", 2)


async def sleeping(seconds: float, log: list[str], name: str) -> str:
    log.append(f"{name} begins")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        await asyncio.sleep(0.01)  # gives something back
        log.append(f"{name} ended")
        raise
    log.append(f"{name} done")
    return name


def test_gets_wait_for_each_other_and_others_do_not() -> None:
    async def test() -> None:
        turns, log = Turns(), []  # type: ignore[var-annotated]
        first = asyncio.ensure_future(turns.get(ONE, sleeping(0.05, log, "a")))
        second = asyncio.ensure_future(turns.get(ONE, sleeping(0, log, "b")))
        assert await turns.get(OTHER, sleeping(0, log, "c")) == "c"
        assert (await first, await second) == ("a", "b")
        assert log.index("a done") < log.index("b begins")
        assert log.index("c done") < log.index("a done")

    run(test)


def test_who_connects_ends_the_get_and_waits_until_it_has_given_back() -> None:
    async def test() -> None:
        turns, log = Turns(), []  # type: ignore[var-annotated]
        get = asyncio.ensure_future(turns.get(ONE, sleeping(60, log, "get")))
        await asyncio.sleep(0.01)
        assert await turns.connect(ONE, sleeping(0, log, "rollback")) == "rollback"
        with pytest.raises(Superseded):
            await get
        assert log == ["get begins", "get ended", "rollback begins", "rollback done"]

    run(test)


def test_a_subscription_is_not_ended() -> None:
    async def test() -> None:
        turns, log = Turns(), []  # type: ignore[var-annotated]
        first = asyncio.ensure_future(turns.connect(ONE, sleeping(0.02, log, "a")))
        await asyncio.sleep(0)
        await turns.connect(ONE, sleeping(0, log, "b"))
        assert await first == "a"
        assert log == ["a begins", "a done", "b begins", "b done"]

    run(test)


def test_a_cancelled_caller_ends_its_call_and_an_error_reaches_its_caller() -> None:
    async def test() -> None:
        turns, log = Turns(), []  # type: ignore[var-annotated]
        get = asyncio.ensure_future(turns.get(ONE, sleeping(60, log, "get")))
        waiting = asyncio.ensure_future(turns.get(ONE, sleeping(60, log, "waiting")))
        await asyncio.sleep(0.01)
        waiting.cancel()
        get.cancel()
        await asyncio.wait({get, waiting})
        assert log == ["get begins", "get ended"]

        async def failing() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await turns.get(ONE, failing())

    run(test)
