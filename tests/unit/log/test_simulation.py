"""Ten thousand random schedules of one destination. What must hold is in simulation.py."""

from __future__ import annotations

import pytest

from tests.unit.log.simulation import Simulation

SCHEDULES, BLOCK = 10_000, 1_000


@pytest.mark.parametrize("first", range(0, SCHEDULES, BLOCK))
def test_random_schedules(first: int) -> None:
    for seed in range(first, first + BLOCK):
        try:
            Simulation(seed).run()
        except Exception as error:
            raise AssertionError(
                f"schedule {seed}: {error}; replay it by "
                f"python -m tests.unit.log.simulation {seed}"
            ) from error


def test_a_schedule_is_replayed_by_its_seed() -> None:
    """The same steps, whatever ran before."""
    heard: list[list[str]] = []
    for seed in (17, 3, 17):
        steps: list[str] = []
        run = Simulation(seed)
        run.say = lambda *words, to=steps: to.append(" ".join(map(str, words)))  # type: ignore[method-assign]
        run.run()
        heard.append(steps)
    assert heard[0] == heard[2] != heard[1]
    assert any(step.startswith("get") for step in heard[0])
