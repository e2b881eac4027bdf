"""The instrument on a tiny workload: files from a real server, children that decode them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_a_tiny_run_writes_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_CANAL_BENCH_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "bench.json"
    command = [
        sys.executable, "-m", "benchmarks", "run", "--workload", "W2", "--runs", "1",
        "--scale", "0.00025", "--no-start", "--out", str(out), "--system", "ray_canal-arrow",
        "--system", "ray_canal-entries", "--system", "mysqlbinlog",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_text())
    assert [f["system"] for f in report["figures"]] == [
        "ray_canal-arrow",
        "ray_canal-entries",
        "mysqlbinlog",
    ]
    for found in report["figures"]:
        assert found["rows"] == 400
        assert found["cpu_s_per_m_rows"] > 0
        if found["system"] != "mysqlbinlog":  # 400 rows: over before it can be looked at
            assert found["peak_rss_mb"] > 1
    assert report["not_available"] == {}


@pytest.mark.benchmark
def test_a_row_is_stamped_at_every_stage() -> None:
    options = ["--rate", "20", "--seconds", "2", "--json"]
    command = [sys.executable, "-m", "benchmarks.stages", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] >= 30
    stages = found["stages"]
    assert 0 < stages["parsed"]["p50_ms"] < stages["all"]["p50_ms"] <= stages["all"]["p99_ms"]
    means = [stage["mean_ms"] for name, stage in stages.items() if name != "all"]
    assert sum(means) == pytest.approx(stages["all"]["mean_ms"], abs=0.01)
    assert found["a_second"]["the store's process"]["wakes"] > 20
