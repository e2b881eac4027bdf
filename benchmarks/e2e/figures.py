"""Medians of runs, ratios, goals, the printed tables, and the comparison with committed figures.

A ratio is one of rows/s: several processes on several cores are compared, and what counts is when
the last row is there. Medians of rounds in turns keep a busy machine from favouring one side.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from benchmarks.e2e.rounds import Run
from benchmarks.e2e.systems import ARROW, BARE, EMBEDDED, ENTRIES, RAW, ZONGJI
from benchmarks.figures import lost_ratios

FASTER_ZONGJI = "the faster zongji"

RATIO_GOALS: dict[tuple[str, str, str], float] = {
    # (workload, reader, against): at least this many times its rows/s
    ("W1", ARROW, FASTER_ZONGJI): 12,
    ("W1", ARROW, BARE): 2,
    ("W1", ARROW, "mysql-event-stream"): 50,
    ("W1", ARROW, EMBEDDED): 50,
    ("W1", ARROW, "mysql-replication"): 100,
    ("W1", ARROW, RAW): 0.3,
    ("W1", ENTRIES, FASTER_ZONGJI): 8,
    ("W2", ARROW, FASTER_ZONGJI): 8,
    ("W2", ARROW, RAW): 1.5,
    ("W2", ENTRIES, FASTER_ZONGJI): 5,
    ("W3", ARROW, FASTER_ZONGJI): 12,
    ("W3", ARROW, BARE): 3,
    ("W4", ARROW, FASTER_ZONGJI): 5,
    ("W4", ARROW, BARE): 1.2,
}
RATE_GOALS = {("W1", ARROW): 1_800_000, ("W1", ENTRIES): 1_000_000}


@dataclass(frozen=True, slots=True)
class Figure:
    """A reader of a workload: medians over its runs. `best_rows_per_s` is of its best run;
    `from_dump_rows_per_s` counts from the beginning of the dump, over all rows."""

    workload: str
    reader: str
    rows: int
    rows_per_s: float
    best_rows_per_s: float
    from_dump_rows_per_s: float
    mb_per_s: float
    cpu_s_per_m_rows: float
    server_cpu_s_per_m_rows: float
    peak_mb: float
    runs: int
    cpu_of: dict[str, float] = field(default_factory=dict)
    """CPU s/M rows by process, of those with a hundredth of it all; of the middle run."""


def figure(workload: str, reader: str, runs: Sequence[Run]) -> Figure:
    """The medians of at least one run."""
    median = statistics.median
    return Figure(
        workload,
        reader,
        runs[0].rows,
        round(median(run.rows / run.seconds for run in runs)),
        round(max(run.rows / run.seconds for run in runs)),
        round(median(run.from_dump_rows_per_s for run in runs)),
        round(median(run.in_bytes / run.seconds / 1e6 for run in runs), 2),
        round(median(run.cpu_s / run.rows * 1e6 for run in runs), 3),
        round(median(run.server_cpu_s / run.rows * 1e6 for run in runs), 3),
        round(median(run.peak_mb for run in runs), 1),
        len(runs),
        _cpu_of(sorted(runs, key=lambda run: run.cpu_s)[len(runs) // 2]),
    )


def _cpu_of(run: Run) -> dict[str, float]:
    parts = sorted(run.cpu_s_of.items(), key=lambda part: -part[1])
    return {n: round(s / run.rows * 1e6, 3) for n, s in parts if s > 0.01 * run.cpu_s}


def rate(figures: Sequence[Figure], workload: str, reader: str) -> float | None:
    """Rows/s of a reader, or of the faster of the zongji forks; None: not measured."""
    names = ZONGJI if reader == FASTER_ZONGJI else (reader,)
    found = [f.rows_per_s for f in figures if f.workload == workload and f.reader in names]
    return max(found, default=None)


def ratio(figures: Sequence[Figure], workload: str, reader: str, against: str) -> float | None:
    """How many times the rows/s of `against`; None: one was not measured."""
    mine, other = rate(figures, workload, reader), rate(figures, workload, against)
    return None if mine is None or not other else mine / other


def ratios(figures: Sequence[Figure]) -> Iterator[tuple[str, str, str, float, float]]:
    """(workload, reader, against, ratio, goal) of each goal that was measured."""
    for (workload, reader, against), goal in RATIO_GOALS.items():
        value = ratio(figures, workload, reader, against)
        if value is not None:
            yield workload, reader, against, value, goal


def losses(now: Sequence[Figure], committed: Sequence[Figure]) -> list[str]:
    """One line for each ratio that lost too much against the committed figures."""
    return lost_ratios(ratios(now), lambda *key: ratio(committed, *key))


def figures_of(report: Mapping[str, Any]) -> list[Figure]:
    """The end-to-end figures in a bench.json."""
    return [Figure(**line) for line in report.get("end_to_end", {}).get("figures", [])]


def figure_table(figures: Sequence[Figure]) -> Table:
    """Every figure."""
    table = Table(title="from the server to the reader's hands, medians")
    for name in ("workload", "reader"):
        table.add_column(name)
    columns = ("rows", "rows/s", "best", "from dump", "MB/s", "CPU s/M rows", "server's", "peak MB")
    for name in columns:
        table.add_column(name, justify="right")
    for f in figures:
        table.add_row(
            f.workload, f.reader, f"{f.rows:,}", f"{f.rows_per_s:,.0f}",
            f"{f.best_rows_per_s:,.0f}", f"{f.from_dump_rows_per_s:,.0f}", f"{f.mb_per_s:,.1f}",
            f"{f.cpu_s_per_m_rows:,.2f}", f"{f.server_cpu_s_per_m_rows:,.2f}", f"{f.peak_mb:,.0f}",
        )  # fmt: skip
    return table


def split_table(figures: Sequence[Figure]) -> Table:
    """Which process used the CPU, of readers with several."""
    table = Table(title="CPU s/M rows by process")
    for name in ("workload", "reader", "processes"):
        table.add_column(name)
    for f in figures:
        if len(f.cpu_of) > 1:
            parts = ", ".join(f"{name} {value:.2f}" for name, value in f.cpu_of.items())
            table.add_row(f.workload, f.reader, parts)
    return table


def goal_table(figures: Sequence[Figure]) -> Table:
    """Each goal that was measured."""
    table = Table(title="goals of throughput")
    for name in ("workload", "reader", "against"):
        table.add_column(name)
    for name in ("figure", "goal", ""):
        table.add_column(name, justify="right")
    for (workload, reader), wanted in RATE_GOALS.items():
        value = rate(figures, workload, reader)
        if value is not None:
            words = verdict(value >= wanted)
            table.add_row(workload, reader, "rows/s", f"{value:,.0f}", f"{wanted:,}", words)
    for workload, reader, against, value, goal in ratios(figures):
        words = verdict(value >= goal)
        table.add_row(workload, reader, f"x {against}", f"{value:.2f}", f"{goal:g}", words)
    return table


def verdict(reached: bool) -> str:
    """What a goal's line ends with."""
    return "reached" if reached else "missed"
