"""The server that `format("ray_canal")` asks, in the driver's Python, for changes.

Spark's source (java/ChangesStream.java) is in the driver's JVM, the connector in the driver's
Python. A request is a connection over loopback with three lines: the session's token and a word,
a stream's name or options, an argument. The answer is one line; "!" begins an error.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import select
import socketserver
import threading
from typing import Any

from pyspark.sql import SparkSession

import ray_canal
from ray_canal.client.api import table_meta
from ray_canal.client.log_end import Reach, reach_of
from ray_canal.errors import CanalError
from ray_canal.spark.log_offset import acked_offset
from ray_canal.spark.requests import Ground, Requests
from ray_canal.spark.row_transfer import carrier_of, chosen_way, cores_of

_log = logging.getLogger(__name__)
_PREFIX = "spark.datasource.ray_canal"
_servers: dict[str, RequestServer] = {}


def serve_requests(spark: SparkSession) -> None:
    """Serve the requests of this session's `format("ray_canal")`; `session()` has done it."""
    key = spark.sparkContext.applicationId
    if key not in _servers:
        _servers[key] = RequestServer(spark)
    server = _servers[key]
    spark.conf.set(f"{_PREFIX}.requests", server.address)
    spark.conf.set(f"{_PREFIX}.token", server.token)


def close_request_servers() -> None:
    """Close the servers of `serve_requests`; streams that are open end."""
    while _servers:
        _servers.popitem()[1].close()


class RequestServer:
    """Serves one session's reads on a loopback port."""

    def __init__(self, spark: SparkSession) -> None:
        self.requests = Requests(
            Ground(
                lambda _: carrier_of(chosen_way(spark)),
                lambda: cores_of(spark),
                _connected,
                _reach,
                table_meta,
                _mark,
                on_ray=lambda: spark.sparkContext.master.startswith("ray"),
            )
        )
        self.token = secrets.token_hex(16)
        self._server = _Server(self)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, name="ray_canal requests", daemon=True
        ).start()

    def close(self) -> None:
        """Close the port and all streams."""
        self._server.shutdown()
        self._server.server_close()
        self.requests.close()


def _connected(destination: str, client_id: int | None) -> Any:
    return ray_canal.connect(destination, client_id=client_id)


def _reach(destination: str, client_id: int) -> Reach | None:
    return reach_of(ray_canal.status(destination)[destination], client_id)


def _mark(destination: str, client_id: int) -> str:
    known = ray_canal.subscriber(destination, client_id).show()
    return acked_offset(known, ray_canal.status(destination)[destination]["timeline"])


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, server: RequestServer) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.server = server


class _Request(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        lines = [self.rfile.readline().decode().rstrip("\n") for _ in range(3)]
        token, _, what = lines[0].partition(" ")
        if not hmac.compare_digest(token.encode(), server.server.token.encode()):
            return
        requests = server.server.requests
        answer = answer_line(requests, what, lines[1], lines[2])
        if self._is_gone():
            requests.forget(what, answer)
            return
        self.wfile.write((answer + "\n").encode())

    def _is_gone(self) -> bool:
        """Return whether nobody waits for the answer any more, as the query was stopped: the three
        lines are read, so what can be read now is the connection's end."""
        end = select.poll()
        end.register(self.connection, select.POLLIN)
        return bool(end.poll(0))


def answer_line(requests: Requests, what: str, first: str, second: str) -> str:
    """Return the answer to a request as one line; "!" begins an error."""
    try:
        answer = requests.answer(what, first, second)
    except CanalError as error:
        answer = f"!{error}"
    except Exception as error:
        _log.exception("the server could not answer %s", what)
        answer = f"!{type(error).__name__}: {error}"
    return answer.replace("\n", " ")
