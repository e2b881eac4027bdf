"""`python -m benchmarks.e2e`: measure end to end, print the tables, keep the figures."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress

from benchmarks import workloads as work
from benchmarks.command import BENCH_JSON, chosen, console, machine, made_of
from benchmarks.e2e import figures as fig
from benchmarks.e2e.rounds import Run, measure
from benchmarks.e2e.systems import READERS

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False
)

Names = Annotated[list[str] | None, typer.Option(help="Only this one; give it again for more.")]
Rounds = Annotated[int, typer.Option(min=1, help="Runs of each; the median counts.")]
Scale = Annotated[float, typer.Option(min=0.0001, help="Part of the full number of rows.")]


@app.command()
def run(
    workload: Names = None,
    reader: Names = None,
    rounds: Rounds = 3,
    scale: Scale = 1.0,
    out: Annotated[Path | None, typer.Option(help="Add the figures to this JSON file.")] = None,
) -> None:
    """Measure, and print tables."""
    made = made_of(workload, scale)
    figures, missing = throughput(made, chosen(reader, list(READERS)), rounds)
    report: dict[str, Any] = {
        "date": dt.date.today().isoformat(),
        "command": "python -m benchmarks.e2e " + " ".join(sys.argv[1:]),
        "machine": machine(),
        "versions": {f.reader: READERS[f.reader].version() for f in figures},
        "not_available": missing,
        "figures": [asdict(each) for each in figures],
    }
    if out is not None:
        whole = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
        out.write_text(json.dumps(whole | {"end_to_end": report}, indent=1) + "\n", "utf-8")
        console.print(f"written: {out}")


def throughput(
    made: Sequence[work.Made], readers: Sequence[str], rounds: int
) -> tuple[list[fig.Figure], dict[str, str]]:
    """Figures, and why readers are missing; both are printed."""
    runs: dict[tuple[str, str], list[Run]] = {}
    missing: dict[str, str] = {}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(made) * len(readers) * rounds)

        def telling(text: str) -> None:
            progress.update(task, description=text)

        for result in measure(made, readers, rounds, telling):
            progress.advance(task)
            if result.run is None:
                missing[result.reader] = result.missing
            else:
                runs.setdefault((result.workload, result.reader), []).append(result.run)
    figures = [fig.figure(*key, found) for key, found in runs.items()]
    console.print(fig.figure_table(figures))
    console.print(fig.goal_table(figures))
    for name, reason in missing.items():
        console.print(f"{name} not available: {reason}")
    return figures, missing


@app.command()
def check(
    workload: Names = None,
    reader: Names = None,
    rounds: Rounds = 3,
    scale: Scale = 1.0,
    against: Annotated[Path, typer.Option(help="Committed figures.")] = BENCH_JSON,
) -> None:
    """Fail when a ratio of throughput lost over 20 % against the committed figures."""
    committed = fig.figures_of(json.loads(against.read_text(encoding="utf-8")))
    if not committed:
        console.print(f"{against} has no end-to-end figures; make them with `make bench-e2e`")
        raise typer.Exit(2)
    figures, _ = throughput(made_of(workload, scale), chosen(reader, list(READERS)), rounds)
    lost = fig.losses(figures, committed)
    for line in lost:
        console.print(f"slower: {line}", style="red")
    if lost:
        raise typer.Exit(1)
    console.print("no ratio lost more than 20 %")


if __name__ == "__main__":
    app()
