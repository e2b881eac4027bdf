"""Sinks on a cluster: by the command, to the end of files; as actors, steered, killed, replaced."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from typer.testing import CliRunner

import ray_canal as canal
from ray_canal import cli
from ray_canal.demo import binlog_files
from ray_canal.errors import ConfigError, InstanceNotFound
from ray_canal.sinks.records import CommittedPlaces
from tests.in_process_sink import until
from tests.servers import Server

pytestmark = pytest.mark.usefixtures("local_ray")


def test_the_command_writes_all_changes_and_then_nothing_more(tmp_path: Path) -> None:
    config = tmp_path / "canal.toml"
    config.write_text(
        f'[meta]\npath = "meta.db"\n'
        f'[[instance]]\ndestination = "filed"\nsource.files = ["{binlog_files()[0]}"]\n'
        '[[sink]]\nname = "lines"\ndestination = "filed"\ntype = "jsonl"\nclient_id = 5\n'
        "path = \"changes.jsonl\"\ntables = 'shop\\..*'\n"
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


NAME = "steered"


def command(*arguments: str) -> str:
    done = CliRunner().invoke(cli.app, ["sink", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def deployment(mysql97: Server, tmp_path: Path) -> Iterator[Path]:
    """A destination of one table, and a sink of it into another database of its server."""
    mysql97.execute(f"CREATE DATABASE {NAME}", f"CREATE TABLE {NAME}.t (id INT PRIMARY KEY)")
    config = tmp_path / "canal.toml"
    config.write_text(
        f'[meta]\npath = "meta.db"\n[[instance]]\ndestination = "{NAME}"\n'
        f'source.address = "{mysql97.address}"\nsource.username = "root"\n'
        f"filter.tables = '{NAME}\\..*'\n"
        f'[[sink]]\nname = "copy"\ndestination = "{NAME}"\ntype = "mysql"\nclient_id = 5\n'
        f'mirror.address = "{mysql97.address}"\nmirror.username = "root"\n'
        f'mirror.database = "{NAME}_copy"\nmirror.cursor_database = "{NAME}_canal"\n'
    )
    canal.start(str(config))
    yield config
    for name in canal.sink_status():
        canal.stop_sink(name)
    CommittedPlaces("ray_canal").forget("copy")  # the next test has another target
    canal.stop(NAME)
    mysql97.execute(*(f"DROP DATABASE IF EXISTS {NAME}{end}" for end in ("", "_copy", "_canal")))


def ids(server: Server, database: str = f"{NAME}_copy") -> list[int]:
    try:
        return sorted(row[0] for row in server.execute(f"SELECT id FROM {database}.t"))
    except Exception:  # the copy is not there yet
        return []


def process_of(name: str) -> int:
    """The process of a sink's actor: that of the workers with its class."""
    handle = ray.get_actor(f"canal-sink:{name}", namespace="ray_canal")
    return int(ray.get(handle.__ray_call__.remote(lambda actor: os.getpid())))


