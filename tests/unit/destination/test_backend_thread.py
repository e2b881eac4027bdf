"""Blocking calls of a backend: in order, off the event loop, failing fast while it is away."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from ray_canal.destination import backend_thread
from ray_canal.destination.backend_thread import BackendThread
from ray_canal.errors import Fenced, InstanceNotRunning, MetaUnavailable


def test_calls_come_in_their_order_and_the_loop_turns_meanwhile() -> None:
    async def go() -> None:
        thread, seen, turns = BackendThread("t"), [], 0
        blocked = threading.Event()

        def call(number: int) -> int:
            blocked.wait(10)
            seen.append(number)
            return number * 2

        calls = [asyncio.ensure_future(thread.run(call, number)) for number in range(20)]
        while turns < 20:  # nothing waits for the thread but who called it
            await asyncio.sleep(0)
            turns += 1
        assert not seen
        blocked.set()
        assert await asyncio.gather(*calls) == [number * 2 for number in range(20)]
        assert seen == list(range(20))
        await thread.close(lambda: seen.append(-1))
        assert seen[-1] == -1
        with pytest.raises(InstanceNotRunning):
            await thread.run(call, 1)

    asyncio.run(go())


def test_a_call_that_has_begun_goes_on_when_its_caller_leaves_another_is_left_out() -> None:
    async def go() -> None:
        thread, seen = BackendThread("t"), []
        began, goes_on = threading.Event(), threading.Event()

        def slow() -> None:
            began.set()
            goes_on.wait(10)
            seen.append("slow")

        first = asyncio.ensure_future(thread.run(slow))
        second = asyncio.ensure_future(thread.run(seen.append, "second"))
        third = asyncio.ensure_future(thread.run(seen.append, "third"))
        await asyncio.to_thread(began.wait, 10)
        first.cancel()
        second.cancel()
        await asyncio.sleep(0)
        goes_on.set()
        await third
        assert seen == ["slow", "third"]
        await thread.close(lambda: None)

    asyncio.run(go())


def test_after_a_slow_failure_calls_fail_at_once_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B4, b9: who waits for a server that does not answer waits once, not one after the other."""
    monkeypatch.setattr(backend_thread, "LONG_S", 0.05)
    monkeypatch.setattr(backend_thread, "BREAK_S", 60.0)

    async def go() -> None:
        thread, asked = BackendThread("t"), 0

        def away() -> None:
            nonlocal asked
            asked += 1
            time.sleep(0.1)
            raise MetaUnavailable("nobody answers")

        calls = [asyncio.ensure_future(thread.run(away)) for _ in range(50)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert asked == 1
        assert all(isinstance(result, MetaUnavailable) for result in results)
        with pytest.raises(MetaUnavailable, match=r"nobody answers; it is asked again in [1-6]"):
            await thread.run(away)
        assert asked == 1
        thread._broken_until_s = time.monotonic()  # that time is over
        assert await thread.run(lambda: "there") == "there"
        await thread.close(lambda: None)

    asyncio.run(go())


def test_a_quick_failure_and_other_errors_break_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        thread = BackendThread("t")

        def refused() -> None:
            raise MetaUnavailable("connection refused")

        def fenced() -> None:
            time.sleep(0.01)
            raise Fenced("replaced")

        for call, error, long_s in ((refused, MetaUnavailable, 60.0), (fenced, Fenced, 0.001)):
            monkeypatch.setattr(backend_thread, "LONG_S", long_s)
            with pytest.raises(error):
                await thread.run(call)
            assert await thread.run(lambda: 1) == 1
        await thread.close(lambda: None)

    asyncio.run(go())


def test_a_thread_that_hangs_does_not_keep_a_store_from_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend_thread, "_CLOSE_LIMIT_S", 0.1)

    async def go() -> None:
        thread, goes_on = BackendThread("t"), threading.Event()
        hanging = asyncio.ensure_future(thread.run(goes_on.wait, 30))
        await asyncio.sleep(0)
        await thread.close(lambda: None)
        assert not hanging.done()
        goes_on.set()
        assert await hanging

    asyncio.run(go())
