"""Medians, ratios, the table and the check, on figures made by hand."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import typer
from rich.console import Console

from benchmarks import command
from benchmarks.figures import Figure, figure, figure_table, figures_of, goal_table, losses, ratio
from benchmarks.measure import Run

OURS = Figure("W1", "ray_canal-arrow", 2_000_000, 2_000_000.0, 240.0, 0.5, 300.0, 3)
BASE = Figure("W1", "mysqlbinlog", 2_000_000, 400_000.0, 48.0, 4.0, 14.0, 3)


def test_a_figure_is_the_median_of_its_runs() -> None:
    runs = [Run(1000, 2_000_000, seconds, seconds / 2, 50.0) for seconds in (1.0, 9.0, 2.0)]
    found = figure("W2", "mysqlbinlog", runs)
    assert found == Figure("W2", "mysqlbinlog", 1000, 500, 1.0, 1000.0, 50.0, 3)


def test_a_ratio_is_of_cpu_a_row_and_needs_both() -> None:
    assert ratio([OURS, BASE], "W1", OURS.system, BASE.system) == 8.0
    assert ratio([OURS], "W1", OURS.system, BASE.system) is None
    assert ratio([OURS, BASE], "W2", OURS.system, BASE.system) is None


@pytest.mark.parametrize(("cpu_s", "lost"), [(0.5, 0), (0.62, 0), (0.63, 1), (0.1, 0)])
def test_the_check_allows_a_fifth(cpu_s: float, lost: int) -> None:
    now = [replace(OURS, cpu_s_per_m_rows=cpu_s), BASE]
    found = losses(now, [OURS, BASE])
    assert len(found) == lost
    assert all("8.0 x" in line and "W1 ray_canal-arrow" in line for line in found)


def test_the_check_is_of_ratios_not_of_the_machine() -> None:
    twice_as_slow = [replace(f, cpu_s_per_m_rows=2 * f.cpu_s_per_m_rows) for f in (OURS, BASE)]
    assert losses(twice_as_slow, [OURS, BASE]) == []


def test_figures_come_back_from_json() -> None:
    report = {"figures": [asdict(OURS), asdict(BASE)]}
    assert figures_of(json.loads(json.dumps(report))) == [OURS, BASE]


def test_tables_show_figures_and_missed_goals() -> None:
    console = Console(width=140, file=io.StringIO())
    console.print(figure_table([OURS, BASE], "mysqlbinlog"))
    console.print(goal_table([replace(OURS, cpu_s_per_m_rows=1.0), BASE]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "2,000,000" in text
    assert "8.00" in text
    assert "missed" in text
    assert "reached" not in text


@pytest.mark.parametrize(("this", "is_told"), [("Zen 5", False), ("Zen 3", True)])
def test_a_failed_check_says_that_the_figures_are_of_another_cpu(
    monkeypatch: pytest.MonkeyPatch, this: str, is_told: bool
) -> None:
    console = Console(width=140, file=io.StringIO())
    monkeypatch.setattr(command, "console", console)
    monkeypatch.setattr(command, "_cpu", lambda: this)
    with pytest.raises(typer.Exit):
        command.judge(["W1"], "Zen 5")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "slower: W1" in text
    assert ("another CPU: Zen 5; this is Zen 3" in text) == is_told
    command.judge([], "Zen 5")


def test_the_machine_tells_cpus_of_one_name_apart() -> None:
    said = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    assert "AVX-512" in command.machine()["cpu"] or "model name" not in said
