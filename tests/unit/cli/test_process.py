"""Commands whose output is closed or has no place for some characters, and few open files."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from ray_canal.cli.process import prepare_process
from ray_canal.demo import BINLOGS


def test_a_closed_output_is_a_line_and_no_file_gets_its_number() -> None:
    """`>&-`, as some supervisors have it: Python has no sys.stdout then."""
    code = """if True:
        import sys
        from ray_canal import cli
        try:
            cli.main()
        finally:
            assert open(sys.argv[-1]).fileno() > 2"""
    shell = f"exec {sys.executable} -c '{code}' decode {BINLOGS[0]} >&-"
    ended = subprocess.run(["sh", "-c", shell], stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert ended.stderr.startswith("ray-canal: ConfigError: standard output is closed")
    assert ended.stderr.count("\n") == 1


def test_text_that_the_output_cannot_have_is_escaped() -> None:
    code = "import typer; from ray_canal import cli; cli.app = lambda: typer.echo('漢')"
    env = {**os.environ, "PYTHONIOENCODING": "iso8859-1"}
    command = [sys.executable, "-c", f"{code}; cli.main()"]
    found = subprocess.run(command, env=env, capture_output=True, text=True)
    assert (found.stdout, found.stderr) == ("\\u6f22\n", "")


@pytest.mark.parametrize(
    ("limits", "then"),
    [((1024, 1 << 20), (65536, 1 << 20)), ((64, 4096), (4096, 4096)), ((1024, -1), (65536, -1)),
     ((1 << 17, 1 << 20), None), ((-1, -1), None), ((64, 64), None)],
)  # fmt: skip
def test_as_many_files_are_opened_as_the_user_may(
    limits: tuple[int, int], then: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: told.append(both))
    prepare_process()
    assert told == ([then] if then else [])
