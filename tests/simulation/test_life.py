"""Random schedules of the whole life of a destination. What must hold is in life.py."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.simulation.life import broken

SCHEDULES = int(os.environ.get("RAY_CANAL_SCHEDULES", "1000"))
FIRST = int(os.environ.get("RAY_CANAL_FIRST_SCHEDULE", "0"))
BLOCK = 50


@pytest.mark.timeout(0)
def test_random_schedules() -> None:
    """Each subscriber gets every row once, in order, by the documented recipe, or is told why not;
    nobody waits indefinitely; who was replaced never owns the destination again."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as workers:
        end = FIRST + SCHEDULES
        runs = [workers.submit(broken, at, min(BLOCK, end - at)) for at in range(FIRST, end, BLOCK)]
        found = [text for run in runs for text in run.result()]
    assert not found, f"replay by python -m tests.simulation.life SEED: {found[:5]}"


@pytest.mark.timeout(0)
def test_a_schedule_is_replayed_by_its_seed() -> None:
    """As the error says: the command prints the same first steps each time. (No limit: at the
    lowest priority, beside Ray on two CPUs, a second of CPU took more than two minutes.)"""
    heard = []
    for seed in (17, 3, 17):
        command = [sys.executable, "-m", "tests.simulation.life", str(seed)]
        done = subprocess.run(command, capture_output=True, check=True)
        heard.append(done.stdout.splitlines()[:10])
    assert heard[0] == heard[2] != heard[1]
    assert any(b"subscribed" in step for step in heard[0])
