"""The audit log of the console."""

from __future__ import annotations

import json
from pathlib import Path

from ray_canal.console.audit import Audit


def test_each_change_is_a_line_of_its_own_that_a_new_process_adds_to(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    Audit(str(path)).tell("ann", "stop", "orders")
    Audit(str(path)).tell("bob", "seek", "orders", client_id=7)
    first, second = (json.loads(line) for line in path.read_text("utf-8").splitlines())
    assert (first["user"], first["action"], first["destination"]) == ("ann", "stop", "orders")
    assert second["client_id"] == 7
    assert first["time"] <= second["time"]


def test_without_a_file_it_only_logs(tmp_path: Path) -> None:
    Audit().tell("ann", "stop")
    assert not list(tmp_path.iterdir())
