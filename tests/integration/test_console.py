"""The console of a deployment that runs on Ray over a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from typer.testing import CliRunner

import ray_canal as canal
from ray_canal import cli
from ray_canal.actors import registry
from ray_canal.console.niceness import NICENESS
from ray_canal.console.rest_client import ConsoleClient
from ray_canal.console.text import count, size
from ray_canal.errors import ConfigError, InstanceNotFound
from tests.console_site import PageValues, Site
from tests.processes import wait_for
from tests.servers import Server

pytestmark = pytest.mark.usefixtures("local_ray")

NAMESPACE = "console_test"
NAME = "shopped"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("console"), NAMESPACE, hidden_columns=["*.*.secret"])
    yield site
    site.close()


def destination(site: Site) -> dict[str, Any]:
    found = [each for each in site.ask("/api/v1/destinations") if each["name"] == NAME]
    return found[0] if found else {"state": "", "problems": []}


def test_a_first_source_is_checked_written_and_started(
    site: Site, mysql97: Server
) -> None:
    mysql97.execute(
        f"drop database if exists {NAME}",
        f"create database {NAME}",
        f"create table {NAME}.t (id int primary key, note text, secret text)",
        "create user if not exists console_user@'%' identified by 'weak'",
        "create user if not exists console_cdc@'%' identified by 'strong'",
        "grant select, replication slave, replication client on *.* to console_cdc@'%'",
    )
    first = {"destination": NAME, "address": mysql97.address, "tables": rf"{NAME}\..*"}
    poor = {**first, "username": "console_user", "password": "weak"}
    checks = site.ask("/api/v1/check", poor, "POST")
    lacking = [each for each in checks if not each["ok"] and not each["advisory"]]
    assert any("GRANT" in each["fix"].upper() for each in lacking)
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


def test_one_of_many_is_asked_without_a_list_of_all(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console asks for each of them, again and again."""
    lists, me = [], threading.get_ident()  # the console here makes lists, too, in its own threads
    destinations = registry.destinations

    def counted(namespace: str) -> list[str]:
        lists.append(threading.get_ident())
        return destinations(namespace)

    monkeypatch.setattr(registry, "destinations", counted)
    assert canal.status(NAME, namespace=NAMESPACE)[NAME]["state"] == "running"
    assert me not in lists
    with pytest.raises(InstanceNotFound):
        canal.status("nothing", namespace=NAMESPACE)
    assert me in lists


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


def told(*command: str) -> Any:
    """What the command prints as JSON."""
    run = CliRunner().invoke(
        cli.app, [*command, "--json", "--namespace", NAMESPACE], catch_exceptions=False
    )
    return json.loads(run.stdout)


def figures_told() -> dict[str, Any]:
    """The command's figures, as people read them on the page."""
    status, clients = told("status", NAME)[NAME], told("subscribers", NAME)[NAME]
    store, fetched = status["store"], status["fetched"]
    facts = {
        "Behind the server": size(status["lag_bytes"]),
        "Log": f"{100 * store['fill']:.1f} %",
        "Rows in all": count(status["rows"]),
        "Server": status["server"],
        "Read up to": f"{fetched['journal_name']}:{fetched['position']}",
        "Server is at": f"{fetched['journal_name']}:{fetched['master_position']}",
        "GTIDs read": store["gtid_set"],
        "GTIDs of the server": fetched["server_gtid_set"],
        "First entry": store["first_position"],
        "Last entry": store["last_position"],
        "Entries": f"{count(store['entries'])} in {count(store['chunks'])} chunks",
        "In memory": size(store["bytes"]),
        "Epoch, timeline": f"{status['epoch']}, {status['timeline']}",
    }
    behind = store["subscribers"]
    clients_told = [
        [each["cursor"], size(behind[id_]["bytes_behind"]), count(behind[id_]["entries_behind"]),
         str(behind[id_]["unacked_batches"]), each["policy"], each["filter"],
         str(each["paused_at"] is not None)]
        for each in clients
        for id_ in [str(each["client_id"])]
    ]  # fmt: skip
    return {"state": status["state"], **facts, "subscribers": clients_told}


def figures_shown(site: Site, names: Iterable[str]) -> dict[str, Any]:
    """The same, off the destination's page; of its facts those of these names."""
    page = PageValues(site.ask(f"/destinations/{NAME}"))
    shown = {name: page.facts[name] for name in page.facts.keys() & set(names)}
    rows = [[cell.strip() for cell in row] for row in page.rows if len(row) == 10]
    clients = [
        [*cells[1:4], cells[5], cells[7], cells[8].removesuffix("Set"), str("paused" in cells[0])]
        for cells in rows[1:]
    ]
    overview = PageValues(site.ask("/"))
    (state,) = (row[0].split()[1] for row in overview.rows if row[0].split()[0] == NAME)
    return {"state": state, **shown, "subscribers": clients}


