"""The audit log of the console."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ray_canal.console.audit import Audit
from ray_canal.logs import write_to_stderr
from tests.unit.test_logs import as_before as as_before


def test_each_change_is_a_line_of_its_own_that_a_new_process_adds_to(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    Audit(str(path)).tell("ann", "stop", "orders")
    Audit(str(path)).tell("bob", "seek", "orders", client_id=7)
    first, second = (json.loads(line) for line in path.read_text("utf-8").splitlines())
    assert (first["user"], first["action"], first["destination"]) == ("ann", "stop", "orders")
    assert second["client_id"] == 7
    assert first["time"] <= second["time"]


def test_nobody_writes_a_line_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_before: None
) -> None:
    """By a name that has line ends, or is as long as a body may be."""
    path = tmp_path / "audit.jsonl"
    write_to_stderr("text")
    name = "eve\n2026-11-24 INFO ray_canal.console.audit: audit: ada stop\x1b[2J" + "x" * 100_000
    Audit(str(path)).tell(name, "failed login")
    (line,) = capsys.readouterr().err.splitlines()
    assert "\x1b" not in line
    assert len(line) < 2000
    (kept,) = path.read_text("utf-8").splitlines()
    assert json.loads(kept)["user"].startswith("eve\n")
    assert len(kept) < 2000


def test_without_a_file_it_only_logs(tmp_path: Path) -> None:
    Audit().tell("ann", "stop")
    assert not list(tmp_path.iterdir())
