"""The console of a deployment that runs on Ray over a real server."""

from __future__ import annotations

import json
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

import ray_canal as canal
from ray_canal import cli
from ray_canal.console.rest_client import ConsoleClient
from tests.console_site import Site
from tests.processes import wait_for
from tests.proxy import Proxy
from tests.servers import Server

pytestmark = pytest.mark.usefixtures("local_ray")

NAMESPACE = "console_test"
NAME = "shopped"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("console"), NAMESPACE, hidden_columns=["*.*.secret"])
    yield site
    site.close()


@pytest.fixture(scope="module")
def proxied(mysql97: Server) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", mysql97.port)) as proxy:
        yield proxy


def destination(site: Site) -> dict[str, Any]:
    found = [each for each in site.ask("/api/v1/destinations") if each["name"] == NAME]
    return found[0] if found else {"state": "", "problems": []}


def test_a_first_source_is_checked_written_and_started(
    site: Site, proxied: Proxy, mysql97: Server
) -> None:
    mysql97.execute(
        f"drop database if exists {NAME}",
        f"create database {NAME}",
        f"create table {NAME}.t (id int primary key, note text, secret text)",
        "create user if not exists console_user@'%' identified by 'weak'",
        "create user if not exists console_cdc@'%' identified by 'strong'",
        "grant select, replication slave, replication client on *.* to console_cdc@'%'",
    )
    first = {"destination": NAME, "address": proxied.address, "tables": rf"{NAME}\..*"}
    poor = {**first, "username": "console_user", "password": "weak"}
    checks = site.ask("/api/v1/check", poor, "POST")
    lacking = [each for each in checks if not each["ok"] and not each["advisory"]]
    assert any("GRANT" in each["mend"].upper() for each in lacking)
    with pytest.raises(urllib.error.HTTPError) as refused:
        site.ask("/api/v1/start", poor, "POST")
    refused.value.close()
    assert refused.value.code == 400
    assert not site.file.exists()
    given = {**first, "username": "console_cdc", "password": "strong"}
    assert site.ask("/api/v1/start", given, "POST")["destinations"] == [NAME]
    assert "strong" not in site.file.read_text()
    secret = site.file.with_name(f"{NAME}.password")
    assert secret.stat().st_mode & 0o077 == 0
    wait_for(lambda: destination(site)["state"] == "running", 60, "it runs")
    assert NAME in site.ask("/")
    assert f'ray_canal_up{{destination="{NAME}"}} 1' in site.ask("/metrics")


def test_rows_are_followed_and_subscribers_are_steered(site: Site, mysql97: Server) -> None:
    where = urllib.parse.urlencode({"tables": rf"{NAME}\.t", "where": "after.id < 100"})
    url = f"{site.url}/api/v1/destinations/{NAME}/tail?{where}"
    rows: list[dict[str, Any]] = []
    ready = threading.Event()

    def follow() -> None:
        with urllib.request.urlopen(url, timeout=60) as events:
            for line in events:
                ready.set()
                if line.startswith(b"data: "):
                    rows.extend(json.loads(line[6:]).get("rows", []))
                if len(rows) >= 2:
                    return

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    assert ready.wait(60)

    def tail_stands() -> bool:
        found = site.ask(f"/api/v1/destinations/{NAME}/subscribers")
        return any(each["ephemeral"] for each in found)

    wait_for(tail_stands, 60, "the tail's subscription")
    mysql97.execute(
        f"insert into {NAME}.t values (1, 'first', 'hush'), (200, 'other', 'hush')",
        f"update {NAME}.t set note = 'second' where id = 1",
    )
    follower.join(60)
    assert [row["type"] for row in rows] == ["INSERT", "UPDATE"]
    assert rows[0]["after"]["secret"] == "•••"
    assert rows[1]["changed"] == ["note"]
    assert (rows[1]["before"]["note"], rows[1]["after"]["note"]) == ("first", "second")
    with canal.connect(NAME, 7, namespace=NAMESPACE) as connector:
        connector.subscribe()
    of_7 = f"/api/v1/destinations/{NAME}/subscribers/7"
    site.ask(f"{of_7}/filter", {"tables": rf"{NAME}\.u"}, "PUT")
    (seven,) = canal.subscribers(NAME, namespace=NAMESPACE)[NAME]
    assert seven["filter"] == rf"{NAME}\.u"
    site.ask(f"{of_7}/pause", method="POST")
    (seven,) = canal.subscribers(NAME, namespace=NAMESPACE)[NAME]
    assert seven["paused_at"]
    site.ask(f"{of_7}/resume", method="POST")
    site.ask(f"{of_7}/seek", {"to": "tail"}, "POST")
    (seven,) = canal.subscribers(NAME, namespace=NAMESPACE)[NAME]
    assert not seven["paused_at"]
    mysql97.execute(f"alter table {NAME}.t add more int")
    wait_for(lambda: versions(site)[-1]["sql"] != "", 60, "the DDL")
    assert [each["kind"] for each in versions(site)] == ["snapshot", "ddl"]
    assert "alter table" in site.ask(f"/destinations/{NAME}/schemas?table={NAME}.t")
    wait_for(lambda: bool(destination(site)["status"]["tables"]), 60, "tables by rate")
    assert destination(site)["status"]["tables"][0]["table"] == f"{NAME}.t"
    largest = destination(site)["status"]["largest_transactions"]
    assert max(each["rows"] for each in largest) == 2
    site.ask(of_7, method="DELETE")
    assert canal.subscribers(NAME, namespace=NAMESPACE)[NAME] == []


def versions(site: Site) -> list[dict[str, Any]]:
    found = site.ask(f"/api/v1/destinations/{NAME}/schemas?table={NAME}.t")["changes"]
    return list(found)


def test_the_client_follows_rows_and_finds_places(site: Site, mysql97: Server) -> None:
    client = ConsoleClient(site.url)
    assert client.position(NAME)["journal_name"].startswith("mysql-bin")
    rows = client.tail(NAME, rf"{NAME}\.t", "after.id >= 300")
    found: list[dict[str, Any]] = []
    follower = threading.Thread(target=lambda: found.append(next(rows)), daemon=True)
    follower.start()
    wait_for(lambda: any(each["ephemeral"] for each in client.subscribers(NAME)), 60, "the tail")
    mysql97.execute(f"insert into {NAME}.t (id, note) values (299, 'no'), (300, 'yes')")
    follower.join(60)
    assert found[0]["after"]["note"] == "yes"
    rows.close()


def test_an_outage_of_the_source_is_seen(site: Site, proxied: Proxy) -> None:
    proxied.refuse(True)
    wait_for(lambda: destination(site)["problems"] != [], 30, "the outage")  # 1 s, quiet
    assert destination(site)["problems"][0]["alert"] == "CanalDown"
    assert "does not read its source" in site.ask("/")
    proxied.refuse(False)
    wait_for(lambda: destination(site)["problems"] == [], 120, "it reads again")


def test_files_for_prometheus_and_grafana() -> None:
    told = CliRunner().invoke(cli.app, ["console", "--rules"], catch_exceptions=False)
    assert "alert: CanalDown" in told.output
    told = CliRunner().invoke(cli.app, ["console", "--dashboard"], catch_exceptions=False)
    assert json.loads(told.output)["uid"] == "ray-canal"
