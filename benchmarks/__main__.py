"""`python -m benchmarks`: make the workloads, run the systems, print and keep the figures."""

from __future__ import annotations

import datetime as dt
import json
import platform
import sys
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import figures as fig
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
from benchmarks.measure import Run, RunFailed, kernels_compiled, run_once
from benchmarks.systems import BASE, OURS, SYSTEMS, NotAvailable, version_of

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False
)

Runs = Annotated[int, typer.Option(min=1, help="Runs of each; the median counts.")]
Scale = Annotated[float, typer.Option(min=0.0001, help="Part of the full number of rows.")]


@app.command()
def generate(workload: Names = None, scale: Scale = 1.0) -> None:
    """Make the workloads' binlog files in the cache."""
    for made in made_of(workload, scale):
        console.print(f"{made.name}: {made.rows:,} rows, {made.size_bytes / 1e6:.1f} MB")


@app.command()
def run(
    workload: Names = None,
    system: Names = None,
    runs: Runs = 3,
    scale: Scale = 1.0,
    out: Annotated[Path | None, typer.Option(help="Write the figures here, as JSON.")] = None,
    start: Annotated[bool, typer.Option(help="Also time compiling the kernels.")] = True,
) -> None:
    """Measure, and print one table."""
    systems = chosen(system, list(SYSTEMS))
    made = made_of(workload, scale)
    kernels: dict[str, float] = {}
    with ExitStack() as stack:
        if start:
            kernels = stack.enter_context(kernels_compiled())
        figures, missing = _measured(made, systems, runs)
    report = {
        "date": dt.date.today().isoformat(),
        "command": "python -m benchmarks " + " ".join(sys.argv[1:]),
        "machine": machine(),
        "versions": _versions(systems, missing),
        "workloads": {each.name: work.described(each) for each in made},
        "not_available": missing,
        "kernels": kernels,
        "figures": [asdict(each) for each in figures],
    }
    _show(figures, missing)
    if start:
        console.print(
            f"kernels: {kernels['compile_s']:.1f} s to compile, once a machine; "
            f"{kernels['from_cache_s']:.2f} s from the cache (goal: under 1 s)"
        )
    if out is not None:
        kept = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
        kept = {name: kept[name] for name in ("end_to_end", "snapshot") if name in kept}
        out.write_text(json.dumps(report | kept, indent=1) + "\n", encoding="utf-8")
        console.print(f"written: {out}")


@app.command()
def check(
    workload: Names = None,
    runs: Runs = 3,
    scale: Scale = 1.0,
    against: Annotated[Path, typer.Option(help="Committed figures.")] = BENCH_JSON,
) -> None:
    """Fail when a ratio to mysqlbinlog lost over 20 % against the committed figures."""
    if not against.exists():
        console.print(f"{against} is not there: python -m benchmarks run --out {against}")
        raise typer.Exit(2)
    report = json.loads(against.read_text(encoding="utf-8"))
    committed = fig.figures_of(report)
    figures, missing = _measured(made_of(workload, scale), [*OURS, BASE], runs)
    _show(figures, missing)
    if missing:
        console.print("nothing to compare without these")
        raise typer.Exit(2)
    judge(fig.losses(figures, committed), report["machine"]["cpu"])


def _measured(
    workloads: list[work.Made], systems: list[str], runs: int
) -> tuple[list[fig.Figure], dict[str, str]]:
    """Figures, and why systems are missing. Rounds go over all systems, so that a busy minute of
    the machine hits them all."""
    figures: list[fig.Figure] = []
    missing: dict[str, str] = {}
    with progress_bar() as progress:
        task = progress.add_task("measuring", total=len(workloads) * len(systems) * runs)
        for made in workloads:
            found: dict[str, list[Run]] = {name: [] for name in systems}
            for _ in range(runs):
                for name in systems:
                    progress.update(task, description=f"{made.name} {name}")
                    if name not in missing and made.server in SYSTEMS[name].servers:
                        try:
                            found[name].append(_one(name, made))
                        except (NotAvailable, RunFailed) as error:
                            if name in OURS:
                                raise
                            missing[name] = str(error)
                    progress.advance(task)
            figures += [fig.figure(made.name, n, f) for n, f in found.items() if len(f) == runs]
    return figures, missing


def _one(name: str, made: work.Made) -> Run:
    system = SYSTEMS[name]
    if not system.from_server:
        return run_once(system, made)
    with work.served(made) as server:
        return run_once(system, made, server.port)


def _show(figures: list[fig.Figure], missing: dict[str, str]) -> None:
    console.print(fig.figure_table(figures, BASE))
    console.print(fig.goal_table(figures))
    for name, reason in missing.items():
        console.print(f"{name} not available: {reason}")


def _versions(systems: list[str], missing: dict[str, str]) -> dict[str, str]:
    versions = {"python": platform.python_version()}
    versions |= {name: version(name) for name in ("numba", "numpy", "pyarrow")}
    for name in systems:
        if name not in missing:
            versions[name] = version_of(name)
    return versions


if __name__ == "__main__":
    app()
