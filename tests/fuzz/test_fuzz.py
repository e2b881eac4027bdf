"""2,000 hostile inputs in plain Python, where an index out of range is an error, and 10,000 by the
kernels that users run, where it may end the process. A million with numba's bounds checks: `make
fuzz`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def fuzz(*arguments: str) -> str:
    """Standard output of `python -m tests.fuzz`; it must not fail."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("kernels", "inputs"), [("plain", 2_000), ("shipped", 10_000)])
def test_hostile_inputs_give_an_error_with_its_place_or_an_answer(
    kernels: str, inputs: int
) -> None:
    told = fuzz("--kernels", kernels, "--inputs", str(inputs), "--seed", "1")
    assert f"{inputs:,} inputs" in told
    assert "0 failures" in told


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_million_hostile_inputs() -> None:
    assert "0 failures" in fuzz("--inputs", "1000000")


def test_an_input_is_the_same_each_time(tmp_path: Path) -> None:
    told = []
    for name in ("a", "b"):
        path = tmp_path / name
        one = ("--kernels", "shipped", "--seed", "7", "--replay", "11", "--write", str(path))
        told.append(fuzz(*one).split("\n", 1)[1])
    assert told[0] == told[1]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
