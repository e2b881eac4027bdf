"""Waiting calls that are cancelled at any moment harm nobody."""

from __future__ import annotations

import asyncio
import gc
import random
import time

import pytest

from ray_canal.destination import wakeup
from ray_canal.destination.wakeup import Wakeup, to_its_end, wait_with_timeout


def test_a_wake_reaches_all_who_wait_and_nobody_later() -> None:
    async def test() -> None:
        signal = Wakeup()
        await signal.wake()
        waiting = [asyncio.ensure_future(signal.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting.pop().cancel()
        await signal.wake()
        assert await asyncio.gather(*waiting) == [True, True]
        assert not await signal.wait(time.monotonic() + 0.01)
        assert not await signal.wait(time.monotonic() - 1)

    asyncio.run(asyncio.wait_for(test(), 10))


def test_what_is_waited_for_comes_or_is_late_or_fails() -> None:
    async def fails() -> None:
        raise ValueError("it did")

    async def test() -> None:
        assert await wait_with_timeout(1, asyncio.sleep(0, 7)) == 7
        with pytest.raises(ValueError, match="it did"):
            await wait_with_timeout(1, fails())
        late = asyncio.get_running_loop().create_future()
        with pytest.raises(asyncio.TimeoutError):
            await wait_with_timeout(0.01, late)
        await asyncio.sleep(0)
        assert late.cancelled()

    asyncio.run(asyncio.wait_for(test(), 10))


def test_who_slept_takes_the_answer_that_came_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """B3: a controller that was stopped for longer than its patience kills nobody as it goes on."""
    monkeypatch.setattr(wakeup, "_SLICE_S", 0.05)
    monkeypatch.setattr(wakeup, "_WAKING_S", 0.5)

    async def test() -> None:
        answer = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(wait_with_timeout(0.3, answer))
        await asyncio.sleep(0)
        time.sleep(1.0)  # stopped; the one who answers was, too
        asyncio.get_running_loop().call_later(0.2, answer.set_result, 7)
        assert await waiting == 7
        with pytest.raises(asyncio.TimeoutError):
            await wait_with_timeout(0.3, asyncio.get_running_loop().create_future())

    asyncio.run(asyncio.wait_for(test(), 10))


@pytest.mark.parametrize("fails", [False, True])
def test_cancelled_in_the_moment_of_an_answer_is_cancelled(fails: bool) -> None:
    async def test() -> None:
        answer = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(wait_with_timeout(5, answer))
        await asyncio.sleep(0)
        answer.set_exception(ValueError("it did")) if fails else answer.set_result(7)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()

    asyncio.run(asyncio.wait_for(test(), 10))


def test_cancelled_in_the_moment_of_its_timeout_a_waiter_leaves_the_others_alone() -> None:
    choice = random.Random(6)

    async def waiter(signal: Wakeup) -> None:
        while True:
            await signal.wait(time.monotonic() + choice.choice([0.001, 0.002, 0.003]))

    async def test() -> None:
        signal = Wakeup()
        waiters = [asyncio.ensure_future(waiter(signal)) for _ in range(100)]
        until = time.monotonic() + 1
        while time.monotonic() < until:
            number = choice.randrange(len(waiters))
            waiters[number].cancel()
            await signal.wake()
            await asyncio.sleep(choice.random() / 1000)
            assert waiters[number].cancelled()
            waiters[number] = asyncio.ensure_future(waiter(signal))
        last = asyncio.ensure_future(signal.wait())
        await asyncio.sleep(0)
        await signal.wake()
        assert await asyncio.wait_for(last, 1)
        for one in waiters:
            one.cancel()
        await asyncio.wait(waiters)

    asyncio.run(asyncio.wait_for(test(), 30))


def test_work_that_goes_on_and_fails_behind_its_caller_is_not_logged() -> None:
    """Seed 1304490 of the simulation: a write of a cursor, whose generation had ended."""

    async def story() -> list[str]:
        unseen: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, c: unseen.append(c["message"]))

        async def write() -> None:
            await asyncio.sleep(0.01)
            done.append(1)
            raise RuntimeError("another generation has begun")

        done: list[int] = []
        caller = asyncio.create_task(to_its_end(write()))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.sleep(0.05)
        gc.collect()
        assert done == [1]
        with pytest.raises(RuntimeError):
            await to_its_end(write())
        return unseen

    assert asyncio.run(story()) == []
