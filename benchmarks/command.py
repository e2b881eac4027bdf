"""What the benchmarks' commands share: names given, workloads made, the machine described."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, ProgressColumn

from benchmarks import workloads as work

BENCH_JSON = Path(__file__).with_name("bench.json")
console = Console(width=120 if not sys.stdout.isatty() else None)


Names = Annotated[list[str] | None, typer.Option(help="Only this one; give it again for more.")]


def chosen(given: Sequence[str] | None, all_names: Sequence[str]) -> list[str]:
    """Those given, in the order of all; all, when none is given. Raises BadParameter."""
    unknown = [name for name in given or [] if name not in all_names]
    if unknown:
        raise typer.BadParameter(f"no {unknown[0]!r}; there are {', '.join(all_names)}")
    return [name for name in all_names if not given or name in given]


def progress_bar(*columns: ProgressColumn) -> Progress:
    """In a terminal alone, and drawn seldom: on two cores, what is measured would wait for it."""
    shown = console.is_terminal
    return Progress(
        *columns, console=console, transient=True, refresh_per_second=1, disable=not shown
    )


def made_of(names: list[str] | None, scale: float) -> list[work.Made]:
    """The workloads' files, made where they are not in the cache."""
    made = []
    with progress_bar() as progress:
        for name in chosen(names, list(work.WORKLOADS)):
            workload = work.WORKLOADS[name]
            task = progress.add_task(f"making {name}", total=workload.rows * scale)
            made.append(work.make(workload, scale, partial(progress.advance, task)))
            progress.remove_task(task)
    return made


def machine() -> dict[str, Any]:
    """What bench.json says of the machine, its load included."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load_average": os.getloadavg()[0],
    }


def _cpu() -> str:
    """Its name, and what the name does not tell apart: virtual machines leave the number out."""
    said: dict[str, str] = {}
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            name, _, value = line.partition(":")
            said.setdefault(name.strip(), value.strip())
    if "model name" not in said:
        return platform.processor()
    wide = "AVX-512" if "avx512f" in said.get("flags", "").split() else "no AVX-512"
    family, model = said.get("cpu family", "?"), said.get("model", "?")
    return f"{said['model name']} (family {family}, model {model}, {wide})"


def judge(lost: Sequence[str], made_on: str) -> None:
    """The end of a check against figures of the CPU `made_on`: prints what was lost, and then
    fails."""
    if not lost:
        console.print("no ratio lost more than 20 %")
        return
    for line in lost:
        console.print(f"slower: {line}", style="red")
    if made_on != _cpu():
        console.print(
            f"The figures compared with were made on another CPU: {made_on}; this is {_cpu()}. "
            "Ratios differ by a third between some. Make figures with the code before the change "
            "on this one (`run --out FILE`), then `check --against FILE`."
        )
    raise typer.Exit(1)
