"""The end-to-end instrument: medians, ratios, goals, the check, the plot, the lines of children."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console
from rich.table import Table

from benchmarks.e2e import goals, plot
from benchmarks.e2e.child import Child, ChildFailed
from benchmarks.e2e.figures import (
    FASTER_ZONGJI,
    Figure,
    figure,
    figure_table,
    figures_of,
    goal_table,
    losses,
    ratio,
    split_table,
)
from benchmarks.e2e.processes import cpu_s, peak_mb
from benchmarks.e2e.rounds import Run
from benchmarks.e2e.systems import ARROW, READERS, ZONGJI
from benchmarks.workloads import Made

OURS = Figure(
    "W1", ARROW, 2_000_000, 1_500_000, 1_600_000, 1_400_000, 180.0, 1.0, 0.1, 900.0, 3
)
SLOW, FAST = (
    replace(OURS, reader=name, rows_per_s=rate)
    for name, rate in zip(ZONGJI, (75_000, 100_000), strict=True)
)
LINES = (
    "import sys\n"
    'for at in sys.argv[1:]: print(\'noise\'); print(\'{"at": "%s", "ns": 1, "rows": 2}\' % at)\n'
    "sys.stdout.flush(); sys.stdin.read()"
)


def shown(table: Table) -> str:
    console = Console(width=160, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_figure_is_the_median_of_its_runs() -> None:
    runs = [
        Run(1000, 2e6, each, 900 / each, each / 2, 50.0, 0.001, {"a": 0.001, "b": each / 2})
        for each in (1.0, 8.0, 2.0)
    ]
    found = figure("W2", ARROW, runs)
    split = {"b": 1000.0}  # "a" is next to nothing
    assert found == Figure("W2", ARROW, 1000, 500, 1000, 450, 1.0, 1000.0, 1.0, 50.0, 3, split)
    assert "b 1000.00" not in shown(split_table([found]))  # alone, it needs no line
    assert "a 1.00, b 2.00" in shown(split_table([replace(found, cpu_of={"a": 1.0, "b": 2.0})]))


def test_a_ratio_is_of_rows_a_second_and_zongji_is_its_faster_fork() -> None:
    assert ratio([OURS, SLOW, FAST], "W1", ARROW, FASTER_ZONGJI) == 15.0
    assert ratio([OURS, SLOW], "W1", ARROW, FASTER_ZONGJI) == 20.0
    assert ratio([OURS], "W1", ARROW, FASTER_ZONGJI) is None


@pytest.mark.parametrize(("rows_per_s", "lost"), [(1_500_000, 0), (1_210_000, 0), (1_190_000, 1)])
def test_the_check_allows_a_fifth(rows_per_s: float, lost: int) -> None:
    found = losses([replace(OURS, rows_per_s=rows_per_s), FAST], [OURS, FAST])
    assert len(found) == lost
    assert all("15.0 x" in line for line in found)


def test_figures_come_back_from_json() -> None:
    report = {"figures": [], "end_to_end": {"figures": [asdict(OURS), asdict(FAST)]}}
    assert figures_of(json.loads(json.dumps(report))) == [OURS, FAST]
    assert figures_of({"figures": [1]}) == []


def test_tables_show_what_was_reached_and_what_was_not() -> None:
    assert {"1,500,000", "1,400,000"} <= set(shown(figure_table([OURS, FAST])).split())
    text = shown(goal_table([OURS, FAST]))
    assert text.count("missed") == 1  # the rate; 15 times the faster zongji is enough
    assert text.count("reached") == 1
    report = {
        "latency": {"busy": {"p50_ms": 2.9, "p99_ms": 10.1}},
        "instance": {"idle_cpu_percent": 0.9},
    }
    verdicts = {what: reached for what, *_, reached in goals.lines(report)}
    assert list(verdicts.values()) == [True, False, True]
    assert shown(goals.table(report)).count("missed") == 1


def test_the_plot_is_a_picture_with_a_bar_for_each_reader() -> None:
    root = ElementTree.fromstring(plot.svg([OURS, FAST], "a < b & c"))
    texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "a < b & c" in texts
    assert {ARROW, FAST.reader, "1,500,000", "W1"} <= set(texts)
    bars = [node for node in root.iter("{http://www.w3.org/2000/svg}rect") if node.get("x")]
    assert float(bars[0].get("width", "0")) > float(bars[1].get("width", "0")) > 0


def test_slow_readers_get_fewer_rows() -> None:
    made = Made("W1", 1_000_000, 10, ())
    assert READERS[ARROW].rows(made) == 1_000_000
    assert READERS["mysql-replication"].rows(made) == 40_000
    assert READERS["mysql-replication"].rows(replace(made, rows=5)) == 5


def test_a_childs_lines_come_in_order_and_its_processes_end_with_it() -> None:
    with Child([sys.executable, "-c", LINES, "ready", "mark", "end"]) as child:
        assert child.wait("ready", 30.0)["rows"] == 2
        assert child.wait("end", 30.0)["ns"] == 1  # over the mark
        assert child.pids() == [child.process.pid]
    assert child.process.returncode == 0


@pytest.mark.parametrize(
    ("said", "limit_s", "words"),
    [(("ready", "end"), 60.0, "too few rows"), (("ready",), 1.0, "nothing for")],
)
def test_a_child_that_does_not_say_it_has_failed(
    said: tuple[str, ...], limit_s: float, words: str
) -> None:
    with Child([sys.executable, "-c", LINES, *said]) as child, pytest.raises(ChildFailed) as failed:
        child.wait("mark", limit_s)
    assert words in str(failed.value)


def test_a_childs_last_words_are_told() -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such thing')"]
    with Child(command) as child, pytest.raises(ChildFailed, match="no such thing"):
        child.wait("ready", 30.0)


def test_cpu_and_memory_of_this_process() -> None:
    before, held = cpu_s([os.getpid()]), bytearray(64 << 20)
    deadline = time.process_time() + 0.1
    while time.process_time() < deadline:
        held[0] ^= 1
    assert cpu_s([os.getpid()]) >= before + 0.08
    assert peak_mb([os.getpid()]) > 67
    assert cpu_s([2**22 + 1]) == peak_mb([2**22 + 1]) == 0.0  # no such process


def test_every_peer_has_its_script() -> None:
    folder = Path(__file__).parents[3] / "benchmarks" / "e2e" / "peers"
    scripts = {path.name for path in folder.iterdir() if path.is_file()}
    assert {"zongji.mjs", "BareParser.java", "Embedded.java", "event_stream.py"} <= scripts
