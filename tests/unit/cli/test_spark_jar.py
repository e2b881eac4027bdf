"""`ray-canal spark-jar`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ray_canal import spark
from ray_canal.cli import app
from ray_canal.errors import ConfigError


def test_it_is_printed_or_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def jar(home: Path | None) -> Path:
        asked.append(home)
        (tmp_path / "made.jar").write_bytes(b"jar")
        return tmp_path / "made.jar"

    monkeypatch.setattr(spark, "jar", jar)
    run = CliRunner().invoke(app, ["spark-jar"])
    assert (run.exit_code, run.output.strip()) == (0, str(tmp_path / "made.jar"))
    out = tmp_path / "out.jar"
    run = CliRunner().invoke(app, ["spark-jar", "-o", str(out), "--spark-home", "/opt/spark"])
    assert (run.exit_code, run.output.strip()) == (0, str(out))
    assert out.read_bytes() == b"jar"
    assert asked == [None, Path("/opt/spark")]


def test_without_the_extra_it_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray_canal.spark", None)  # importing it fails
    run = CliRunner().invoke(app, ["spark-jar"])
    assert isinstance(run.exception, ConfigError)
