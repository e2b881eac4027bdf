"""`python -m benchmarks`: make the workloads, run the systems, print and keep the figures."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import sys
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from benchmarks import figures as fig
from benchmarks import workloads as work
from benchmarks.measure import Run, RunFailed, kernels_compiled, run_once
from benchmarks.systems import BASE, OURS, SYSTEMS, NotAvailable, version_of

BENCH_JSON = Path(__file__).with_name("bench.json")

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False
)
console = Console(width=110 if not sys.stdout.isatty() else None)

Names = Annotated[list[str] | None, typer.Option(help="Only this one; give it again for more.")]
Runs = Annotated[int, typer.Option(min=1, help="Runs of each; the median counts.")]
Scale = Annotated[float, typer.Option(min=0.0001, help="Part of the full number of rows.")]


@app.command()
def generate(workload: Names = None, scale: Scale = 1.0) -> None:
    """Make the workloads' binlog files in the cache."""
    for made in _made(workload, scale):
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
    chosen = _chosen(system, list(SYSTEMS))
    made = _made(workload, scale)
    kernels: dict[str, float] = {}
    with ExitStack() as stack:
        if start:
            kernels = stack.enter_context(kernels_compiled())
        figures, missing = _measured(made, chosen, runs)
    report = {
        "date": dt.date.today().isoformat(),
        "command": "python -m benchmarks " + " ".join(sys.argv[1:]),
        "machine": _machine(),
        "versions": _versions(chosen, missing),
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
        out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
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
    committed = fig.figures_of(json.loads(against.read_text(encoding="utf-8")))
    figures, missing = _measured(_made(workload, scale), [*OURS, BASE], runs)
    _show(figures, missing)
    if missing:
        console.print("nothing to compare without these")
        raise typer.Exit(2)
    lost = fig.losses(figures, committed)
    for line in lost:
        console.print(f"slower: {line}", style="red")
    if lost:
        raise typer.Exit(1)
    console.print("no ratio lost more than 20 %")


def _chosen(given: list[str] | None, all_names: list[str]) -> list[str]:
    unknown = [name for name in given or [] if name not in all_names]
    if unknown:
        raise typer.BadParameter(f"no {unknown[0]!r}; there are {', '.join(all_names)}")
    return [name for name in all_names if not given or name in given]


def _made(names: list[str] | None, scale: float) -> list[work.Made]:
    made = []
    with Progress(console=console, transient=True) as progress:
        for name in _chosen(names, list(work.WORKLOADS)):
            workload = work.WORKLOADS[name]
            task = progress.add_task(f"making {name}", total=workload.rows * scale)
            made.append(work.make(workload, scale, partial(progress.advance, task)))
            progress.remove_task(task)
    return made


def _measured(
    workloads: list[work.Made], systems: list[str], runs: int
) -> tuple[list[fig.Figure], dict[str, str]]:
    """Figures, and why systems are missing. Rounds go over all systems, so that a busy minute of
    the machine hits them all."""
    figures: list[fig.Figure] = []
    missing: dict[str, str] = {}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=len(workloads) * len(systems) * runs)
        for made in workloads:
            found: dict[str, list[Run]] = {name: [] for name in systems}
            for _ in range(runs):
                for name in systems:
                    progress.update(task, description=f"{made.name} {name}")
                    if name not in missing:
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


def _machine() -> dict[str, Any]:
    model = platform.processor()
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        names = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": names[0] if names else model,
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load_average": os.getloadavg()[0],
    }


def _versions(systems: list[str], missing: dict[str, str]) -> dict[str, str]:
    versions = {"python": platform.python_version()}
    versions |= {name: version(name) for name in ("numba", "numpy", "pyarrow")}
    for name in systems:
        if name not in missing:
            versions[name] = version_of(name)
    return versions


if __name__ == "__main__":
    app()
