"""A Galera cluster of MariaDBs as a source: all nodes write, and each has one log of all."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from ray_canal.config import SourceConfig
from ray_canal.errors import ServerSettingRefused
from ray_canal.source.catalog import Catalog
from ray_canal.source.checks import refuse_settings
from ray_canal.source.membership import why_apart
from tests.clusters import FILLED, held, source_of, writing
from tests.in_process_sink import destination, until
from tests.servers.galera import galera, wait_until_synced

pytestmark = pytest.mark.soak

# MariaDB Knowledge Base, "Using MariaDB GTIDs with MariaDB Galera Cluster".
ONE_ID = {"wsrep_gtid_mode": "ON", "wsrep_gtid_domain_id": "9", "server_id": "7"}


@pytest.mark.parametrize("mode", ["keyed", "consistent"])
@pytest.mark.parametrize("one_id", [True, False])
def test_a_snapshot_beside_writers_and_the_death_of_the_node(
    tmp_path: Path, one_id: bool, mode: str
) -> None:
    """What a subscriber holds in the end is what the table holds. Where all nodes had one server
    id, another node was taken for the same server, whose log had been reset."""
    with galera(tmp_path / "cluster", **(ONE_ID if one_id else {})) as nodes:
        for number, node in enumerate(nodes):
            if not one_id:
                node.execute(f"SET GLOBAL server_id = {number + 1}")
        nodes[0].execute(
            "CREATE DATABASE l",
            "CREATE TABLE l.t (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO l.t {FILLED} SELECT i, 0 FROM n",
        )
        places = [nodes[:1], nodes[1:2]]
        folder, rest = tmp_path / "destination", nodes[1:]
        with (
            destination(folder, source=source_of(nodes), snapshot={"mode": mode}) as running,
            held(r"l\.t", "initial") as rows,
        ):
            with writing(places):
                api = running.destination.api
                until(lambda: running.ask(api.snapshot(7, "status"))["state"] == "done")
                nodes[0].kill()
                places[0].append(nodes[2])
                until(lambda: running.ask(api.status())["address"] != nodes[0].address)
            wait_until_synced(rest[0])
            until(lambda: rows == dict(rest[0].execute("SELECT id, v FROM l.t")))
            assert len(rows) > 300


def test_a_node_that_the_others_go_on_without_is_left(tmp_path: Path) -> None:
    """It answers, and nothing new comes into its log."""
    with galera(tmp_path / "cluster", **ONE_ID) as nodes:
        nodes[0].execute("CREATE DATABASE l", "CREATE TABLE l.t (id INT PRIMARY KEY, v INT)")
        catalog = Catalog(SourceConfig(address=nodes[0].address, username="root"))
        assert not why_apart(catalog)
        with (
            destination(tmp_path / "destination", source=source_of(nodes)),
            held(r"l\.t") as rows,
        ):
            nodes[1].execute("INSERT INTO l.t VALUES (1, 1)")
            until(lambda: rows == {1: 1})
            nodes[0].execute("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'")
            until(lambda: bool(why_apart(catalog)))
            wait_until_synced(nodes[1])
            nodes[1].execute("INSERT INTO l.t VALUES (2, 2)")
            until(lambda: rows == {1: 1, 2: 2})
        assert "wsrep_ready is OFF" in why_apart(catalog)
        catalog.close()


def test_a_node_that_does_not_log_what_others_write_is_refused(tmp_path: Path) -> None:
    with galera(tmp_path, 1, log_slave_updates="OFF") as [node]:
        config = SourceConfig(address=node.address, username="root")
        with (
            contextlib.closing(Catalog(config)) as catalog,
            pytest.raises(ServerSettingRefused, match="log_slave_updates = ON"),
        ):
            refuse_settings(config, catalog)
