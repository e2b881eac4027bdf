"""`ray-canal position` over the bundled binlog files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ray_canal import cli, errors
from ray_canal.demo import binlog_files


def test_it_says_what_the_log_has(tmp_path: Path) -> None:
    config = tmp_path / "canal.toml"
    files = json.dumps([str(path) for path in binlog_files()])
    config.write_text(f'[[instance]]\ndestination = "files"\nsource.files = {files}\n')

    def command(*place: str) -> str:
        arguments = ["position", str(config), "files", *place]
        done = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
        assert done.exit_code == 0
        return done.output

    assert "earliest: mysql-bin.000001:4 in the log of" in command("earliest")
    place = json.loads(command("--json"))
    assert (place["journal_name"], place["bytes_to_end"]) == (binlog_files()[-1].name, 0)
    with pytest.raises(errors.ConfigError, match="expected FILE:POSITION"):
        command("yesterday")
