"""Figures: medians of runs, ratios, goals, the table, and the comparison with committed figures.

Ratios are of CPU seconds a row. Everything measured works on one thread, so on a quiet machine that
is the ratio of speeds; on a busy one it is the part of it that can be trusted.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from benchmarks.measure import Run

GOALS = {
    # (workload, system, against): at least this ratio
    ("W1", "ray_canal-arrow", "mysqlbinlog"): 6.0,
    ("W1", "ray_canal-arrow", "mysql-event-stream"): 70.0,
    ("W1", "ray_canal-entries", "mysqlbinlog"): 3.5,
    ("W2", "ray_canal-arrow", "mysqlbinlog"): 20.0,
    ("W2", "ray_canal-entries", "mysqlbinlog"): 10.0,
    ("W3", "ray_canal-arrow", "mysqlbinlog"): 12.0,
    ("W3", "ray_canal-entries", "mysqlbinlog"): 5.0,
}
LOSS_MAX = 0.2
"""Part of a ratio that may be lost before the check fails."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A system on a workload: medians over its runs."""

    workload: str
    system: str
    rows: int
    rows_per_s: float
    mb_per_s: float
    cpu_s_per_m_rows: float
    peak_rss_mb: float
    runs: int


def figure(workload: str, system: str, runs: Sequence[Run]) -> Figure:
    """The medians of at least one run."""
    return Figure(
        workload,
        system,
        runs[0].rows,
        round(statistics.median(run.rows / run.seconds for run in runs)),
        round(statistics.median(run.in_bytes / run.seconds / 1e6 for run in runs), 2),
        round(statistics.median(run.cpu_s / run.rows * 1e6 for run in runs), 4),
        round(statistics.median(run.peak_rss_mb for run in runs), 1),
        len(runs),
    )


def ratio(figures: Sequence[Figure], workload: str, system: str, against: str) -> float | None:
    """How many times less CPU a row costs `system` than `against`; None: one was not measured."""
    found = {f.system: f.cpu_s_per_m_rows for f in figures if f.workload == workload}
    if system not in found or against not in found or found[system] <= 0:
        return None
    return found[against] / found[system]


def ratios(figures: Sequence[Figure]) -> Iterator[tuple[str, str, str, float, float]]:
    """(workload, system, against, ratio, goal) of each goal that was measured."""
    for (workload, system, against), goal in GOALS.items():
        value = ratio(figures, workload, system, against)
        if value is not None:
            yield workload, system, against, value, goal


def losses(now: Sequence[Figure], committed: Sequence[Figure]) -> list[str]:
    """One line for each ratio that lost more than LOSS_MAX against the committed figures."""
    return lost_ratios(ratios(now), lambda *key: ratio(committed, *key))


def lost_ratios(
    now: Iterable[tuple[str, str, str, float, float]],
    committed: Callable[[str, str, str], float | None],
) -> list[str]:
    """As `losses`, of ratios however they were made: `now` as `ratios` gives them, and what each
    was (None: not measured)."""
    lost = []
    for workload, name, against, value, _ in now:
        before = committed(workload, name, against)
        if before is not None and value < before * (1 - LOSS_MAX):
            part = 100 * (1 - value / before)
            lost.append(
                f"{workload} {name}: {value:.1f} x {against}, committed {before:.1f} x "
                f"({part:.0f} % lost, {100 * LOSS_MAX:.0f} % allowed)"
            )
    return lost


def figures_of(report: Mapping[str, Any]) -> list[Figure]:
    """The figures in a bench.json."""
    return [Figure(**line) for line in report["figures"]]


def figure_table(figures: Sequence[Figure], base: str) -> Table:
    """Every figure, with its ratio to the base system of the same workload."""
    table = Table(title="decoding files on one thread, medians")
    for name in ("workload", "system"):
        table.add_column(name)
    for name in ("rows", "rows/s", "MB/s", "CPU s/M rows", "peak MB", f"x {base}"):
        table.add_column(name, justify="right")
    for f in figures:
        times = ratio(figures, f.workload, f.system, base)
        table.add_row(
            f.workload,
            f.system,
            f"{f.rows:,}",
            f"{f.rows_per_s:,.0f}",
            f"{f.mb_per_s:,.1f}",
            f"{f.cpu_s_per_m_rows:,.3f}",
            f"{f.peak_rss_mb:,.0f}",
            "" if times is None else f"{times:,.2f}",
        )
    return table


def goal_table(figures: Sequence[Figure]) -> Table:
    """Each goal that was measured."""
    table = Table(title="goals")
    for name in ("workload", "system", "against"):
        table.add_column(name)
    for name in ("ratio", "goal", ""):
        table.add_column(name, justify="right")
    for workload, system, against, value, goal in ratios(figures):
        verdict = "reached" if value >= goal else "missed"
        table.add_row(workload, system, against, f"{value:.1f}", f"{goal:g}", verdict)
    return table
