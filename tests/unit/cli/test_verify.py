"""`ray-canal verify` over the bundled files: exit codes, both outputs, an early end."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import ray_canal.demo
from ray_canal.cli import app
from ray_canal.errors import ConfigError, PositionNotFound
from ray_canal.verify import runs
from ray_canal.verify.second_reader import Framed, file_events

FILES = sorted(str(p) for p in Path(ray_canal.demo.__file__).parent.glob("mysql-bin.*"))


def verify(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["verify", *arguments])


def falsified(path: Path) -> Iterator[Framed]:
    for position, data in file_events(path):
        yield Framed(position, data.replace(b"TEA-00001", b"TEA-00007"))


def test_files_that_agree() -> None:
    found = verify(*FILES)
    assert found.exit_code == 0
    assert "values compared: 0 differences" in found.stdout
    assert "not compared" not in found.stdout
    told = json.loads(verify("--json", *FILES).stdout)
    assert f"{told['values']:,} values compared" in found.stdout
    assert told["values"] > 60_000
    assert told["details"] == told["not_compared"] == []


def test_a_difference_is_shown_and_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "file_events", falsified)
    found = verify("--show", "1", FILES[0])
    assert found.exit_code == 1
    lines = found.stdout.splitlines()
    assert lines[0].startswith("mysql-bin.000001:3027 row 0 shop.items after.sku: ")
    assert lines[0].endswith("ray_canal 'TEA-00001', mysql-replication 'TEA-00007'")
    told = json.loads(verify("--json", FILES[0]).stdout)
    assert told["differences"] >= 1
    assert told["details"][0]["what"] == "after.sku"


def test_a_filter_leaves_tables_out() -> None:
    some = json.loads(verify("--json", "--filter", r"shop\.items", FILES[0]).stdout)
    whole = json.loads(verify("--json", FILES[0]).stdout)
    assert 0 < some["rows"] < whole["rows"]


def test_ctrl_c_reports_what_was_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path) -> Iterator[Framed]:
        for number, event in enumerate(file_events(path)):
            if number == 500:
                signal.raise_signal(signal.SIGINT)
            yield event

    monkeypatch.setattr(runs, "file_events", interrupted)
    before = signal.getsignal(signal.SIGINT)
    told = json.loads(verify("--json", FILES[0]).stdout)
    assert told["ended"] == "interrupted"
    assert 0 < told["events"] < 500
    assert signal.getsignal(signal.SIGINT) is before


def test_a_limit_of_time() -> None:
    found = verify("--seconds", "0", FILES[0])
    assert found.exit_code == 0
    assert "not to the end: after 0 s" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (["none.000001"], PositionNotFound, "no binlog file"),
        (["canal.toml"], ConfigError, "expected CONFIG DESTINATION"),
        (["canal.toml", "d", "--from", "x"], ConfigError, "expected FILE:POSITION"),
        (["canal.toml", "d"], ConfigError, r"verify its files with `ray-canal verify FILE…`"),
    ],
)
def test_what_is_refused(
    arguments: list[str],
    error: type[Exception],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("canal.toml").write_text(
        f'[[instance]]\ndestination = "d"\n[instance.source]\nfiles = ["{FILES[0]}"]\n'
    )
    found = verify(*arguments)
    assert isinstance(found.exception, error)
    assert told in str(found.exception)
