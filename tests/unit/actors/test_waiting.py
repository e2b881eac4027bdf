"""Waiting for answers of actors: the same results on an event loop and by blocking."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import ray

from ray_canal.actors.calls import ActorWaiting, AnswersInThread, AnswersOnLoop
from ray_canal.destination.blocking import complete
from ray_canal.errors import InstanceNotRunning


class Reference:
    """Refers to a value, as ObjectRef does; `ray.get` is told how to read it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Any:
        yield from asyncio.sleep(0).__await__()
        return self.value


@pytest.fixture(autouse=True)
def _references(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(what: Any, timeout: float | None = None) -> Any:
        return [each.value for each in what] if isinstance(what, list) else what.value

    monkeypatch.setattr(ray, "get", get)


async def _story(waiting: ActorWaiting) -> list[Any]:
    ran: list[Any] = []
    await waiting.pause(0.001)
    await waiting.run(lambda: ran.append("run"))
    await waiting.look_up(lambda: ran.append("look up"))
    return [*ran, await waiting.answer(Reference(1)), *await waiting.objects([Reference(2)])]


def test_both_ways_give_the_same() -> None:
    expected = ["run", "look up", 1, 2]
    assert complete(_story(AnswersInThread())) == expected
    assert asyncio.run(_story(AnswersOnLoop())) == expected


def test_calls_that_wait_together_look_up_once() -> None:
    async def test() -> int:
        waiting, count = AnswersOnLoop(), []
        await asyncio.gather(*(waiting.look_up(lambda: count.append(1)) for _ in range(5)))
        await waiting.look_up(lambda: count.append(1))
        return len(count)

    assert asyncio.run(test()) == 2


@pytest.mark.parametrize("waiting", [AnswersInThread, AnswersOnLoop])
def test_a_look_up_that_fails_tells_all_who_wait(waiting: type[ActorWaiting]) -> None:
    """As when Ray's head does not answer. On a loop nobody was told, and all asked again."""

    def fails() -> None:
        raise InstanceNotRunning("the head does not answer")

    async def story() -> list[Any]:
        one = waiting()
        return await asyncio.gather(
            *(one.look_up(fails) for _ in range(3)), return_exceptions=True
        )

    told = asyncio.run(story())
    assert [str(error) for error in told] == ["the head does not answer"] * 3
