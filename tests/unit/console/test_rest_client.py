"""The REST API's client: calls, errors by their kind, who may not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ray_canal.console.rest_client import ConsoleClient
from ray_canal.errors import AccessDenied, CanalError, ConfigError, InstanceNotFound
from tests.processes import wait_for
from tests.unit.console.played import Played
from tests.unit.console.test_app import USERS, Site, answered


@pytest.fixture
def cluster() -> Played:
    return Played(3)


@pytest.fixture
def site(cluster: Played) -> Iterator[Site]:
    site = Site(cluster, user=USERS, host="127.0.0.1")
    wait_for(lambda: answered(site, "ada"), 30, "statuses")
    yield site
    site.console.stop()


def test_calls(site: Site, cluster: Played) -> None:
    client = ConsoleClient(site.url, "ada", "all")
    assert [each["name"] for each in client.destinations()] == ["d000", "d001", "d002"]
    assert client.destination("d001")["status"]["rows"] == 120000.0
    assert client.explain("d000")["destination"] == "d000"
    assert client.explain("d000", 9)["reason"] == "there is no subscriber 9"
    assert client.schemas("d000", "shop.t")["changes"][0]["position"] == 930
    assert client.subscribers("d000")[0]["client_id"] == 7
    client.operate("d000", 7, "seek", "tail")
    client.operate("d000", 7, "label", "")
    client.operate("d000", 7, "rename", "8")
    client.set_filter("d000", 7, r"shop\.t")
    client.remove_subscriber("d000", 7)
    client.stop("d000")
    assert [each[0] for each in cluster.done] == [
        "seek", "label", "rename", "filter", "unsubscribe", "stop",
    ]  # fmt: skip


def test_errors_are_of_their_kind(site: Site) -> None:
    client = ConsoleClient(site.url, "vera", "see")
    with pytest.raises(AccessDenied, match="has not the right 'admin'"):
        client.stop("d000")
    with pytest.raises(InstanceNotFound, match="no destination 'none'"):
        client.destination("none")
    with pytest.raises(ConfigError, match="say where to"):
        ConsoleClient(site.url, "otto", "do").operate("d000", 7, "seek")
    with pytest.raises(ConfigError, match="action: Input should be"):
        ConsoleClient(site.url, "otto", "do").operate("d000", 7, "explode")
    with pytest.raises(CanalError, match="say who you are"):
        ConsoleClient(site.url).destinations()
