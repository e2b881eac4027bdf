"""What commands print, and that each has it for programs, too."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from ray.exceptions import RayTaskError, RpcError
from typer.testing import CliRunner

import ray_canal as canal
from ray_canal import __main__, cli
from ray_canal.cli.answer import answer, down_by, ray_text
from ray_canal.config import load
from ray_canal.demo import BINLOGS
from ray_canal.errors import ConfigError, InstanceNotFound

PRINTS_JSON_LINES = {"redrive", "sink run", "decode"}
"""Without being asked, or in the format that is asked for."""
ABOUT_NO_DEPLOYMENT = {"console", "import", "import-meta", "spark-jar", "demo", "snapshot read"}


def test_lines_are_for_people_and_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"stopped": "orders"}
    answer(found, "orders: stopped", "a second line", as_json=False)
    assert capsys.readouterr().out == "orders: stopped\na second line\n"
    answer(found, "orders: stopped", as_json=True)
    assert json.loads(capsys.readouterr().out) == found


def test_an_error_of_rays_is_a_line_and_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def away(*_: object, **__: object) -> None:
        raise RpcError("Deadline Exceeded\nand much more")

    monkeypatch.setattr(canal, "stop", away)
    monkeypatch.setattr("sys.argv", ["ray-canal", "stop", "orders"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert told.startswith("ray-canal: Ray: RpcError: Deadline Exceeded; see `ray status`")
    assert told.count("\n") == 1


def test_an_error_in_a_task_is_told_by_its_cause() -> None:
    """Its own text begins with where it was: "ray::RayDPSparkMaster.start_up() (pid=1577, …"."""
    cause = OSError("Java gateway process\nexited")
    error = RayTaskError("start_up()", "Traceback …", cause, "ray::start_up()", 1577, "192.0.2.2")
    told = "Ray: start_up(): OSError: Java gateway process exited; see the newest logs"
    assert ray_text(error).startswith(told)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), 130),
        (ConfigError("no such thing"), 1),
        (BrokenPipeError(errno.EPIPE, "nobody reads"), 0),  # as of `ray-canal decode … | head`
    ],
)
def test_exit_codes(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(canal, "stop", fails)
    monkeypatch.setattr("sys.argv", ["ray-canal", "stop", "orders"])
    for stream in ("stdout", "stderr"):  # what is changed of them is undone
        monkeypatch.setattr(sys, stream, getattr(sys, stream))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("nowhere/out.jsonl", "No such file or directory: {}"),
        ("", "Is a directory: {}"),
        ("/dev/full", "No space left on device: {}"),
    ],
)
def test_an_output_that_cannot_be_written_is_a_line_and_not_a_traceback(
    output: str,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = str(tmp_path / output)
    monkeypatch.setattr("sys.argv", ["ray-canal", "decode", str(BINLOGS[0]), "-o", out])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"ray-canal: {told.format(out)}\n"


def test_a_full_disk_is_a_line_and_not_a_traceback() -> None:
    command = [sys.executable, "-c", "from ray_canal.cli import main; main()", "console", "--rules"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (1, "ray-canal: No space left on device\n")


def test_ctrl_c_while_the_command_is_loaded_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted:
        def find_spec(self, *_: object) -> None:
            raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "ray_canal.cli")
    monkeypatch.setattr(sys, "meta_path", [Interrupted()])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == 130


def test_a_destination_that_is_down_has_its_subscribers_in_a_file() -> None:
    for config, told in ((None, "start it, or name its file by --config"), (Path("c"), "start it")):
        with pytest.raises(InstanceNotFound, match=told) as raised, down_by(config):
            raise InstanceNotFound("start it")
        assert ("--config" in str(raised.value)) is (config is None)


def commands() -> Iterator[tuple[str, set[str]]]:
    """Each command with its options, those of groups by two words."""
    for name, command in typer.main.get_command(cli.app).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", {"": command})
        for each, one in below.items():
            yield f"{name} {each}".strip(), {opt for p in one.params for opt in p.opts}


def test_every_command_about_a_deployment_has_json() -> None:
    without = {name for name, options in commands() if "--json" not in options}
    assert without == PRINTS_JSON_LINES | ABOUT_NO_DEPLOYMENT


def test_the_list_of_commands_has_a_sentence_for_each() -> None:
    """Its lines are broken where the docstring's are, and end with the first paragraph."""
    found = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    every = [c for one in found.values() for c in (one, *getattr(one, "commands", {}).values())]
    assert not [c.name for c in every if "\n" in (c.help or "").partition("\n\n")[0]]


def test_a_destination_that_was_stopped_elsewhere_is_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By `ray-canal stop`, while `ray-canal start` waits for Ctrl-C."""
    asked: list[str] = []

    def stop(name: str, **_: object) -> None:
        asked.append(name)
        if name == "orders":
            raise InstanceNotFound("no destination 'orders' is running")

    monkeypatch.setattr(canal, "stop", stop)
    deployment = load({"instance": [{"destination": "orders", "source": {"files": ["b"]}}]})
    cli._stop_destinations(deployment, ["orders", "items"], as_json=False)
    assert asked == ["orders", "items"]
    assert capsys.readouterr().out == "orders: stopped\nitems: stopped\n"


def test_the_version_is_the_packages() -> None:
    told = CliRunner().invoke(cli.app, ["--version"])
    assert (told.exit_code, told.output) == (0, f"ray-canal {canal.__version__}\n")
