"""Of several heads one is active; another one takes over when it does not beat any more."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_canal.errors import Fenced, MetaUnavailable
from ray_canal.meta.backend import MetaBackend
from ray_canal.meta.lease import Lease
from ray_canal.meta.memory import MemoryBackend
from ray_canal.meta.sqlite import SqliteBackend


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=["memory", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], MetaBackend]:
    if request.param == "memory":
        one = MemoryBackend()
        return lambda: one
    return lambda: SqliteBackend(str(tmp_path / "meta.db"))


def heads(backend: Callable[[], MetaBackend], count: int = 2) -> tuple[Clock, list[Lease]]:
    clock = Clock()
    names = [f"head{number}" for number in range(count)]
    return clock, [Lease(backend(), "ns", name, name, 5.0, clock) for name in names]


def test_the_first_is_active_and_the_other_waits(backend: Callable[[], MetaBackend]) -> None:
    clock, (one, two) = heads(backend)
    assert one.turn()
    for _ in range(20):
        clock.now += 1
        assert one.turn()
        assert not two.turn()
    assert two.holder is not None
    assert two.holder.called == "head0"


def test_it_is_taken_over_when_the_beat_stands_still(backend: Callable[[], MetaBackend]) -> None:
    clock, (one, two) = heads(backend)
    assert one.turn()
    assert not two.turn()
    clock.now += 4.9
    assert not two.turn()
    clock.now += 0.2
    assert two.turn()
    # The first one wakes up: it has lost it, and waits like any other.
    assert not one.turn()
    assert not one.held
    clock.now += 1
    assert two.turn()
    assert not one.turn()
    clock.now += 5.1
    assert one.turn()
    assert not two.turn()


def test_a_released_one_is_taken_at_once(backend: Callable[[], MetaBackend]) -> None:
    clock, (one, two) = heads(backend)
    assert one.turn()
    assert not two.turn()
    one.release()
    assert two.turn()
    one.release()  # it is another's
    clock.now += 1
    assert two.turn()


def test_a_head_that_restarts_goes_on_at_once(backend: Callable[[], MetaBackend]) -> None:
    clock, (one, two) = heads(backend)
    assert one.turn()
    again = Lease(backend(), "ns", "head0", "head0", 5.0, clock)
    assert again.turn()
    assert not two.turn()


def test_what_should_run_outlives_the_head(backend: Callable[[], MetaBackend]) -> None:
    clock, (one, two) = heads(backend)
    assert one.turn()
    one.keep({"a": "1", "b": "2"})
    one.keep({"b": "2", "c": "3", "d": "4"})
    assert two.wanted() == {"b": "2", "c": "3", "d": "4"}
    assert not two.turn()
    clock.now += 6
    assert two.turn()
    with pytest.raises(Fenced):
        one.keep({"x": "1"})
    two.keep({"c": "5"})
    assert two.wanted() == {"c": "5"}


class Away(MemoryBackend):
    """A server that answers nothing for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False

    def epoch(self, destination: str) -> int:
        self._refuse()
        return super().epoch(destination)

    def save(self, destination: str, epoch: int, client_id: int, record: str) -> None:
        self._refuse()
        super().save(destination, epoch, client_id, record)

    def _refuse(self) -> None:
        if self.away:
            raise MetaUnavailable("away")


def test_a_server_that_is_away_takes_the_lease_from_nobody() -> None:
    server = Away()
    clock, (one, two) = heads(lambda: server)
    assert one.turn()
    assert not two.turn()
    server.away = True
    for head in (one, two):
        with pytest.raises(MetaUnavailable):
            head.turn()
    clock.now += 60
    server.away = False
    assert not two.turn()
    assert one.turn()
    assert not two.turn()


@pytest.mark.parametrize("seed", range(30))
def test_random_sleeps_never_leave_it_without_a_head(seed: int) -> None:
    """Whoever thinks that it is active has beaten last, or finds out at its next turn."""
    rng = random.Random(seed)
    one = MemoryBackend()
    clock, all_heads = heads(lambda: one, 3)
    asleep_until = [0.0] * 3
    idle_s = 0.0
    for _ in range(400):
        clock.now += 0.5
        active = []
        for number, head in enumerate(all_heads):
            if clock.now < asleep_until[number]:
                continue
            if rng.random() < 0.02:
                asleep_until[number] = clock.now + rng.uniform(0, 20)
                continue
            if head.turn():
                active.append(number)
        assert len(active) <= 1
        everybody_sleeps = all(clock.now < until for until in asleep_until)
        idle_s = 0.0 if active or everybody_sleeps else idle_s + 0.5
        assert idle_s < 8.0  # who has just woken looks for as long as a beat lasts
