"""Commands about sinks that need no cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ray_canal import cli, errors


def test_sinks_are_listed_and_a_wrong_name_is_told(tmp_path: Path) -> None:
    config = tmp_path / "canal.toml"
    config.write_text(
        '[[instance]]\ndestination = "o"\nsource.address = "db"\n'
        '[[sink]]\nname = "lines"\ndestination = "o"\ntype = "jsonl"\nclient_id = 5\npath = "p"\n'
        '[[sink]]\nname = "copy"\ndestination = "o"\ntype = "mysql"\nclient_id = 6\n'
        'mirror.address = "db2"\n'
    )
    listed = CliRunner().invoke(cli.app, ["sink", "list", str(config)])
    assert listed.output.splitlines() == [
        "lines: o -> jsonl, at least once",
        "copy: o -> mysql, exactly once",
    ]
    told = CliRunner().invoke(cli.app, ["sink", "list", str(config), "--json"])
    assert json.loads(told.stdout)[0] == {
        "name": "lines",
        "destination": "o",
        "type": "jsonl",
        "client_id": 5,
        "guarantee": "at least once",
    }
    with pytest.raises(errors.ConfigError, match="no sink 'line'"):
        CliRunner().invoke(cli.app, ["sink", "run", str(config), "line"], catch_exceptions=False)
