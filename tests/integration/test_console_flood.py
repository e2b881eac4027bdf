"""The console under attack: what a destination's subscriber notices of it. Minutes; a soak.

`make soak-console` prints the delays of rows, from their commit to their arrival at a subscriber,
in quiet times and under floods, in turns.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import ray_canal as canal
from tests.console_site import Site
from tests.processes import wait_for
from tests.servers import Server

pytestmark = [pytest.mark.usefixtures("local_ray"), pytest.mark.soak]

NAMESPACE = "console_flood"
NAME = "flooded"
TURNS = 4
TURN_S = 8.0
ROWS_PER_S = 200


class Flood:
    """Requests, giant bodies, clients that are slow to ask, and live tails that nobody reads."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._where = urllib.parse.urlsplit(url)
        self._ended = threading.Event()
        calls = (self._ask, self._ask, self._post, self._hold, self._tail)
        self._threads = [threading.Thread(target=call, daemon=True) for call in calls]
        self.requests = 0

    def __enter__(self) -> Flood:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        for each in self._threads:
            each.join(30)

    def _ask(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError), urllib.request.urlopen(
                f"{self._url}/destinations/{NAME}", timeout=10
            ) as answer:
                answer.read()
            self.requests += 1

    def _post(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self._url}/login", b"x" * 4_000_000, timeout=10).close()
            self.requests += 1

    def _hold(self) -> None:
        links: list[socket.socket] = []
        while not self._ended.is_set():
            with contextlib.suppress(OSError):
                links.append(self._connect())
                links[-1].sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
            self._ended.wait(0.05)
        for each in links:
            each.close()

    def _tail(self) -> None:
        """Ask for rows, and take none."""
        with contextlib.ExitStack() as stack:
            for _ in range(8):
                link = stack.enter_context(self._connect())
                path = f"/api/v1/destinations/{NAME}/tail"
                link.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            self._ended.wait()

    def _connect(self) -> socket.socket:
        return socket.create_connection((self._where.hostname, self._where.port), timeout=5)


@pytest.fixture
def site(tmp_path: Path, mysql97: Server) -> Iterator[Site]:
    mysql97.execute(
        f"drop database if exists {NAME}",
        f"create database {NAME}",
        f"create table {NAME}.t (id int primary key, at double)",
        "create user if not exists flooded_cdc@'%' identified by 'strong'",
        "grant select, replication slave, replication client on *.* to flooded_cdc@'%'",
    )
    site = Site(tmp_path, NAMESPACE)
    site.ask(
        "/api/v1/start",
        {"destination": NAME, "address": mysql97.address, "username": "flooded_cdc",
         "password": "strong", "tables": rf"{NAME}\..*"},
        "POST",
    )  # fmt: skip
    yield site
    site.close()


def test_a_subscriber_notices_nothing_of_a_flood(site: Site, mysql97: Server) -> None:
    delays: dict[str, list[float]] = {"quiet": [], "flood": []}
    phase = ["quiet"]
    ended = threading.Event()

    def write() -> None:
        with contextlib.closing(mysql97.connect()) as link, link.cursor() as cursor:
            number = 0
            while not ended.is_set():
                began = time.monotonic()
                for _ in range(ROWS_PER_S // 20):
                    number += 1
                    cursor.execute(f"insert into {NAME}.t values (%s, %s)", (number, time.time()))
                    link.commit()
                ended.wait(max(0.05 - (time.monotonic() - began), 0.0))

    def read() -> None:
        with canal.connect(NAME, 7, namespace=NAMESPACE) as connector:
            connector.subscribe(start="tail")
            while not ended.is_set():
                message = connector.get_without_ack(1000, timeout=1.0)
                now = time.time()
                for batch in message.batches:
                    delays[phase[0]] += [now - row["after"]["at"] for row in batch.to_pylist()]
                connector.ack(message.id)

    threads = [threading.Thread(target=each, daemon=True) for each in (read, write)]
    for each in threads:
        each.start()
    wait_for(lambda: len(delays["quiet"]) > 100, 60, "rows")
    delays["quiet"].clear()
    requests = 0
    for turn in range(2 * TURNS):
        phase[0] = "flood" if turn % 2 else "quiet"
        if turn % 2:
            with Flood(site.url) as flood:
                time.sleep(TURN_S)
            requests += flood.requests
        else:
            time.sleep(TURN_S)
    ended.set()
    for each in threads:
        each.join(30)
    for name, found in delays.items():
        cuts = statistics.quantiles(found, n=100)
        rate = len(found) / TURNS / TURN_S
        print(f"{name}: {rate:.0f} rows/s, delay p50 {cuts[49] * 1e3:.0f} ms, "
              f"p99 {cuts[98] * 1e3:.0f} ms, worst {max(found) * 1e3:.0f} ms")  # fmt: skip
    print(f"{requests} requests")
    assert site.ask("/api/v1/destinations")[0]["state"] == "running"
    assert len(delays["flood"]) > len(delays["quiet"]) * 0.7
