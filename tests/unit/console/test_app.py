"""Pages and REST over played destinations: who may do what, forms, limits."""

from __future__ import annotations

import base64
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_canal.config import ConsoleConfig
from ray_canal.console.app import Console
from ray_canal.console.first_source import SourceFiles
from tests.console_site import PageValues
from tests.pace import Pace
from tests.processes import wait_for
from tests.unit.console.played import SNAPSHOT, Played

USERS = [
    {"username": "vera", "password": "see", "rights": ["read"]},
    {"username": "otto", "password": "do", "rights": ["read", "ack", "subscribe"]},
    {"username": "ada", "password": "all", "rights": ["admin"]},
    {"username": "one", "password": "one", "rights": ["admin"], "destinations": ["d001"]},
]


class Site:
    """A console that listens, and calls of it."""

    def __init__(self, cluster: Played, **console: Any) -> None:
        config = ConsoleConfig.model_validate({"port": 0, "refresh_s": 0.2, **console})
        self.console = Console(config, cluster, SourceFiles("canal.toml"))  # type: ignore[arg-type]
        self.url = self.console.start()
        self.host = self.url.partition("://")[2]

    def ask(
        self,
        path: str,
        user: str = "",
        method: str = "GET",
        body: bytes | None = None,
        **headers: str,
    ) -> tuple[int, str, Any]:
        """Status, body and headers of an answer; redirects are not followed."""
        request = urllib.request.Request(self.url + path, body, method=method)
        if user:
            password = next(each["password"] for each in USERS if each["username"] == user)
            told = base64.b64encode(f"{user}:{password}".encode()).decode()
            request.add_header("Authorization", f"Basic {told}")
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        opener = urllib.request.build_opener(_NoRedirect)
        try:
            with opener.open(request, timeout=30) as answer:
                return answer.status, answer.read().decode(), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(), error.headers

    def json(self, path: str, user: str = "", **more: Any) -> Any:
        status, body, _ = self.ask(path, user, **more)
        assert status == 200, body
        return json.loads(body)

    def send(
        self, path: str, value: Any, user: str = "", method: str = "POST", **headers: str
    ) -> int:
        """The status of the answer to a JSON body."""
        body = json.dumps(value).encode()
        return self.ask(
            path, user, method=method, body=body, content_type="application/json", **headers
        )[0]

    def form(self, path: str, values: dict[str, str], **headers: str) -> tuple[int, str, Any]:
        return self.ask(
            path, method="POST", body=urllib.parse.urlencode(values).encode(), **headers
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        return None


@pytest.fixture
def cluster() -> Iterator[Played]:
    played = Played(3)
    yield played
    played.release.set()


def answered(site: Site, user: str = "") -> bool:
    found = site.json("/api/v1/destinations", user)
    return len(found) == 3 and all(each["status"] for each in found)


@pytest.fixture
def open_site(cluster: Played) -> Iterator[Site]:
    """Of this machine alone: nobody is asked."""
    site = Site(cluster)
    wait_for(lambda: answered(site), 30, "statuses")
    yield site
    site.console.stop()


@pytest.fixture
def site(cluster: Played, tmp_path: Path) -> Iterator[Site]:
    """With users."""
    site = Site(cluster, user=USERS, host="127.0.0.1", audit_log=str(tmp_path / "audit.jsonl"))
    wait_for(lambda: answered(site, "ada"), 30, "statuses")
    yield site
    site.console.stop()


def test_a_page_while_the_source_says_nothing(open_site: Site, cluster: Played) -> None:
    cluster.statuses["d001"] = {**cluster.statuses["d001"], "fetched": None, "store": {}}
    wait_for(lambda: "469455" not in open_site.ask("/destinations/d001")[1], 30, "its new status")
    status, body, _ = open_site.ask("/destinations/d001")
    assert status == 200, body
    assert "Connected" in body


def test_pages_show_what_is_known(open_site: Site) -> None:
    status, body, headers = open_site.ask("/")
    assert status == 200
    assert "d000" in body
    assert "decode" in body  # the limit
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "style=" not in body  # it would be refused by that policy
    status, body, _ = open_site.ask("/destinations/d001")
    assert status == 200
    assert "mysql-bin.000001:930" in body
    assert 'class="limit"' in body
    assert "schemas?table=shop.t" in body
    assert "Largest transactions" in body
    values = PageValues(body)
    assert values.facts["GTIDs read"] == "d540d0cd-e56e-11f1-a38f-02fc00000001:1-88"
    assert values.facts["GTIDs of the server"] == "d540d0cd-e56e-11f1-a38f-02fc00000001:1-90"
    assert values.facts["Server"] == "d540d0cd-e56e-11f1-a38f-02fc00000001"
    assert values.facts["Server is at"] == "mysql-bin.000001:469455"
    assert [each.split(" reads")[0] for each in values.stages] == [
        "fetch 12 %", "decode 91 % rows to columns; waits 10 % ",
    ]  # fmt: skip
    assert "waits 90 %" in values.stages[0]
    status, body, _ = open_site.ask("/destinations/d001/schemas?table=shop.t")
    assert status == 200
    assert "alter table t add note text" in body
    assert "Nothing is known" in open_site.ask("/destinations/d001/schemas?table=shop.none")[1]
    found = open_site.json("/api/v1/destinations/d001/schemas?table=shop.t")
    assert found["changes"][0]["position"] == 930
    assert open_site.ask("/destinations/d001/tail")[0] == 200
    assert open_site.ask("/start")[0] == 200
    assert open_site.ask("/destinations/none")[0] == 404
    assert open_site.ask("/nowhere")[0] == 404
    part = open_site.ask("/", x_part="1")[1]
    assert "<html" not in part
    assert "d002" in part


@pytest.mark.timed
def test_one_that_does_not_answer_is_shown_and_keeps_nobody(cluster: Played) -> None:
    cluster.silent.add("d001")
    site = Site(cluster)
    try:
        def told() -> bool:
            found = {each["name"]: each for each in site.json("/api/v1/destinations")}
            return (
                len(found) == 3
                and found["d001"]["state"] == "no answer"
                and found["d000"]["state"] == found["d002"]["state"] == "running"
            )

        wait_for(told, 60, "no answer is told")
        with Pace() as pace:
            body = site.ask("/")[1]
        assert pace.seconds < 5
        assert "no answer since" in body
        assert body.index("d001") < body.index("d000")  # what is wrong comes first
        assert "No answer since" in site.ask("/destinations/d001")[1]
        assert site.json("/api/v1/destinations/d001/explain")["stage"] == "process"
        cluster.release.set()
        cluster.silent.clear()
        wait_for(lambda: answered(site), 60, "it answers again")
        wait_for(lambda: "no answer" not in site.ask("/")[1], 60, "all is well")
    finally:
        site.console.stop()


def test_one_whose_process_is_started_again_is_shown(open_site: Site, cluster: Played) -> None:
    cluster.statuses["d001"] = {"state": "restarting", "error": "the actor died"}

    def told() -> bool:
        return bool(open_site.json("/api/v1/destinations/d001")["state"] == "no answer")

    wait_for(told, 30, "it is told")
    status, body, _ = open_site.ask("/destinations/d001")
    assert status == 200
    assert "the actor died" in body
    assert "mysql-bin.000001:930" in body  # what it said last
    assert open_site.ask("/")[0] == 200


def test_roles(site: Site, cluster: Played) -> None:
    remove = "/api/v1/destinations/d000/subscribers/7"
    change = f"{remove}/filter"
    assert site.ask("/api/v1/me")[0] == 401
    assert site.ask("/")[0] == 303
    assert site.ask("/metrics")[0] == 401
    assert site.json("/api/v1/me", "vera")["role"] == "viewer"
    assert site.json("/api/v1/me", "otto")["role"] == "operator"
    assert site.send(change, {"tables": "a.b"}, "vera", "PUT") == 403
    assert site.send(remove, None, "otto", "DELETE") == 403
    assert site.send("/api/v1/destinations/d000/stop", None, "otto") == 403
    assert site.send("/api/v1/start", {"destination": "a", "address": "b"}, "otto") == 403
    assert site.send("/api/v1/check", {"destination": "a", "address": "b"}, "one") == 403
    assert cluster.done == []
    assert site.send(change, {"tables": "a.b"}, "otto", "PUT") == 200
    steered = remove.removesuffix("/7")
    assert site.send(f"{steered}/7/pause", None, "vera") == 403
    assert site.send(f"{steered}/7/pause", None, "otto") == 200
    assert site.send(f"{steered}/7/seek", {"to": "tail"}, "otto") == 200
    assert site.send(f"{steered}/7/seek", None, "otto") == 400
    assert site.send(f"{steered}/7/explode", None, "ada") == 422
    assert site.send(remove, None, "ada", "DELETE") == 200
    assert site.send("/api/v1/destinations/d000/subscribers/8", None, "ada", "DELETE") == 404
    assert site.send("/api/v1/destinations/d000/stop", None, "ada") == 200
    assert cluster.done == [
        ("filter", "d000", 7, "a.b"),
        ("pause", "d000", 7, ""),
        ("seek", "d000", 7, "tail"),
        ("unsubscribe", "d000", 7),
        ("stop", "d000"),
    ]


def test_sinks_and_snapshots_are_shown_and_steered(site: Site, cluster: Played) -> None:
    cluster.statuses["d000"]["snapshots"] = [SNAPSHOT]
    where = "/api/v1/destinations/d000"
    wait_for(lambda: site.json(f"{where}/sinks", "vera") != {}, 30, "sinks")
    wait_for(lambda: "30 percent" in site.ask("/destinations/d000", "vera")[1], 30, "progress")
    body = site.ask("/destinations/d000", "vera")[1]
    assert "41.0 k" in body
    assert "pause-sink" not in body
    assert "pause-sink" in site.ask("/destinations/d000", "otto")[1]
    assert site.send(f"{where}/sinks/lake/pause", None, "vera") == 403
    assert site.send(f"{where}/sinks/lake/pause", None, "otto") == 200
    assert site.send(f"{where}/sinks/none/pause", None, "otto") == 404
    assert site.send(f"{where}/subscribers/7/snapshot/cancel", None, "otto") == 200
    assert cluster.done == [("pause sink", "lake", ""), ("cancel snapshot", "d000", 7)]


def test_a_user_sees_its_own_destinations_alone(site: Site) -> None:
    assert [each["name"] for each in site.json("/api/v1/destinations", "one")] == ["d001"]
    assert site.ask("/api/v1/destinations/d000", "one")[0] == 403
    assert "d000" not in site.ask("/metrics", "one")[1]
    assert site.ask("/api/v1/destinations/d000/tail", "one")[0] == 403


def test_a_session_and_its_forms(site: Site, cluster: Played, tmp_path: Path) -> None:
    assert site.form("/login", {"username": "ada", "password": "wrong"})[0] == 401
    status, _, headers = site.form("/login", {"username": "ada", "password": "all"})
    assert status == 303
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    token = {"cookie": cookie.partition(";")[0]}
    body = site.ask("/destinations/d000", **token)[1]
    csrf = re.search(r'name="csrf" value="(\w+)"', body)
    assert csrf is not None
    change = "/destinations/d000/change"
    removal = {"action": "remove", "client_id": "7"}
    assert site.form(change, removal, **token)[0] == 403
    assert site.form(change, {**removal, "csrf": "0" * 64}, **token)[0] == 403
    assert site.send("/api/v1/destinations/d000/stop", None, **token) == 403  # the page's token
    assert cluster.done == []
    assert site.form(change, {**removal, "csrf": csrf[1]}, **token)[0] == 303
    assert cluster.done == [("unsubscribe", "d000", 7)]
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    assert [each["action"] for each in told] == ["failed login", "login", "remove subscriber"]
    assert told[-1]["user"] == "ada"
    assert "all" not in (each["user"] for each in told)
    assert site.form("/logout", {"csrf": csrf[1]}, **token)[0] == 303
    assert site.ask("/", **token)[0] == 303


def test_a_session_that_has_ended_opens_no_window_over_the_page(site: Site) -> None:
    by_script = {"sec_fetch_mode": "cors", "sec_fetch_site": "same-origin"}
    for path, more in (("/", {"x_part": "1"}), ("/api/v1/me", {})):
        status, _, headers = site.ask(path, **by_script, **more)
        assert (status, headers["www-authenticate"]) == (401, None)
    assert "Basic" in site.ask("/api/v1/me")[2]["www-authenticate"]


def test_cookies_are_secure_where_tls_ends_before_the_console(site: Site) -> None:
    given = {"username": "ada", "password": "all"}
    assert "Secure" not in site.form("/login", given)[2]["set-cookie"]
    secured = site.form("/login", given, x_forwarded_proto="https")[2]["set-cookie"]
    assert "Secure" in secured


def test_a_token_alone_lets_in(cluster: Played) -> None:
    site = Site(cluster, password="a-token", host="127.0.0.1")
    try:
        assert site.ask("/api/v1/me")[0] == 401
        assert site.ask("/api/v1/me", authorization="Bearer another")[0] == 401
        status, body, _ = site.ask("/api/v1/me", authorization="Bearer a-token")
        assert (status, json.loads(body)["role"]) == (200, "admin")
    finally:
        site.console.stop()


def test_visitors_of_a_proxy(cluster: Played, tmp_path: Path) -> None:
    """Roles by the groups that it names; forms and calls prove where they come from."""
    proxy = {
        "addresses": ["127.0.0.1"],
        "role": [{"groups": ["ops"], "rights": ["admin"]}, {"groups": ["dev"], "rights": ["read"]}],
    }
    audit = tmp_path / "audit.jsonl"
    site = Site(cluster, proxy=proxy, host="127.0.0.1", audit_log=str(audit))
    try:
        ada = {"x_forwarded_user": "ada", "x_forwarded_groups": "ops"}
        eve = {"x_forwarded_user": "eve", "x_forwarded_groups": "guests"}
        vera = {"x_forwarded_user": "vera", "x_forwarded_groups": "dev"}
        assert site.ask("/api/v1/me")[0] == 401
        assert site.form("/login", {"username": "", "password": ""})[0] == 401
        assert "by its proxy" in site.ask("/login")[1]
        assert site.ask("/", **eve)[0] == 403
        assert json.loads(site.ask("/api/v1/me", **vera)[1])["role"] == "viewer"
        told = json.loads(site.ask("/api/v1/me", **ada)[1])
        assert told["role"] == "admin"
        stop = "/api/v1/destinations/d000/stop"
        assert site.send(stop, None, **vera) == 403
        assert site.send(stop, None, **ada) == 403  # another site's page would come so, too
        assert site.send(stop, None, **vera, x_csrf_token=told["csrf"]) == 403
        assert cluster.done == []
        wait_for(lambda: site.send(stop, None, **ada, x_csrf_token=told["csrf"]) == 200, 30, "stop")
        assert cluster.done == [("stop", "d000")]
        assert json.loads(audit.read_text().splitlines()[-1])["user"] == "ada"
    finally:
        site.console.stop()


def test_pages_of_other_sites_change_nothing(open_site: Site, cluster: Played) -> None:
    stop = "/api/v1/destinations/d000/stop"
    assert open_site.send(stop, None, origin="http://evil.example") == 403
    assert open_site.ask(stop, method="POST", body=b"", content_type="text/plain")[0] == 403
    assert open_site.ask("/", host="evil.example")[0] == 421  # DNS rebinding
    assert cluster.done == []
    assert open_site.send(stop, None, origin=open_site.url) == 200


def test_large_requests_are_refused(open_site: Site) -> None:
    big = {"tables": "x" * 300_000}
    assert open_site.send("/api/v1/destinations/d000/subscribers/7/filter", big, "", "PUT") == 413
    assert open_site.ask("/destinations/d000")[0] == 200


def test_openapi_names_every_call(open_site: Site) -> None:
    found = open_site.json("/api/v1/openapi.json")
    assert "/api/v1/destinations/{destination}/stop" in found["paths"]
    assert all(path.startswith("/api/v1/") for path in found["paths"])
