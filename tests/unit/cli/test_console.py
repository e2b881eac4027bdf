"""`ray-canal console`: files for Prometheus and Grafana, and the console that is opened."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from ray_canal import logs
from ray_canal.cli import app
from ray_canal.cli import console as module
from ray_canal.client import joining
from ray_canal.config import ConsoleConfig
from ray_canal.console import app as pages
from ray_canal.console import niceness
from ray_canal.console.rules import rules


def test_files_for_prometheus_and_grafana_are_printed_whole() -> None:
    told = CliRunner().invoke(app, ["console", "--rules"], catch_exceptions=False)
    assert told.output == rules()
    board = CliRunner().invoke(app, ["console", "--dashboard"], catch_exceptions=False)
    assert json.loads(board.output)["panels"]


class Opened:
    """Stands for a console: what it was made of, and whether it was opened and closed."""

    made: ClassVar[list[Opened]] = []

    def __init__(self, config: ConsoleConfig, cluster: Any, files: Any) -> None:
        self.config, self.files, self.calls = config, files, list[str]()
        Opened.made.append(self)

    def start(self) -> str:
        self.calls.append("start")
        return f"http://127.0.0.1:{self.config.port}"

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Opened]:
    @contextmanager
    def stopped_at_once() -> Iterator[threading.Event]:
        event = threading.Event()
        event.set()
        yield event

    Opened.made = []
    monkeypatch.setattr(pages, "Console", Opened)
    monkeypatch.setattr(niceness, "give_way", lambda: None)
    monkeypatch.setattr(joining, "connect_ray", lambda *_: None)
    monkeypatch.setattr(logs, "write_to_stderr", lambda *_: None)
    # The package's `console` is the command, so the module is found by the function's own names.
    monkeypatch.setitem(module.__globals__, "until_signal", stopped_at_once)
    return Opened.made


def test_a_section_counts_and_an_option_more(tmp_path: Path, opened: list[Opened]) -> None:
    config = tmp_path / "canal.toml"
    config.write_text(
        '[[instance]]\ndestination = "x"\nsource.address = "db:3306"\n[console]\nport = 8123\n',
        encoding="utf-8",
    )
    told = CliRunner().invoke(app, ["console", str(config)], catch_exceptions=False)
    assert "the console: http://127.0.0.1:8123" in told.output
    CliRunner().invoke(app, ["console", str(config), "--port", "8124"], catch_exceptions=False)
    assert [each.config.port for each in opened] == [8123, 8124]
    assert [each.calls for each in opened] == [["start", "stop"]] * 2


def test_without_a_file_this_machine_alone_reaches_it(opened: list[Opened]) -> None:
    CliRunner().invoke(app, ["console"], catch_exceptions=False)
    assert opened[0].config == ConsoleConfig()
    assert opened[0].config.listens_on == "127.0.0.1"
