"""What hostile requests get: from other sites' pages, without a login, malformed."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_canal.console import pages, rest, rest_deployment
from tests.processes import wait_for
from tests.unit.console.played import Played
from tests.unit.console.test_app import USERS, Site, answered

OPEN_TO_ALL = {"/static/{name}", "/healthz", "/login"}
FILLED = {"destination": "d000", "client_id": "7", "name": "lake", "action": "pause"}


@pytest.fixture(scope="module")
def cluster() -> Played:
    return Played(3)


@pytest.fixture(scope="module")
def open_site(cluster: Played) -> Iterator[Site]:
    site = Site(cluster)
    wait_for(lambda: answered(site), 30, "statuses")
    yield site
    site.console.stop()


@pytest.fixture(scope="module")
def site(cluster: Played, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    audit = tmp_path_factory.mktemp("audit") / "audit.jsonl"
    site = Site(cluster, user=USERS, host="127.0.0.1", audit_log=str(audit))
    wait_for(lambda: answered(site, "ada"), 30, "statuses")
    yield site
    site.console.stop()


def test_nothing_but_the_login_is_open_to_all(site: Site, cluster: Played) -> None:
    asked = set()
    for router in (pages.router, rest.router, rest_deployment.router):
        for route in router.routes:
            path, methods = route.path, route.methods  # type: ignore[attr-defined]
            for method in methods - {"HEAD"} if path not in OPEN_TO_ALL else ():
                body = b"{}" if method != "GET" else None
                where = path.format(**FILLED)
                status, text, headers = site.ask(
                    where, method=method, body=body, content_type="application/json"
                )
                refused = status == 401 or (status, headers["location"]) == (303, "/login")
                assert refused, (method, path, status, text)
                asked.add(f"{method} {path}")
    assert len(asked) > 40
    assert cluster.done == []


def test_names_that_anybody_asks_for_are_not_kept(site: Site) -> None:
    def kept() -> int:
        caches = [each for each in vars(pages).values() if hasattr(each, "cache_info")]
        return sum(each.cache_info().currsize for each in caches)

    assert site.ask("/static/console.js")[0] == 200
    assert site.ask("/static/..%2fnone")[0] == 404  # the page of an error is made once
    before = kept()
    for name in ("more", "console.jss", "..%2fapp.py", "__init__.py", "x" * 10_000):
        assert site.ask(f"/static/{name}")[0] == 404
    assert kept() == before


@pytest.mark.parametrize("site_of", ["cross-site", "same-site"])
def test_pages_of_other_sites_may_link_and_nothing_else(open_site: Site, site_of: str) -> None:
    """A browser says where a request comes from; other programs do not."""
    rows = "/api/v1/destinations/d000/rows?tables=shop.t"
    for path in (rows, "/api/v1/destinations/d000/tail", "/api/v1/me", "/", "/metrics"):
        asked = {"sec_fetch_site": site_of, "sec_fetch_mode": "no-cors"}
        assert open_site.ask(path, **asked)[0] == 403, path
    linked = {"sec_fetch_site": site_of, "sec_fetch_mode": "navigate"}
    assert open_site.ask("/destinations/d000", **linked)[0] == 200
    assert open_site.ask(rows, **linked)[0] == 403
    for own in ("same-origin", "none"):
        assert open_site.ask("/api/v1/me", sec_fetch_site=own, sec_fetch_mode="cors")[0] == 200


@pytest.mark.parametrize("origin", ["null", "http://[", "http://127.0.0.1", "http://evil.example"])
def test_an_origin_that_is_not_ours_changes_nothing(
    open_site: Site, cluster: Played, origin: str
) -> None:
    assert open_site.send("/api/v1/destinations/d000/stop", None, origin=origin) == 403
    assert cluster.done == []


def test_a_host_that_is_none_is_refused(open_site: Site) -> None:
    where = open_site.host.rpartition(":")
    with socket.create_connection((where[0], int(where[2])), timeout=10) as link:
        link.sendall(b"GET / HTTP/1.1\r\nHost: [\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: link.recv(4096), b""))
    assert answer.startswith((b"HTTP/1.1 421", b"HTTP/1.1 400")), answer


def test_a_form_that_lacks_a_field_is_told_which(open_site: Site, cluster: Played) -> None:
    csrf = open_site.json("/api/v1/me")["csrf"]
    change = "/destinations/d000/change"
    for action in ("remove", "filter", "pause", "seek", "cancel-snapshot"):
        for client_id in ({}, {"client_id": "seven"}, {"client_id": "9" * 5000}):
            form = {"action": action, "csrf": csrf, **client_id}
            status, body, _ = open_site.form(change, form)
            assert status == 400, body
            assert "client_id" in body
    status, body, _ = open_site.form(change, {"csrf": csrf, "action": "explode"})
    assert status == 400
    assert "action" in body
    assert cluster.done == []


def test_a_body_that_is_no_form_is_refused(site: Site, tmp_path: Path) -> None:
    assert site.form("/login", {f"f{i}": "" for i in range(100)})[0] == 400


def test_what_was_given_is_not_told_again(open_site: Site) -> None:
    source = {"destination": "a", "address": "b", "username": "u" * 200, "password": "p" * 2000}
    body = json.dumps(source).encode()
    status, text, _ = open_site.ask(
        "/api/v1/check", method="POST", body=body, content_type="application/json"
    )
    assert status == 422
    told = json.loads(text)
    assert told["error"] == "ConfigError"
    assert "username" in told["message"]
    assert "password" in told["message"]
    assert "pppp" not in text


def test_a_failure_that_nobody_foresaw_is_told_without_its_text(
    cluster: Played, open_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(destination: str, table: str) -> None:
        raise RuntimeError("Ray is away; its s3cret")

    monkeypatch.setattr(cluster, "schema_history", broken)
    status, body, headers = open_site.ask("/destinations/d000/schemas")
    assert status == 500
    assert "RuntimeError" in body
    assert "default-src 'self'" in headers["content-security-policy"]
    status, text, _ = open_site.ask("/api/v1/destinations/d000/schemas")
    assert status == 500
    assert "s3cret" not in body + text
