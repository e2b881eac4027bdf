"""A short fault run; the long one is `make fault`. What they do: run.py, faults.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.run import FaultRun
from tests.servers import start

pytestmark = pytest.mark.ray

SHORT = (
    "cut",
    "kill subscriber",
    "kill mysqld",
    "kill store and controller",
    "kill head",
    "kill everything",
)


@pytest.mark.timeout(900)
def test_a_short_run_loses_and_reorders_nothing(tmp_path: Path) -> None:
    with start("mysql97", tmp_path / "server") as server:  # of its own: it is killed
        with FaultRun(server, tmp_path, seed=5, burst_rows=60) as run:
            for name in SHORT:
                print(f"{name}: {run.fault(name):.1f} s")
            run.judge()
        print(run.report())
    assert all(judge.rows for judge in run.judges.values())
    # Each subscriber came back at its cursor after each end of the store.
    assert all(judge.lives >= 1 for judge in run.judges.values())
