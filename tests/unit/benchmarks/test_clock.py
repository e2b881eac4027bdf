"""The clock of a child that decodes: what comes before its mark does not count."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest

from benchmarks.clock import Clock
from benchmarks.measure import run_once
from benchmarks.systems import System
from benchmarks.workloads import Made

MADE = Made("W1", 40, 4000, ())


def said(**more: Any) -> list[str]:
    """A command that reports as a child does."""
    line = {"rows": 40, "warm_rows": 0, "in_bytes": None, "warm_bytes": 0, "seconds": 2.0}
    whole = {**line, "cpu_s": 1.0, "peak_rss_mb": 5.0, **more}
    return [sys.executable, "-c", f"print({json.dumps(whole)!r})"]


def test_it_begins_anew_at_its_mark(capsys: pytest.CaptureFixture[str]) -> None:
    began_s = time.monotonic()
    with Clock() as clock:
        time.sleep(1.0)
        clock.mark(10, 1000)
    assert clock.marked
    clock.report(40, 4000)
    line = json.loads(capsys.readouterr().out)
    assert (line["rows"], line["warm_rows"]) == (40, 10)
    assert (line["in_bytes"], line["warm_bytes"]) == (4000, 1000)
    assert 0 < line["seconds"] < time.monotonic() - began_s - 0.9


@pytest.mark.parametrize(
    ("more", "rows", "in_bytes"),
    [
        ({}, 40, 4000),
        ({"warm_rows": 12, "warm_bytes": 1000}, 28, 3000),
        ({"rows": None, "warm_rows": None, "warm_bytes": 1000}, 30, 3000),  # as bytes say
    ],
)
def test_a_run_has_the_rows_behind_the_mark(
    more: dict[str, Any], rows: int, in_bytes: int
) -> None:
    run = run_once(System("ours", lambda made, port: said(**more)), MADE)
    assert (run.rows, run.in_bytes, run.seconds, run.cpu_s) == (rows, in_bytes, 2.0, 1.0)
