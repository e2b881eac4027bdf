"""Snapshots on Ray: to a client, over a store that is killed, and by the command."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray
from typer.testing import CliRunner, Result

import ray_canal as canal
from ray_canal import cli
from ray_canal.actors import registry
from ray_canal.client.connector import Connector
from tests.servers import Server
from tests.snapshot_runs import take_from

# `make soak-snapshot`
pytestmark = [pytest.mark.usefixtures("local_ray"), pytest.mark.soak]
NAME, CLIENT, ROWS = "snapped", 7, 30_000


def command(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(a) for a in arguments], catch_exceptions=False)


@pytest.fixture
def destination(
    mysql97: Server, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Server]:
    """`param`: so many decoders."""
    values = ", ".join(f"({number}, 'row {number}', {number % 7})" for number in range(ROWS))
    mysql97.execute(
        "drop database if exists snapped", "create database snapped",
        "create table snapped.t (id int primary key, name varchar(30), kind int)",
        f"insert into snapped.t values {values}",
    )  # fmt: skip
    canal.start({
        "meta": {"path": str(tmp_path / "meta.db")},
        "instance": [{
            "destination": NAME,
            "source": {"address": mysql97.address, "username": "root"},
            "decoders": request.param,
            "snapshot": {"chunk_bytes": 65536, "bytes": 1 << 20},
        }],
    })  # fmt: skip
    yield mysql97
    canal.stop(NAME)
    mysql97.execute("drop database snapped")


class Table:
    """What was applied."""

    def __init__(self) -> None:
        self.rows: dict[int, Any] = {}
        self.read = 0
        self.ended = 0

    def take(self, connector: Connector) -> None:
        """Take a message, and ack it."""
        self.ended += take_from(connector, self._apply)

    def _apply(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            if row["before"] is not None:
                self.rows.pop(row["before"]["id"], None)
            if row["after"] is not None:
                after = row["after"]
                self.rows[after["id"]] = (after["name"], after.get("kind"))
            self.read += row["event_type"] == "READ"


def held(server: Server) -> dict[int, Any]:
    return {row[0]: row[1:] for row in server.execute("select * from snapped.t")}


@pytest.mark.parametrize("destination", [0], indirect=True)
def test_a_client_gets_all_rows_over_a_store_that_is_killed(destination: Server) -> None:
    table = Table()
    with canal.connect(NAME, CLIENT) as connector:
        connector.subscribe(r"snapped\..*", snapshot="initial")
        while table.read < ROWS // 5:
            table.take(connector)
        ray.kill(registry.find_store(NAME, registry.NAMESPACE).actor, no_restart=False)
        destination.execute("update snapped.t set kind = 100 where id % 1000 = 0")
        destination.execute("delete from snapped.t where id between 500 and 600")
        while not table.ended:
            table.take(connector)
    assert table.rows == held(destination)
    assert ROWS - 101 <= table.read < 2 * ROWS
    shown = json.loads(command("snapshot", "status", NAME, "--client-id", CLIENT, "--json").output)
    assert (shown["state"], shown["tables_done"]) == ("done", 1)
    assert shown["place"]


@pytest.mark.parametrize("destination", [1], indirect=True)
def test_by_the_command(destination: Server) -> None:
    table, stop = Table(), threading.Event()
    with canal.connect(NAME, CLIENT) as connector:
        connector.subscribe(r"snapped\..*", start="tail")

        def consume() -> None:
            while not stop.is_set():
                table.take(connector)

        thread = threading.Thread(target=consume)
        thread.start()
        try:
            done = command(
                "snapshot", "start", NAME, "--client-id", CLIENT, "--where", "kind = 3",
                "--columns", "name", "--watch", "--id", "threes",
            )  # fmt: skip
        finally:
            stop.set()
            thread.join()
    assert done.exit_code == 0, done.output
    assert "threes done" in done.output
    assert "consistent at mysql-bin." in done.output
    assert table.read == sum(number % 7 == 3 for number in range(ROWS))
    again = command("snapshot", "start", NAME, "--client-id", CLIENT, "--id", "threes")
    assert again.exit_code == 0
