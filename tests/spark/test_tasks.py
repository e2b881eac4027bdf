"""Tasks that need no CPU of Ray's, so many at once."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import pytest
import ray

from ray_canal.spark.tasks import references, results


def _work(number: int, folder: Path) -> int:
    """Say for a while that it works; return how many do."""
    mine = folder / str(number)
    mine.touch()
    time.sleep(0.3)
    others = len(os.listdir(folder))
    mine.unlink()
    return others


def _fail(number: int) -> int:
    if number == 1:
        raise FileNotFoundError(f"file {number}")
    return number


@pytest.mark.soak
def test_so_many_work_at_once_though_all_cpus_are_taken(local_ray: None, tmp_path: Path) -> None:
    @ray.remote(num_cpus=1)
    class Executor:
        def is_up(self) -> bool:
            return True

    free = int(ray.available_resources().get("CPU", 0))
    executors = [Executor.remote() for _ in range(free)]
    assert all(ray.get([each.is_up.remote() for each in executors]))
    try:
        busy = results(partial(_work, folder=tmp_path), list(range(6)), 2)
        assert len(busy) == 6
        assert max(busy) <= 2
    finally:
        for each in executors:
            ray.kill(each)


def test_what_a_task_raises_is_raised(local_ray: None) -> None:
    with pytest.raises(FileNotFoundError, match="file 1"):
        results(_fail, [0, 1, 2], 1)
    first, *_ = references(_fail, [0, 1, 2], 3)
    assert ray.get(first) == 0
