"""Numbers of Avro schemas, from a Confluent schema registry over HTTP."""

from __future__ import annotations

import base64
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from ray_canal.config import secret
from ray_canal.config.queue import RegistryConfig
from ray_canal.proxies import http_opener
from ray_canal.sinks.port import Kind, SinkError

_INCOMPATIBLE = (409, 422)


class RegistryClient:
    """Registers each schema once; calling it gives the number of one."""

    def __init__(self, config: RegistryConfig) -> None:
        self._config = config
        self._opener = http_opener()
        self._numbers: dict[tuple[str, str], int] = {}

    def __call__(self, subject: str, schema: dict[str, Any]) -> int:
        """Return a schema's number under a subject. Raises SinkError."""
        text = json.dumps(schema)
        number = self._numbers.get((subject, text))
        if number is None:
            number = self._numbers[subject, text] = self._registered(subject, text)
        return number

    def _registered(self, subject: str, schema: str) -> int:
        config = self._config
        url = f"{config.url.rstrip('/')}/subjects/{urllib.parse.quote(subject, safe='')}/versions"
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        if config.username:
            login = f"{config.username}:{secret(config.password)}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        elif config.token:
            headers["Authorization"] = f"Bearer {secret(config.token)}"
        body = json.dumps({"schema": schema}).encode()
        request = urllib.request.Request(url, body, headers, method="POST")
        try:
            with self._opener.open(request, timeout=config.timeout_s) as answer:
                return int(json.loads(answer.read())["id"])
        except urllib.error.HTTPError as error:
            text = error.read(500).decode("utf-8", "replace")
            kind: Kind = "retry" if error.code >= 500 or error.code == 429 else "fatal"
            if error.code in _INCOMPATIBLE:
                kind = "schema"
                text += (
                    ": it does not fit the subject's compatibility; change that, or the subject"
                )
            raise SinkError(f"schema registry: {subject}: {error.code}: {text}", kind) from None
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            raise SinkError(f"schema registry at {config.url}: {error}", "retry") from None
