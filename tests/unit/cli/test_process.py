"""Commands whose output is closed, or has no place for some characters."""

from __future__ import annotations

import os
import subprocess
import sys

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
