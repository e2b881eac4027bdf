"""A thin client of the console's REST API, for programs outside the cluster. Needs nothing beyond
Python's own library."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Generator
from typing import Any

from ray_canal import errors
from ray_canal.errors import CanalError

_TIMEOUT_S = 90.0


class ConsoleClient:
    """Calls of one console. `ca`: a file with the certificate of who signed the console's.

    Calls raise what the console says (AccessDenied, InstanceNotFound, ConfigError, …), and OSError
    where it is not reached.
    """

    def __init__(
        self,
        url: str,
        username: str = "",
        password: str = "",
        *,
        ca: str = "",
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json"}
        if password:
            told = base64.b64encode(f"{username}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {told}"
        self._tls = ssl.create_default_context(cafile=ca or None) if "https:" in url else None

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Return the answer to any call of /api/v1/openapi.json; `path` is behind /api/v1."""
        with self._open(method, f"/api/v1{path}", body, query) as answer:
            return json.load(answer)

    def destinations(self) -> list[dict[str, Any]]:
        """Return each destination: state, problems, status."""
        return list(self.call("GET", "/destinations"))

    def destination(self, name: str) -> dict[str, Any]:
        """Return one destination."""
        return dict(self.call("GET", _of(name)))

    def explain(self, name: str, client_id: int | None = None) -> dict[str, Any]:
        """Return why nothing (more) comes."""
        query = {} if client_id is None else {"client_id": client_id}
        return dict(self.call("GET", f"{_of(name)}/explain", **query))

    def position(self, name: str, place: str = "latest") -> dict[str, Any]:
        """Return what the source's log has at a place."""
        return dict(self.call("GET", f"{_of(name)}/position", place=place))

    def schemas(self, name: str, table: str = "") -> dict[str, Any]:
        """Return the tables whose schemas are known, and the versions of one."""
        return dict(self.call("GET", f"{_of(name)}/schemas", table=table))

    def subscribers(self, name: str) -> list[dict[str, Any]]:
        """Return each subscriber."""
        return list(self.call("GET", f"{_of(name)}/subscribers"))

    def operate(self, name: str, client_id: int, action: str, to: str = "") -> None:
        """Pause, resume, seek, expire, label, copy or rename a subscriber; `to`: where, its label,
        the new client id."""
        self.call("POST", f"{_of(name)}/subscribers/{client_id}/{action}", {"to": to})

    def remove_subscriber(self, name: str, client_id: int) -> None:
        """Remove a subscriber and its cursor."""
        self.call("DELETE", f"{_of(name)}/subscribers/{client_id}")

    def set_filter(self, name: str, client_id: int, tables: str) -> None:
        """Change a subscriber's table filter."""
        self.call("PUT", f"{_of(name)}/subscribers/{client_id}/filter", {"tables": tables})

    def stop(self, name: str) -> None:
        """Stop a destination; its cursors stay."""
        self.call("POST", f"{_of(name)}/stop")

    def check(self, **source: str) -> list[dict[str, Any]]:
        """Return the checks of a source: destination, address, username, password, tables."""
        return list(self.call("POST", "/check", source))

    def start(self, **source: str) -> dict[str, Any]:
        """Write a file for a source and start it."""
        return dict(self.call("POST", "/start", source))

    def tail(
        self, name: str, tables: str = r".*\..*", where: str = ""
    ) -> Generator[dict[str, Any]]:
        """Yield changes as they come, as the live tail shows them; without end, but for files.
        Raises CanalError: the console has ended it."""
        path = f"/destinations/{urllib.parse.quote(name, safe='')}/tail/events"
        query = {"tables": tables, "where": where}
        kind = ""
        with self._open("GET", path, None, query) as events:
            for line in events:
                if line.startswith(b"event: "):
                    kind = line[7:].decode().strip()
                elif line.startswith(b"data: "):
                    found = json.loads(line[6:])
                    if kind == "problem":
                        raise CanalError(found["message"])
                    if kind == "end":
                        return
                    yield from found.get("rows", ())

    def _open(self, method: str, path: str, body: Any, query: dict[str, Any]) -> Any:
        text = f"?{urllib.parse.urlencode(query)}" if query else ""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._url + path + text, data, self._headers, method=method
        )
        try:
            return urllib.request.urlopen(request, timeout=self._timeout_s, context=self._tls)
        except urllib.error.HTTPError as error:
            with error:
                raise _told(error.code, error.read().decode("utf-8", "replace")) from None


def _of(name: str) -> str:
    return f"/destinations/{urllib.parse.quote(name, safe='')}"


def _told(status: int, text: str) -> CanalError:
    """The error that the console's answer names."""
    try:
        answer = json.loads(text)
        kind, message = str(answer.get("error")), str(answer.get("message") or answer)
    except (ValueError, AttributeError):
        kind, message = "", text.strip()
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, CanalError):
        return found(message)
    return CanalError(f"{status}: {message}")
