"""What mysql-replication reads of random tables of each server, against ours: `ray-canal verify`.

Which values it cannot be asked about, ray_canal/verify/values.py says.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ray_canal.cli import app
from ray_canal.verify.compare import Report
from ray_canal.verify.runs import verify_files
from tests.integration.test_differential import RandomTable
from tests.random_columns import Kind
from tests.servers import Server

PLAIN = ("utf8mb4", "utf8mb3", "latin2", "cp1250", "cp1257", "latin5", "gbk")
OTHER = ("vector", "uuid", "inet", "compressed")


def admits(kind: Kind) -> bool:
    """Leave out what fails whole events: text that Python's codec refuses, irregular dates."""
    if any(word in kind.ddl for word in OTHER) or kind.ddl == "date":
        return False
    _, marked, charset = kind.ddl.partition("character set ")
    return not marked or charset in PLAIN


def write(server: Server, seeds: range) -> Path:
    """Write random tables; returns their binlog file, closed."""
    server.execute(
        "create database if not exists d",
        "flush binary logs",
        "drop table if exists d.phase",
        "create table d.phase (t text, n int)",  # MySQL 5.6 has no row metadata
    )
    file = server.binlogs()[-1]
    for seed in seeds:
        RandomTable(seed, server, admits).write()
    server.execute("flush binary logs")
    return file


@pytest.mark.timeout(120)
def test_mysql_replication_agrees(server: Server) -> None:
    file = write(server, range(500, 510))
    report = verify_files([file], Report())
    assert report.agrees, [str(each) for each in report.details] + [report.failure]
    assert report.values > 3000
    assert report.rows > 300
    reasons = {reason.partition(":")[0] for _, reason in report.not_compared}
    assert reasons & {"a date that no calendar has", "NULL or a date that no calendar has"}


@pytest.mark.timeout(120)
def test_of_a_live_server(server: Server, tmp_path: Path) -> None:
    file = write(server, range(520, 523))
    config = tmp_path / "canal.toml"
    config.write_text(
        f'[[instance]]\ndestination = "d"\n[instance.source]\naddress = "{server.address}"\n'
        'username = "root"\n'
    )
    last = int(file.name.rpartition(".")[2])
    newest = int(server.binlogs()[-1].name.rpartition(".")[2])
    many = ["--files", str(newest - last + 1)]
    found = CliRunner().invoke(app, ["verify", str(config), "d", "--json", *many])
    assert found.exit_code == 0, found.output
    report = json.loads(found.stdout)
    of_files = verify_files([file], Report())
    assert report["values"] >= of_files.values > 1000
    assert report["differences"] == 0

    middle = file.stat().st_size // 2
    found = CliRunner().invoke(
        app, ["verify", str(config), "d", "--json", "--from", f"{file.name}:{middle}"]
    )
    assert found.exit_code == 0, found.output
    assert 0 < json.loads(found.stdout)["values"] < report["values"]
