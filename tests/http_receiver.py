"""A web server on this machine that keeps what it is sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class HttpReceiver:
    """`answers`: the codes of the first answers; all later ones are 200. `location`: where they
    redirect to."""

    def __init__(self, answers: tuple[int, ...] = (), location: str = "") -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        left = list(answers)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:
                body = handler.rfile.read(int(handler.headers["Content-Length"] or 0))
                self.requests.append((dict(handler.headers.items()), body))
                handler.send_response(left.pop(0) if left else 200)
                handler.send_header("Content-Length", "0")
                if location:
                    handler.send_header("Location", location)
                handler.end_headers()

            do_GET = do_POST

            def log_message(handler, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> HttpReceiver:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.requests
            time.sleep(0.05)
