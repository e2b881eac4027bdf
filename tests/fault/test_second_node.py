"""A short fault run over a node that joins, decodes, and dies with the chunks that lie on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.run import FaultRun
from tests.servers import start


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_node_that_dies_with_chunks_costs_no_row(tmp_path: Path) -> None:
    """B1: while rows are written, and four subscribers read them."""
    with start("mysql97", tmp_path / "server") as server:
        with FaultRun(server, tmp_path, seed=1, decoders=2, burst_rows=150) as run:
            for _ in range(2):
                print(f"{run.fault('kill second node'):.1f} s")
            run.judge()
        print(run.report())
    held = (tmp_path / "tests.fault.second_node.log").read_text().splitlines()
    assert max(int(line) for line in held if line.isdigit()) > 0
    assert all(judge.rows for judge in run.judges.values())
