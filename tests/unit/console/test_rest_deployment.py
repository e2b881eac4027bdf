"""A deployment by its text: who may send one, what is done with it, what is never told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_canal.console.rest_client import ConsoleClient
from ray_canal.errors import AccessDenied, ConfigError
from tests.processes import wait_for
from tests.unit.console.played import Played
from tests.unit.console.test_app import USERS, Site, answered

TOML = """
[[instance]]
destination = "orders"
source.files = ["log/bin.000001"]

[[sink]]
name = "lines"
destination = "orders"
type = "jsonl"
path = "lines"
client_id = 2001
"""
CANAL = {
    "clientDatas": [
        {
            "clientIdentity": {"clientId": 1001, "destination": "orders", "filter": "a\\..*"},
            "cursor": {
                "identity": {"sourceAddress": {"address": "127.0.0.1", "port": 3306}},
                "postion": {"journalName": "bin.000001", "position": 4, "timestamp": 0},
            },
        }
    ],
    "destination": "orders",
}


@pytest.fixture
def cluster() -> Played:
    return Played(3)


@pytest.fixture
def site(cluster: Played, tmp_path: Path) -> Iterator[Site]:
    audit = str(tmp_path / "audit.jsonl")
    site = Site(cluster, user=USERS, host="127.0.0.1", audit_log=audit)
    wait_for(lambda: answered(site, "ada"), 30, "statuses")
    yield site
    site.console.stop()


def test_a_configuration_is_planned_and_applied(
    site: Site, cluster: Played, tmp_path: Path
) -> None:
    client = ConsoleClient(site.url, "ada", "all")
    secret = TOML + '[meta]\nbackend = "mysql"\naddress = "db:3306"\npassword = "hush"\n'
    assert client.deployment("plan", TOML)["add"] == ["orders"]
    assert cluster.done == []
    assert client.deployment("apply", secret, remove=True)["add"] == ["orders"]
    ((what, config, remove),) = cluster.done
    assert (what, remove) == ("apply", True)
    assert Path(config.instance[0].source.files[0]) == Path.cwd() / "log/bin.000001"
    audit = (tmp_path / "audit.jsonl").read_text()
    assert "hush" not in audit
    assert json.loads(audit)["destination"] == "orders"
    (sink,) = client.deployment("sinks", TOML)
    assert (sink["name"], sink["type"]) == ("lines", "jsonl")
    assert client.deployment("sinks/start", TOML, names=["lines"]) == {"started": ["lines"]}
    assert client.nodes()[0]["destinations"] == ["d000", "d001", "d002"]
    with pytest.raises(ConfigError, match="is not TOML"):
        client.deployment("plan", "[[")
    with pytest.raises(ConfigError, match="destinatoin"):
        client.deployment("plan", TOML.replace("destination", "destinatoin", 1))


def test_the_checks_of_a_configuration(site: Site) -> None:
    found = ConsoleClient(site.url, "ada", "all").deployment("check", TOML)
    assert list(found) == ["orders"]
    assert not all(each["ok"] for each in found["orders"])  # there is no such file


def test_cursors_of_canal_are_taken_over(site: Site, tmp_path: Path) -> None:
    client = ConsoleClient(site.url, "ada", "all")
    toml = TOML + f'[meta]\npath = "{tmp_path / "meta.db"}"\n'
    text = json.dumps(CANAL)
    found = client.deployment("import-meta", toml, meta_dat=text, unchecked=True)
    assert found["subscribers"] == [
        {"client_id": 1001, "filter": "a\\..*", "cursor": "bin.000001:4"}
    ]
    with pytest.raises(ConfigError, match="have cursors already"):
        client.deployment("import-meta", toml, meta_dat=text, unchecked=True)
    with pytest.raises(ConfigError, match=r"is not a meta\.dat"):
        client.deployment("import-meta", toml, meta_dat="{}", unchecked=True)


@pytest.mark.parametrize("user", ["vera", "otto", "one"])
def test_who_is_no_admin_of_everything_sends_none(site: Site, cluster: Played, user: str) -> None:
    password = next(each["password"] for each in USERS if each["username"] == user)
    client = ConsoleClient(site.url, user, str(password))
    for action in ("check", "plan", "apply", "sinks", "sinks/start"):
        with pytest.raises(AccessDenied, match="has not the right"):
            client.deployment(action, TOML)
    if user == "one":
        with pytest.raises(AccessDenied):
            client.nodes()
    assert cluster.done == []


def test_nobody_sends_one_where_nobody_is_asked(cluster: Played) -> None:
    site = Site(cluster)
    try:
        with pytest.raises(AccessDenied, match="takes no configuration"):
            ConsoleClient(site.url).deployment("apply", TOML)
        assert cluster.done == []
    finally:
        site.console.stop()


def test_subscribers_snapshots_and_sinks_by_the_client(site: Site, cluster: Played) -> None:
    client = ConsoleClient(site.url, "ada", "all")
    wait_for(lambda: client.sinks() != {}, 30, "sinks")
    assert client.subscriber("d000", 7)["client_id"] == 7
    assert client.snapshot("d000", 7)["state"] == "running"
    where: dict[str, Any] = {"shop.t": "id > 3"}
    client.start_snapshot("d000", 7, "shop.t", where=where, columns=["a"], id="s2")
    client.steer_sink("d000", "lake", "seek", "tail")
    client.steer_sink("d000", "lake", "stop")
    assert client.compact_sink("d000", "lake", vacuum=True) == {"shop.t": "2 files of 9"}
    assert cluster.done == [
        ("start snapshot", "d000", 7, "shop.t", where, ["a"], "s2", ""),
        ("seek sink", "lake", "tail"),
        ("stop sink", "lake", ""),
        ("compact", "lake", [], True, None),
    ]
    with pytest.raises(AccessDenied):
        ConsoleClient(site.url, "otto", "do").steer_sink("d000", "lake", "stop")
    with pytest.raises(ConfigError, match="say where to"):
        client.steer_sink("d000", "lake", "seek")
