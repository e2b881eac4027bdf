"""Ctrl-C while `start` waits for a source; the rest is in tests/integration/test_cli_cluster.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ray_canal as canal
from ray_canal import cli
from ray_canal.client import joining


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is stopped, where `old` ran before, and the source of `new` does not answer."""
    found: list[str] = []
    running = ["old"]

    def start(*_: Any, **__: Any) -> list[str]:
        running.append("new")
        raise KeyboardInterrupt

    monkeypatch.setattr(joining, "connect_ray", lambda *_, **__: None)
    monkeypatch.setattr(canal, "destinations", lambda **_: list(running))
    monkeypatch.setattr(canal, "start", start)
    monkeypatch.setattr(canal, "stop", lambda name, **_: found.append(name))
    return found


def command(folder: Path, *options: str) -> Any:
    """`third` was not begun when Ctrl-C came."""
    config = folder / "canal.toml"
    config.write_text(
        "".join(
            f'[[instance]]\ndestination = "{name}"\nsource.address = "127.0.0.1:3306"\n'
            for name in ("old", "new", "third")
        )
    )
    return CliRunner().invoke(cli.app, ["start", str(config), *options])


def test_it_stops_what_it_has_begun(tmp_path: Path, stopped: list[str]) -> None:
    done = command(tmp_path)
    assert stopped == ["new"]
    assert done.exit_code != 0
    assert "new: stopped" in done.output


def test_what_is_to_stay_is_named(tmp_path: Path, stopped: list[str]) -> None:
    done = command(tmp_path, "--detach")
    assert stopped == []
    assert done.exit_code != 0
    assert "new: goes on; `ray-canal stop new` stops it" in done.output
