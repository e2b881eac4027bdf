"""Memory and places, each by itself."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from ray_canal.server.limits import MemoryBudget, Places
from tests.unit.server.conftest import run


def test_the_budget_is_never_exceeded_and_first_come_is_first_served() -> None:
    async def test() -> None:
        budget = MemoryBudget(10)
        assert await budget.take(7) == 7
        order: list[str] = []

        async def waiter(name: str, size: int) -> int:
            share = await budget.take(size)
            order.append(name)
            return share

        large = asyncio.ensure_future(waiter("large", 100))
        small = asyncio.ensure_future(waiter("small", 1))
        await asyncio.sleep(0)
        assert budget.contended
        assert order == []
        budget.give(7)
        assert await large == 10
        assert order == ["large"]
        budget.give(10)
        assert await small == 1
        assert budget.used_bytes == 1

    run(test)


def test_a_cancelled_wait_gives_its_place_to_the_next() -> None:
    async def test() -> None:
        budget = MemoryBudget(10)
        held = await budget.take(6)
        first = asyncio.ensure_future(budget.take(10))
        second = asyncio.ensure_future(budget.take(4))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == 4
        assert budget.used_bytes == 10
        third = asyncio.ensure_future(budget.take(5))
        await asyncio.sleep(0)
        budget.give(held)
        third.cancel()  # in the same moment as it is given
        await asyncio.wait({third})
        assert budget.used_bytes == 4

    run(test)


def test_who_has_become_larger_holds_up_whoever_is_about_to_render() -> None:
    async def test() -> None:
        budget = MemoryBudget(10)
        first, second = await budget.take(4), await budget.take(4)
        await budget.settled()
        first = budget.correct(first, 9)
        assert budget.used_bytes == 13
        waiting = asyncio.ensure_future(budget.settled())
        left = asyncio.ensure_future(budget.settled())
        await asyncio.sleep(0)
        assert budget.contended
        left.cancel()
        budget.give(first)
        await asyncio.wait_for(waiting, 1)
        assert not budget.contended
        assert budget.correct(second, 3) == 3
        assert budget.used_bytes == 3

    run(test)


JOBS = st.tuples(st.integers(0, 30), st.integers(0, 60), st.integers(0, 3), st.booleans())


@settings(max_examples=50, deadline=None)
@given(st.lists(JOBS, max_size=20))
def test_any_schedule_ends_with_everything_given_back(
    jobs: list[tuple[int, int, int, bool]],
) -> None:
    """Guessed, rendered one at a time, corrected: over the capacity goes one answer at most."""

    async def test() -> None:
        budget, rendering = MemoryBudget(20), asyncio.Semaphore(1)

        async def job(size: int, becomes: int, steps: int) -> None:
            share = await budget.take(size)
            try:
                async with rendering:
                    await budget.settled()
                    assert budget.used_bytes <= 20
                    await asyncio.sleep(0)
                    share = budget.correct(share, becomes)
                assert budget.used_bytes <= 20 + becomes
                for _ in range(steps):
                    await asyncio.sleep(0)
            finally:
                budget.give(share)

        tasks = [
            (asyncio.ensure_future(job(size, becomes, steps)), cut)
            for size, becomes, steps, cut in jobs
        ]
        await asyncio.sleep(0)
        for task, cut in tasks:
            if cut:
                task.cancel()
        if tasks:
            _, stuck = await asyncio.wait({task for task, _ in tasks}, timeout=2)
            assert not stuck
        assert budget.used_bytes == 0
        assert not budget.contended

    run(test)


def test_logins_displace_the_oldest_login_and_never_a_client() -> None:
    ended: list[int] = []
    places = Places(connections_max=2, logins_max=3)
    places.enter(0, lambda: ended.append(0))
    assert places.admit(0)
    for number in range(1, 6):
        places.enter(number, lambda number=number: ended.append(number))  # type: ignore[misc]
    assert ended == [1, 2]
    assert places.pending == 3
    assert places.admit(5)
    assert not places.admit(4)
    places.leave(0)
    assert places.admit(3)
    assert places.admitted == 2
