"""Reading tables: rows and CPU seconds next to a socket that throws everything away, and to peers.

    python -m benchmarks.snapshot [--part rates,others,memory] [--rows 1000000] [--runs 3]
        [--sizes 1000000,50000000] [--out benchmarks/bench.json]

Each system reads one table of eight columns and one of sixty from the same server on this machine,
in a process of its own that is warm. Ratios hold from machine to machine, figures do not.
`--out` keeps the parts that were measured.
"""

from __future__ import annotations

import datetime
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.command import machine
from benchmarks.e2e.child import ChildFailed
from benchmarks.snapshot import readers as r
from benchmarks.snapshot.beside import beside, memory
from benchmarks.snapshot.tables import fill, fill_narrow, rows_of
from benchmarks.systems import NotAvailable
from ray_canal.model.snapshot_wish import CONSISTENT, KEYED
from tests.servers import Server, start

PARTS = ("rates", "others", "memory")
_SERVER = {"innodb-buffer-pool-size": "2G", "innodb-redo-log-capacity": "512M"}
_DEBEZIUM_MAX = 400_000
"""Rows of it: it is slow."""
GOALS = (
    # ours, the other, at least, of the CPU at most (0: no goal), of (item, wide)
    (r.IN_A_LOG, r.SOCKET, (0.85, 0.80), 0.0),
    (r.IN_A_LOG_2, r.SOCKETS, (0.85, 0.80), 0.0),
    (r.IN_A_LOG, r.CONNECTORX, (1.2, 1.2), 1 / 3),
    (r.IN_A_LOG_2, r.CONNECTORX_2, (1.2, 1.2), 1 / 3),
    (r.IN_A_LOG, r.DEBEZIUM, (8.0, 10.0), 0.0),
    (r.IN_A_LOG, r.MYSQLCLIENT, (2.5, 5.0), 0.0),
)
TABLES = ("item", "wide")


def rates(server: Server, rows: int, runs: int, only: str) -> dict[str, Any]:
    """Rows a second and CPU seconds per million rows of each system that can be had."""
    fill(server, rows)
    found: dict[str, Any] = {"rows": rows, "runs": runs, "figures": {}, "not_available": {}}
    for table in TABLES:
        for name in r.NAMES:
            count = rows_of(table, rows)
            if only and name not in only.split("|"):
                continue
            try:
                figures = r.in_a_process(name, server.address, table, count, runs)
            except (NotAvailable, ChildFailed, subprocess.CalledProcessError) as error:
                found["not_available"][name] = str(error).splitlines()[-1][:200]
                continue
            if name != r.DEBEZIUM and any(figure.rows != count for figure in figures):
                raise typer.BadParameter(f"{name} read {figures[0].rows} rows of {count}")
            per_s = statistics.median(figure.rows / figure.seconds for figure in figures)
            cpu_s = statistics.median(figure.cpu_s / figure.rows for figure in figures) * 1e6
            one = {"rows_per_s": round(per_s), "cpu_s_per_m": round(cpu_s, 3)}
            found["figures"].setdefault(table, {})[name] = one
            sys.stderr.write(f"{table} {name}: {one}\n")
    return found


def ratios(figures: dict[str, Any]) -> list[tuple[str, str, str, float, float, float, float]]:
    """(table, ours, other, of its rows/s, goal, of its CPU, goal) of what was measured."""
    found = []
    for ours, other, goals, cpu_goal in GOALS:
        for table, goal in zip(TABLES, goals, strict=True):
            mine, its = (figures.get(table, {}).get(name) for name in (ours, other))
            if mine and its:
                speed = mine["rows_per_s"] / its["rows_per_s"]
                cpu = mine["cpu_s_per_m"] / its["cpu_s_per_m"]
                found.append((table, ours, other, round(speed, 2), goal, round(cpu, 2), cpu_goal))
    return found


def show(report: dict[str, Any]) -> None:
    """Print what was measured, and goals."""
    console = Console(width=110)
    figures = report.get("rates", {}).get("figures", {})
    shown = Table("table", "system", "1,000 rows/s", "CPU s per M rows")
    for table, systems in figures.items():
        for name, one in systems.items():
            per_s = f"{one['rows_per_s'] / 1000:,.0f}"
            shown.add_row(table, name, per_s, f"{one['cpu_s_per_m']:.2f}")
    console.print(shown)
    shown = Table("table", "ours", "next to", "times its rows/s", "goal", "its CPU", "goal")
    for table, ours, other, speed, goal, cpu, cpu_goal in ratios(figures):
        limit = f"≤ {cpu_goal:.2f}" if cpu_goal else ""
        shown.add_row(table, ours, other, f"{speed:.2f}", f"≥ {goal}", f"{cpu:.2f}", limit)
    console.print(shown)
    console.print({name: report[name] for name in PARTS if name in report and name != "rates"})


def _child(*task: Any) -> Any:
    command = [sys.executable, "-m", "benchmarks.snapshot", "--task", json.dumps(task)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def _do(task: list[Any]) -> Any:
    """Of a child."""
    name, *rest = task
    if name == "others":
        return beside(rest[0], rest[1], snapshots=rest[2])
    return memory(*rest) if name == "memory" else r.measure(name, *rest)


def beside_in_turns(server: Server, rows: int, runs: int) -> list[dict[str, Any]]:
    """Without and with snapshots, in turns."""
    fill(server, rows)
    return [
        {
            "without": _child("others", server.address, table, False),
            "with": _child("others", server.address, table, True),
            "table": table,
        }
        for table in TABLES
        for _ in range(runs)
    ]


def memory_of(server: Server, sizes: list[int]) -> list[Any]:
    """Of each size, by each mode, in a process of its own."""
    found = []
    for size in sorted(sizes):
        fill_narrow(server, size)
        found += [_child("memory", server.address, size, mode) for mode in (KEYED, CONSISTENT)]
        sys.stderr.write(f"{found[-2:]}\n")
    return found


def main(
    part: Annotated[str, typer.Option(help="What to measure.")] = "rates,others",
    rows: Annotated[int, typer.Option(help="Rows of the narrow table.")] = 1_000_000,
    runs: Annotated[int, typer.Option(help="Runs of each; the median counts.")] = 3,
    sizes: Annotated[str, typer.Option(help="Rows of a table of two columns, for memory.")] = (
        "1000000,50000000"
    ),
    only: Annotated[str, typer.Option(help="Systems to measure, `|` between them.")] = "",
    out: Annotated[Path | None, typer.Option(help="A bench.json to keep it in.")] = None,
    task: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Measure on a MySQL 9.7 of its own, and print tables."""
    if task:
        sys.stdout.write(json.dumps(_do(json.loads(task))))
        return
    report: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "command": "python -m benchmarks.snapshot " + " ".join(sys.argv[1:]),
        "machine": machine(),
    }
    with tempfile.TemporaryDirectory() as folder, start("mysql97", Path(folder), _SERVER) as server:
        if "rates" in part:
            report["rates"] = rates(server, rows, runs, only)
        if "others" in part:
            report["others"] = beside_in_turns(server, rows, runs)
        if "memory" in part:
            report["memory"] = memory_of(server, [int(size) for size in sizes.split(",")])
    show(report)
    if out is not None:
        kept = json.loads(out.read_text()) if out.exists() else {}
        kept["snapshot"] = {**kept.get("snapshot", {}), **report}
        out.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
