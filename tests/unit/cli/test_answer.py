"""What commands print, and that each has it for programs, too."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import typer.main

from ray_canal import cli
from ray_canal.cli.answer import answer

PRINTS_JSON_LINES = {"tail", "redrive", "sink run", "decode"}
"""Without being asked, or in the format that is asked for."""
ABOUT_NO_DEPLOYMENT = {"console", "import", "import-meta", "spark-jar", "demo", "snapshot read"}


def test_lines_are_for_people_and_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"stopped": "orders"}
    answer(found, "orders: stopped", "a second line", as_json=False)
    assert capsys.readouterr().out == "orders: stopped\na second line\n"
    answer(found, "orders: stopped", as_json=True)
    assert json.loads(capsys.readouterr().out) == found


def commands() -> Iterator[tuple[str, set[str]]]:
    """Each command with its options, those of groups by two words."""
    for name, command in typer.main.get_command(cli.app).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", {"": command})
        for each, one in below.items():
            yield f"{name} {each}".strip(), {opt for p in one.params for opt in p.opts}


def test_every_command_about_a_deployment_has_json() -> None:
    without = {name for name, options in commands() if "--json" not in options}
    assert without == PRINTS_JSON_LINES | ABOUT_NO_DEPLOYMENT
