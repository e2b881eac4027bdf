"""End to end, from a server's dump to a client's hands: measure, print tables, keep the figures.

As it is, `run` takes about a quarter of an hour; `--scale 0.1 --rounds 1 --idle 10` tries it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks import workloads as work
from benchmarks.command import (
    BENCH_JSON,
    Names,
    chosen,
    console,
    judge,
    machine,
    made_of,
    progress_bar,
)
from benchmarks.e2e import figures as fig
from benchmarks.e2e import goals, parts, plot
from benchmarks.e2e.child import ChildFailed
from benchmarks.e2e.rounds import Run, measure
from benchmarks.e2e.systems import QUICK, READERS
from benchmarks.systems import NotAvailable

PARTS = ("throughput", "latency", "instance", "spark")

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False
)

Rounds = Annotated[int, typer.Option(min=1, help="Runs of each; the median counts.")]
Scale = Annotated[float, typer.Option(min=0.001, help="Part of the full number of rows.")]


@app.command()
def run(
    part: Annotated[
        list[str] | None, typer.Option(help=f"Only this: {', '.join(PARTS)}; repeatable.")
    ] = None,
    workload: Names = None,
    reader: Names = None,
    rounds: Rounds = 3,
    scale: Scale = 1.0,
    rate: Annotated[float, typer.Option(help="Transactions/s of the latency part.")] = 1000.0,
    seconds: Annotated[float, typer.Option(help="So long the latency part writes.")] = 20.0,
    idle: Annotated[float, typer.Option(help="Seconds over which an idle CPU counts.")] = 60.0,
    out: Annotated[Path | None, typer.Option(help="Add the figures to this JSON file.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Plot throughput into this SVG.")] = None,
) -> None:
    """Measure, print tables, and keep the figures if told to."""
    wanted = chosen(part, PARTS)
    report: dict[str, Any] = {
        "date": dt.date.today().isoformat(),
        "command": "python -m benchmarks.e2e " + " ".join(sys.argv[1:]),
        "machine": machine(),
    }
    if "throughput" in wanted:
        made = made_of(workload, scale)
        figures, missing = throughput(made, chosen(reader, list(READERS)), rounds)
        report |= {
            "workloads": {each.name: work.described(each) for each in made},
            "versions": {name: _version(name) for name in dict.fromkeys(f.reader for f in figures)},
            "not_available": missing,
            "figures": [asdict(each) for each in figures],
        }
    report |= _other_parts(wanted, scale, rate, seconds, idle)
    if wanted != ["throughput"]:
        console.print(goals.table(report))
    if out is not None:
        _keep(out, report)
    if picture is not None and report.get("figures"):
        caption = f"rows/s, {report['date']}, {report['machine']['cpu']}"
        picture.write_text(plot.svg(fig.figures_of({"end_to_end": report}), caption), "utf-8")
        console.print(f"written: {picture}")


@contextlib.contextmanager
def _telling(total: int | None) -> Iterator[Callable[[str], None]]:
    """Tells what is being done: a moving line in a terminal, else a line each."""
    if not console.is_terminal:
        yield lambda text: console.print(f"{time.strftime('%H:%M:%S')} {text}")
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with progress_bar(*columns) as progress:
        task = progress.add_task("", total=total)

        def tell(text: str) -> None:
            progress.update(task, description=text)
            progress.advance(task)

        yield tell


def throughput(
    made: Sequence[work.Made], readers: Sequence[str], rounds: int
) -> tuple[list[fig.Figure], dict[str, str]]:
    """Figures, and why readers are missing; both are printed."""
    runs: dict[tuple[str, str], list[Run]] = {}
    missing: dict[str, str] = {}
    with _telling(len(made) * len(readers) * rounds) as telling:
        for result in measure(made, readers, rounds, telling):
            if result.run is None:
                missing[result.reader] = result.missing
            else:
                runs.setdefault((result.workload, result.reader), []).append(result.run)
    figures = [fig.figure(*key, found) for key, found in runs.items()]
    console.print(fig.figure_table(figures))
    console.print(fig.split_table(figures))
    console.print(fig.goal_table(figures))
    for name, reason in missing.items():
        console.print(f"{name} not available: {reason}")
    return figures, missing


def _other_parts(
    wanted: Sequence[str], scale: float, rate: float, seconds: float, idle: float
) -> dict[str, Any]:
    """Figures of each part; what could not be measured says why under `not_measured`."""
    found: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    with _telling(None) as telling:
        measures: dict[str, Callable[[], dict[str, Any]]] = {
            "latency": lambda: parts.latency(rate, seconds, telling),
            "instance": lambda: parts.instance(_made_one("W1", scale), idle, telling),
            "spark": lambda: parts.spark(_made_one("W1", scale), telling),
        }
        for name, measured in measures.items():
            if name in wanted:
                try:
                    found[name] = measured()
                except (NotAvailable, ChildFailed) as error:
                    reasons[name] = str(error)
                    console.print(f"{name} not measured: {error}", style="red")
    return {**found, "not_measured": reasons} if reasons else found


def _made_one(name: str, scale: float) -> work.Made:
    return work.make(work.WORKLOADS[name], scale, lambda _: None)


def _version(reader: str) -> str:
    return READERS[reader].version() or "of this tree"


def _keep(out: Path, report: dict[str, Any]) -> None:
    """Under `end_to_end`; parts that were not measured now keep what is there."""
    whole = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    whole["end_to_end"] = {**whole.get("end_to_end", {}), **report}
    out.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    console.print(f"written: {out}")


@app.command()
def check(
    workload: Names = None,
    reader: Names = None,
    rounds: Rounds = 3,
    scale: Scale = 1.0,
    against: Annotated[Path, typer.Option(help="Committed figures.")] = BENCH_JSON,
) -> None:
    """Fail when a ratio of throughput lost over 20 % against the committed figures. Without
    --reader, of the readers that take seconds."""
    report = json.loads(against.read_text(encoding="utf-8"))
    committed = fig.figures_of(report)
    if not committed:
        console.print(f"{against} has no end-to-end figures; make them with `make bench-e2e`")
        raise typer.Exit(2)
    readers = chosen(reader, list(READERS)) if reader else list(QUICK)
    figures, missing = throughput(made_of(workload, scale), readers, rounds)
    if not any(fig.ratios(figures)):
        console.print(f"nothing to compare: {', '.join(missing)} not available")
        raise typer.Exit(2)
    judge(fig.losses(figures, committed), report["end_to_end"]["machine"]["cpu"])


if __name__ == "__main__":
    # Servers and clusters are ended by their blocks.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    app()