def test_a_sink_is_steered_and_survives_its_process(mysql97: Server, deployment: Path) -> None:
    def insert(number: int) -> None:
        mysql97.execute(f"INSERT INTO {NAME}.t VALUES ({number})")

    assert command("start", str(deployment)) == "sink copy: started\n"
    insert(1)
    until(lambda: ids(mysql97) == [1])
    assert canal.sink_status("copy")["copy"]["state"] == "running"
    assert command("status").startswith(f"sink copy: {NAME} -> mysql, running, 1 rows in ")

    command("pause", "copy")
    insert(2)
    until(lambda: canal.sink_status()["copy"]["state"] == "paused")
    os.kill(process_of("copy"), signal.SIGKILL)  # it is paused after its restart, too
    until(lambda: canal.sink_status()["copy"]["state"] == "paused")
    assert ids(mysql97) == [1]
    command("resume", "copy")
    until(lambda: ids(mysql97) == [1, 2])

    os.kill(process_of("copy"), signal.SIGKILL)
    insert(3)
    until(lambda: ids(mysql97) == [1, 2, 3])

    mysql97.execute(f"DELETE FROM {NAME}_copy.t")  # somebody has damaged the copy
    command("seek", "copy", "earliest")
    until(lambda: ids(mysql97) == [1, 2, 3])

    mysql97.execute(f"CREATE TABLE {NAME}_canal.backup AS SELECT * FROM {NAME}_canal.canal_cursor")
    insert(9)
    until(lambda: ids(mysql97) == [1, 2, 3, 9])
    command("stop", "copy")
    mysql97.execute(f"DELETE FROM {NAME}_copy.t WHERE id = 9",  # as a backup has it
                    f"UPDATE {NAME}_canal.canal_cursor SET place ="
                    f" (SELECT place FROM {NAME}_canal.backup)")  # fmt: skip
    command("start", str(deployment))
    until(lambda: canal.sink_status()["copy"]["state"] == "failed")
    told = canal.sink_status()["copy"]["error"]
    assert "was set back" in told
    place = re.search(r"sink seek copy (\S+:\d+)", told)
    assert place is not None
    command("seek", "copy", place[1])
    until(lambda: ids(mysql97) == [1, 2, 3, 9])
    mysql97.execute(f"DELETE FROM {NAME}.t WHERE id = 9")
    until(lambda: ids(mysql97) == [1, 2, 3])

    canal.start_sinks(str(deployment))  # it runs as it is
    text = deployment.read_text().replace("client_id = 5\n", "client_id = 5\nbatch_size = 9\n")
    deployment.write_text(text)
    command("start", str(deployment), "copy")
    insert(4)
    until(lambda: ids(mysql97) == [1, 2, 3, 4])
    command("stop", "copy")
    assert command("status").startswith("no sink runs")
    with pytest.raises(InstanceNotFound, match="no sink 'copy'"):
        canal.pause_sink("copy")
    insert(5)
    command("start", str(deployment))
    until(lambda: ids(mysql97) == [1, 2, 3, 4, 5])


def test_what_cannot_start_is_told(mysql97: Server, deployment: Path) -> None:
    text = deployment.read_text()
    password = 'mirror.password = "x"\n'
    deployment.write_text(text + password)
    with pytest.raises(ConfigError, match=r"mirror\.password"):
        canal.start_sinks(str(deployment))
    deployment.write_text(text.replace('mirror.username = "root"', 'mirror.username = "nobody"'))
    command("start", str(deployment))
    until(lambda: canal.sink_status()["copy"]["state"] == "failed")
    assert "Access denied" in command("status", "copy")
    deployment.write_text(text)
    command("start", str(deployment))  # mended: it is started over
    mysql97.execute(f"INSERT INTO {NAME}.t VALUES (1)")
    until(lambda: ids(mysql97) == [1])
    told: dict[str, Any] = json.loads(command("status", "--json"))
    assert told["copy"]["rows"] == 1


def test_a_sink_tells_that_its_snapshot_has_failed(mysql97: Server, deployment: Path) -> None:
    """It goes on with the changes, and its target lacks rows until the snapshot is taken again."""
    command("start", str(deployment))
    mysql97.execute(f"CREATE TABLE {NAME}.log (v INT)", f"INSERT INTO {NAME}.t VALUES (1)")
    until(lambda: ids(mysql97) == [1])
    snapshot = canal.subscriber(NAME, 5).snapshot
    snapshot.start(rf"{NAME}\.log", mode="keyed")
    assert snapshot.wait(60)["state"] == "failed"
    until(lambda: canal.sink_status()["copy"]["snapshot_error"])
    assert canal.sink_status()["copy"]["state"] == "running"
    told = command("status")
    assert f"rows are missing: ConfigError: {NAME}.log: no primary key" in told
    assert f"`ray-canal snapshot resume {NAME} --client-id 5`" in told
    mysql97.execute(f"ALTER TABLE {NAME}.log ADD id INT AUTO_INCREMENT PRIMARY KEY")
    snapshot.resume()
    assert snapshot.wait(60)["state"] == "done"
    until(lambda: not canal.sink_status()["copy"]["snapshot_error"])
