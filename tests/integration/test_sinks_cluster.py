"""Sinks on a cluster: the command runs one of a destination's to the end of its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ray_canal as canal
from ray_canal import cli
from ray_canal.demo import binlog_files

pytestmark = pytest.mark.usefixtures("local_ray")


def test_the_command_writes_all_changes_and_then_nothing_more(tmp_path: Path) -> None:
    config = tmp_path / "canal.toml"
    config.write_text(
        f'[meta]\npath = "meta.db"\n'
        f'[[instance]]\ndestination = "filed"\nsource.files = ["{binlog_files()[0]}"]\n'
        '[[sink]]\nname = "lines"\ndestination = "filed"\ntype = "jsonl"\nclient_id = 5\n'
        'path = "changes.jsonl"\ntables = \'shop\\..*\'\n'
    )
    listed = CliRunner().invoke(cli.app, ["sink", "list", str(config)])
    assert listed.output.strip() == "lines: filed -> jsonl, at least once"
    canal.start(str(config))
    try:
        written = []
        for _ in range(2):
            done = CliRunner().invoke(
                cli.app, ["sink", "run", str(config), "lines"], catch_exceptions=False
            )
            assert done.exit_code == 0, done.output
            written.append((tmp_path / "changes.jsonl").read_text().splitlines())
    finally:
        canal.stop("filed")
    rows = [line for line in map(json.loads, written[0]) if "event_type" in line]
    assert len(rows) > 100
    assert written[0] == written[1]  # acked: it does not come again
