"""A small schema registry over HTTP: what Confluent's does when a producer registers a schema."""

from __future__ import annotations

import io
import json
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro


class Registry:
    """`subjects`: the schemas of each. `refusals`: codes that the next requests get."""

    def __init__(self) -> None:
        self.subjects: dict[str, list[str]] = {}
        self.refusals: list[int] = []
        self.logins: list[str] = []
        self._schemas: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:
                body = handler.rfile.read(int(handler.headers["Content-Length"]))
                self.logins.append(handler.headers.get("Authorization", ""))
                code, answer = self._answer(handler.path, body)
                handler.send_response(code)
                handler.send_header("Content-Length", str(len(answer)))
                handler.end_headers()
                handler.wfile.write(answer)

            def log_message(handler, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def _answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self.refusals:
            return self.refusals.pop(0), b'{"message": "refused"}'
        _, word, subject, versions = path.split("/")
        if (word, versions) != ("subjects", "versions"):
            return 404, b"{}"
        schema = json.loads(body)["schema"]
        fastavro.parse_schema(json.loads(schema), named_schemas={})
        if schema not in self._schemas:
            self._schemas.append(schema)
        self.subjects.setdefault(urllib.parse.unquote(subject), []).append(schema)
        return 200, json.dumps({"id": 1000 + self._schemas.index(schema)}).encode()

    def record(self, message: bytes) -> Any:
        """Decode a message by the schema whose number it has."""
        assert message[0] == 0
        schema = json.loads(self._schemas[int.from_bytes(message[1:5], "big") - 1000])
        return fastavro.schemaless_reader(io.BytesIO(message[5:]), schema, None)

    def __enter__(self) -> Registry:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
