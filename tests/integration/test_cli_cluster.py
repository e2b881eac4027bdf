"""The command on a cluster that runs already: what it stops, and in which namespace."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import ray_canal as canal
from ray_canal import cli, errors
from ray_canal.demo import binlog_files

pytestmark = pytest.mark.usefixtures("local_ray")

NAMESPACE = "tenant"


def command(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(a) for a in arguments], catch_exceptions=False)


def written(folder: Path, *names: str) -> Path:
    """A configuration of destinations that read the bundled files, in a namespace of its own."""
    config = folder / f"{'_'.join(names)}.toml"
    config.write_text(
        f'[ray]\nnamespace = "{NAMESPACE}"\n[meta]\npath = "meta.db"\n'
        + "".join(
            f'[[instance]]\ndestination = "{name}"\nsource.files = ["{binlog_files()[0]}"]\n'
            for name in names
        )
    )
    return config


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C as soon as the command waits for it."""

    @contextlib.contextmanager
    def at_once() -> Iterator[threading.Event]:
        stopped = threading.Event()
        stopped.set()
        yield stopped

    monkeypatch.setattr(cli, "_until_signal", at_once)


@pytest.mark.usefixtures("signalled")
def test_start_stops_what_it_started_in_its_namespace(tmp_path: Path) -> None:
    """b17: a destination that ran before an attached `start` goes on after its Ctrl-C. D2: what is
    in another namespace is stopped and shown there."""
    canal.start(str(written(tmp_path, "early")))
    try:
        done = command("start", written(tmp_path, "early", "late"))
        assert done.exit_code == 0, done.output
        assert "early: running, started before" in done.output
        assert "late: stopped" in done.output
        assert "early: stopped" not in done.output
        assert canal.destinations(namespace=NAMESPACE) == ["early"]
        shown = command("status", "early", "--namespace", NAMESPACE)
        assert "early" in shown.output
        with pytest.raises(errors.InstanceNotFound):
            command("status", "early")
    finally:
        stopped = command("stop", "early", "--namespace", NAMESPACE)
    assert "early: stopped" in stopped.output
    assert canal.destinations(namespace=NAMESPACE) == []
