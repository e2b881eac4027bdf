"""Floods, giant bodies and slow clients: whoever asks properly is answered, and destinations are
asked no more than without all that."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.error
from collections.abc import Iterator

import pytest

from ray_canal.console import protocol
from tests.pace import Pace
from tests.processes import wait_for
from tests.unit.console.played import Played
from tests.unit.console.test_app import Site, answered

REFRESH_S = 0.2
SLOW_S = 1.0


class Counted(Played):
    """Counts how often a destination was asked."""

    def __init__(self) -> None:
        super().__init__(3)
        self.asked = 0

    def status(self, destination: str) -> dict[str, object]:
        self.asked += 1
        return super().status(destination)


@pytest.fixture
def cluster() -> Counted:
    return Counted()


@pytest.fixture
def site(cluster: Counted, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(protocol, "REQUEST_S", SLOW_S)
    monkeypatch.setattr(protocol, "STALL_S", SLOW_S)
    site = Site(cluster, connections_max=32)
    wait_for(lambda: answered(site), 30, "statuses")
    yield site
    site.console.stop()


def connection(site: Site) -> socket.socket:
    host, _, port = site.host.partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def ends(link: socket.socket) -> bool:
    """Whether the other side has closed it, without an answer."""
    link.settimeout(10 * SLOW_S)
    with contextlib.suppress(ConnectionError):
        return link.recv(1) == b""
    return True


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: localh",
        b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nuse",
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_a_request_that_does_not_become_whole_is_given_up(site: Site, begun: bytes) -> None:
    with connection(site) as link:
        link.sendall(begun)
        assert ends(link)


def test_who_holds_every_connection_holds_them_for_a_while(site: Site) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            link = stack.enter_context(connection(site))
            link.sendall(b"GET / HTTP/1.1\r\nX: ")

        def works() -> bool:
            try:
                return site.ask("/healthz")[0] == 200
            except (OSError, urllib.error.URLError):
                return False

        wait_for(works, 60, "the console answers again")


def test_a_kept_connection_asks_again(site: Site) -> None:
    with connection(site) as link:
        for _ in range(3):
            link.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            told = b""
            while not told.endswith(b"ok\n"):
                told += link.recv(65536)
            assert b"200 OK" in told
            time.sleep(SLOW_S / 2)


@pytest.mark.timed
def test_what_is_too_much_at_a_time_is_refused_and_the_rest_answered(cluster: Counted) -> None:
    """Live tails that nobody reads, and calls of a destination that does not answer, take the
    places; who comes then is told so at once, and answered when there is room again."""
    site = Site(cluster, requests_max=4, tails_max=8)
    wait_for(lambda: answered(site), 30, "statuses")
    busy = threading.Event()
    cluster.schema_history = lambda *_: busy.wait(60) and {"tables": [], "changes": []}  # type: ignore[method-assign,assignment,return-value]
    asked: list[int] = []

    def ask() -> None:
        asked.append(site.ask("/destinations/d000/schemas")[0])

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    try:
        for each in threads:
            each.start()
        wait_for(lambda: site.ask("/healthz")[0] == 503, 30, "it is full")
        with Pace() as pace:
            status, body, _ = site.ask("/")
        assert status == 503
        assert "console.requests_max" in body
        assert pace.seconds < 5
        busy.set()
        for each in threads:
            each.join(30)
        assert asked == [200] * 4
        assert site.ask("/")[0] == 200
    finally:
        busy.set()
        site.console.stop()


@pytest.mark.timed
def test_a_flood_asks_destinations_no_more_than_a_quiet_time(site: Site, cluster: Counted) -> None:
    ended = threading.Event()
    seen: list[int] = []

    def flood() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):
                seen.append(site.ask("/destinations/d000")[0])
                seen.append(site.ask("/api/v1/destinations", method="POST", body=b"x" * 60_000)[0])
                seen.append(site.ask("/login", method="POST", body=b"x" * 1_000_000)[0])

    def giant() -> None:
        """A body without end, in chunks."""
        while not ended.is_set():
            with contextlib.suppress(OSError), connection(site) as link:
                link.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\n")
                link.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
                for _ in range(64):
                    link.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")

    threads = [threading.Thread(target=each, daemon=True) for each in (flood, flood, giant)]
    began, before = time.monotonic(), cluster.asked
    for each in threads:
        each.start()
    time.sleep(3.0)
    asked, took_s = cluster.asked - before, time.monotonic() - began
    ended.set()
    for each in threads:
        each.join(60)
    assert {200, 405, 413} <= set(seen)
    assert asked <= 3 * (took_s / REFRESH_S + 1)
    assert answered(site)