def test_its_figures_are_those_of_the_command(site: Site, mysql97: Server) -> None:
    """Of a destination at rest, with a subscriber that is behind and one that is paused; then what
    moves with time."""
    with canal.connect(NAME, 9, namespace=NAMESPACE) as late:
        late.subscribe(rf"{NAME}\.t", start="tail")
        with canal.connect(NAME, 10, namespace=NAMESPACE) as paused:
            paused.subscribe(start="tail")
        site.ask(f"/api/v1/destinations/{NAME}/subscribers/10/pause", method="POST")
        mysql97.execute(*(f"insert into {NAME}.t (id) values ({i})" for i in range(500, 530)))
        wait_for(lambda: told("subscribers", NAME)[NAME][0]["entries_behind"] >= 30, 60, "rows")
        assert late.get_without_ack(8).id > 0
        figures: dict[str, Any] = {}

        def agree() -> bool:
            figures.update(figures_told())
            return figures_shown(site, figures) == figures

        try:
            wait_for(agree, 30, "the same figures")
        except AssertionError:
            assert figures_shown(site, figures) == figures
        assert figures["state"] == "running"
        assert [each[3] for each in figures["subscribers"]] == ["1", "0"]
        assert [each[-1] for each in figures["subscribers"]] == ["False", "True"]
        metrics = site.ask("/metrics")
        status = told("status", NAME)[NAME]
        behind = status["store"]["subscribers"]["9"]["bytes_behind"]
        labels = f'destination="{NAME}"'
        assert f'ray_canal_subscriber_behind_bytes{{{labels},client_id="9"}} {behind}' in metrics
        assert f"ray_canal_rows_total{{{labels}}} {status['rows']:g}" in metrics
        asked = site.ask(f"/api/v1/destinations/{NAME}")["status"]
        now = told("status", NAME)[NAME]
        assert asked["uptime_s"] == pytest.approx(now["uptime_s"], abs=5)
        assert asked["lag_seconds"] == pytest.approx(now["lag_seconds"], abs=5)
    for client_id in (9, 10):
        site.ask(f"/api/v1/destinations/{NAME}/subscribers/{client_id}", method="DELETE")


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


def test_the_rows_that_tables_hold_come_by_the_client(site: Site) -> None:
    client = ConsoleClient(site.url)
    first, *rows, last = client.rows(NAME, rf"{NAME}\.t")
    assert first["tables"] == [f"{NAME}.t"]
    assert {each["after"]["secret"] for each in rows} <= {"•••", None}
    assert {each["event_type"] for each in rows} == {"READ"}
    assert last["rows"] == len(rows) > 0
    assert last["position"].startswith("mysql-bin")
    with pytest.raises(ConfigError):
        next(client.rows(NAME, "no.such_table"))


def test_the_nodes_and_a_snapshot_by_the_client(site: Site) -> None:
    client = ConsoleClient(site.url)
    (node,) = client.nodes()
    assert NAME in node["destinations"]
    with canal.connect(NAME, 8, namespace=NAMESPACE) as connector:
        connector.subscribe(rf"{NAME}\.t", start="tail")
        client.start_snapshot(NAME, 8, columns=["note"], id="by-rest")
        deadline, rows = time.monotonic() + 90, 0
        while client.snapshot(NAME, 8)["state"] != "done":
            assert time.monotonic() < deadline
            message = connector.get_without_ack(1000, timeout=1.0)
            rows += sum(batch.num_rows for batch in message.batches)
            connector.ack(message.id)
    assert rows > 0
    assert client.subscriber(NAME, 8)["client_id"] == 8
    client.remove_subscriber(NAME, 8)


def test_no_secret_is_on_a_page_or_in_an_answer(site: Site) -> None:
    for path in ("/", f"/destinations/{NAME}", "/start", "/metrics", "/api/v1/destinations"):
        text = site.ask(path)
        assert "strong" not in (text if isinstance(text, str) else json.dumps(text))


def test_the_command_opens_it_and_ends_with_a_signal(site: Site, tmp_path: Path) -> None:
    """In a process of its own, over the cluster that runs."""
    command = [sys.executable, "-m", "ray_canal", "console", "--port", "0"]
    command += ["--namespace", NAMESPACE]
    address = ray.get_runtime_context().gcs_address
    environment = {**os.environ, "RAY_ADDRESS": address, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = next(line for line in process.stdout if "the console: " in line).split()[-1]
        client = ConsoleClient(url)
        wait_for(lambda: any(each["status"] for each in client.destinations()), 60, "its status")
        assert os.getpriority(os.PRIO_PROCESS, process.pid) >= NICENESS
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_files_for_prometheus_and_grafana() -> None:
    told = CliRunner().invoke(cli.app, ["console", "--rules"], catch_exceptions=False)
    assert "alert: CanalDown" in told.output
    told = CliRunner().invoke(cli.app, ["console", "--dashboard"], catch_exceptions=False)
    assert json.loads(told.output)["uid"] == "ray-canal"
