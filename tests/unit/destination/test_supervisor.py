"""Attempts that fail are repeated, with pauses that grow, until one ends for good."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ray_canal.destination import supervisor
from ray_canal.destination.supervisor import FAILED, RUNNING, STARTING, Backoff, Supervisor
from ray_canal.destination.wakeup import Wakeup
from ray_canal.errors import ConnectionLost, Fenced


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


class Life:
    """Attempts with these outcomes; what was called, in order."""

    def __init__(self, *outcomes: bool | Exception) -> None:
        self.outcomes = list(outcomes)
        self.called: list[str] = []
        self.fatal = False

    async def attempt(self) -> bool:
        self.called.append("attempt")
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def failed(self, error: Exception) -> bool:
        self.called.append("failed")
        return self.fatal

    async def end(self) -> None:
        self.called.append("end")


def test_a_failed_attempt_is_ended_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "BACKOFF_MIN_S", 0.001)

    async def story() -> None:
        life = Life(ConnectionLost("gone"), False, True)
        await Supervisor(Wakeup(), 1.0).run(life.attempt, life.failed, life.end)
        assert life.called == ["attempt", "failed", "end", "attempt", "end", "attempt", "end"]

    run(story())


def test_a_failure_for_good_is_the_last_attempt() -> None:
    async def story() -> None:
        life = Life(Fenced("another owner"))
        life.fatal = True
        await Supervisor(Wakeup(), 1.0).run(life.attempt, life.failed, life.end)
        assert life.called == ["attempt", "failed", "end"]

    run(story())


def test_a_pause_ends_when_it_may_succeed_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "BACKOFF_MIN_S", 3600.0)

    async def story() -> None:
        life = Life(ConnectionLost("gone"), True)
        watched = Supervisor(Wakeup(), 3600.0)
        running = asyncio.create_task(watched.run(life.attempt, life.failed, life.end))
        while "end" not in life.called:
            await asyncio.sleep(0)
        watched.retry_now()
        await running
        assert life.called.count("attempt") == 2

    run(story())


def test_who_waits_learns_of_each_state_and_a_retryable_failure_is_waited_for() -> None:
    async def story() -> None:
        changed = Wakeup()
        watched = Supervisor(changed, 1.0)
        assert watched.state == STARTING
        waiting = asyncio.create_task(changed.wait())
        await asyncio.sleep(0)
        await watched.set(FAILED, ConnectionLost("gone"))
        assert await waiting
        assert not watched.has_given_up
        await watched.set(FAILED, Fenced("another owner"))
        assert watched.has_given_up
        await watched.set(RUNNING)
        assert watched.failure is None
        assert not watched.has_given_up

    run(story())


def test_pauses_double_up_to_the_most_and_begin_again_after_a_long_time() -> None:
    backoff = Backoff(1.0)
    assert [backoff.next() for _ in range(5)] == [0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.lasted(5.0)
    assert backoff.next() == 1.0
    backoff.lasted(11.0)
    assert backoff.next() == 0.2
