"""`python -m tests.console_flood URL DESTINATION`: attack a console until the input ends. Requests,
giant bodies, clients that are slow to ask, live tails that nobody reads. At the end it prints how
many requests were answered, and with which status, as JSON.

`python -m tests.console_flood burn SHARE`: take that share of a CPU in its stead.
"""

from __future__ import annotations

import collections
import contextlib
import json
import socket
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request


class Flood:
    """One attacker, with a thread for each of its ways."""

    def __init__(self, url: str, destination: str) -> None:
        self._url, self._destination = url, destination
        self._where = urllib.parse.urlsplit(url)
        self.answers: collections.Counter[str] = collections.Counter()
        for call in (self._ask, self._ask, self._ask, self._post, self._hold, self._tail):
            threading.Thread(target=call, daemon=True).start()

    def _ask(self) -> None:
        while True:
            self._request(f"{self._url}/destinations/{self._destination}", None)

    def _post(self) -> None:
        while True:
            self._request(f"{self._url}/login", b"x" * 4_000_000)

    def _request(self, url: str, body: bytes | None) -> None:
        try:
            with urllib.request.urlopen(url, body, timeout=10) as answer:
                answer.read()
                self.answers[str(answer.status)] += 1
        except urllib.error.HTTPError as error:
            error.close()
            self.answers[str(error.code)] += 1
        except OSError:
            self.answers["closed"] += 1

    def _hold(self) -> None:
        links: list[socket.socket] = []
        while True:
            with contextlib.suppress(OSError):
                links.append(self._connect())
                links[-1].sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
            time.sleep(0.05)

    def _tail(self) -> None:
        """Ask for rows, and take none."""
        links = [self._connect() for _ in range(8)]
        for link in links:
            path = f"/api/v1/destinations/{self._destination}/tail"
            link.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        threading.Event().wait()

    def _connect(self) -> socket.socket:
        return socket.create_connection((self._where.hostname, self._where.port), timeout=5)


def burn(share: float) -> None:
    """Take so much CPU until the input ends."""
    began = time.monotonic()
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.is_set():
        if time.process_time() > share * (time.monotonic() - began):
            time.sleep(0.002)


def main(arguments: list[str]) -> None:
    """See the module."""
    if arguments[0] == "burn":
        burn(float(arguments[1]))
        return
    flood = Flood(*arguments)
    sys.stdin.read()
    print(json.dumps(flood.answers))


if __name__ == "__main__":
    main(sys.argv[1:])
