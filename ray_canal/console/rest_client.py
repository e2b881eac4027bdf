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
from ray_canal.proxies import http_opener

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
        tls = ssl.create_default_context(cafile=ca or None) if "https:" in url else None
        self._opener = http_opener(urllib.request.HTTPSHandler(context=tls))

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Return the answer to any call of /api/v1/openapi.json; `path` is behind /api/v1."""
        with self._open(method, f"/api/v1{path}", body, query) as answer:
            return json.load(answer)

    def me(self) -> dict[str, Any]:
        """Return who asks: name, role."""
        return dict(self.call("GET", "/me"))

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

    def samples(self, name: str) -> list[dict[str, Any]]:
        """Return the last hour: lag, rate and fill."""
        return list(self.call("GET", f"{_of(name)}/samples"))

    def nodes(self) -> list[dict[str, Any]]:
        """Return each node, its destinations and what they take."""
        return list(self.call("GET", "/nodes"))

    def subscribers(self, name: str) -> list[dict[str, Any]]:
        """Return each subscriber."""
        return list(self.call("GET", f"{_of(name)}/subscribers"))

    def subscriber(self, name: str, client_id: int) -> dict[str, Any]:
        """Return one subscriber."""
        return dict(self.call("GET", _client(name, client_id)))

    def operate(self, name: str, client_id: int, action: str, to: str = "") -> None:
        """Pause, resume, seek, expire, label, copy or rename a subscriber; `to`: where, its label,
        the new client id."""
        self.call("POST", f"{_client(name, client_id)}/{action}", {"to": to})

    def remove_subscriber(self, name: str, client_id: int) -> None:
        """Remove a subscriber and its cursor."""
        self.call("DELETE", _client(name, client_id))

    def set_filter(self, name: str, client_id: int, tables: str) -> None:
        """Change a subscriber's table filter."""
        self.call("PUT", f"{_client(name, client_id)}/filter", {"tables": tables})

    def set_destination_filter(self, name: str, **changes: Any) -> dict[str, Any]:
        """Change keys of the destination's own filter; return all of them."""
        return dict(self.call("PATCH", f"{_of(name)}/filter", {"changes": changes}))

    def snapshot(self, name: str, client_id: int) -> dict[str, Any]:
        """Return how a subscriber's newest snapshot goes."""
        return dict(self.call("GET", f"{_client(name, client_id)}/snapshot"))

    def start_snapshot(
        self, name: str, client_id: int, tables: str = "", **wishes: Any
    ) -> dict[str, Any]:
        """Read tables into a subscriber's log. `wishes`: `where`, `columns`, `id`, `mode`."""
        body = {"tables": tables, **wishes}
        return dict(self.call("POST", f"{_client(name, client_id)}/snapshot", body))

    def steer_snapshot(self, name: str, client_id: int, action: str) -> dict[str, Any]:
        """Pause, resume or cancel a subscriber's newest snapshot."""
        return dict(self.call("POST", f"{_client(name, client_id)}/snapshot/{action}"))

    def sinks(self, name: str = "") -> dict[str, Any]:
        """Return the sinks that run, by name, or those of one destination."""
        return dict(self.call("GET", f"{_of(name)}/sinks" if name else "/sinks"))

    def steer_sink(self, name: str, sink: str, action: str, to: str = "") -> None:
        """Pause, resume, seek (`to`) or stop a sink."""
        self.call("POST", f"{_of(name)}/sinks/{_quoted(sink)}/{action}", {"to": to})

    def compact_sink(self, name: str, sink: str, **how: Any) -> dict[str, str]:
        """Join the small files of a lake. `how`: `tables`, `vacuum`, `hours`."""
        return dict(self.call("POST", f"{_of(name)}/sinks/{_quoted(sink)}/compact", how))

    def quarantine(self, name: str) -> list[dict[str, Any]]:
        """Return what is in quarantine, and dead letters."""
        return list(self.call("GET", f"{_of(name)}/quarantine"))

    def decode_quarantine(self, name: str, schema_sql: str = "") -> dict[str, Any]:
        """Return `changes` of what is held, `keys` for `release_quarantine`, and `failure`."""
        body = {"schema_sql": schema_sql}
        return dict(self.call("POST", f"{_of(name)}/quarantine/decode", body))

    def release_quarantine(self, name: str, keys: str) -> int:
        """Remove what was decoded: you have it."""
        found = self.call("POST", f"{_of(name)}/quarantine/release", {"keys": keys})
        return int(found["released"])

    def stop(self, name: str) -> None:
        """Stop a destination; its cursors stay."""
        self.call("POST", f"{_of(name)}/stop")

    def check(self, **source: str) -> list[dict[str, Any]]:
        """Return the checks of a source: destination, address, username, password, tables."""
        return list(self.call("POST", "/check", source))

    def start(self, **source: str) -> dict[str, Any]:
        """Write a file for a source and start it."""
        return dict(self.call("POST", "/start", source))

    def deployment(self, action: str, toml: str, **more: Any) -> Any:
        """Send the text of a canal.toml to `check`, `plan`, `apply` (`remove`), `sinks`,
        `sinks/start` (`names`) or `import-meta` (`meta_dat`, `destination`, …)."""
        return self.call("POST", f"/deployment/{action}", {"toml": toml, **more})

    def rows(
        self, name: str, tables: str, mode: str = "consistent"
    ) -> Generator[dict[str, Any]]:
        """Yield what is read, each row that the tables hold, and their place; raises CanalError
        kinds: it has ended before."""
        path = f"/api/v1{_of(name)}/rows"
        with self._open("GET", path, None, {"tables": tables, "mode": mode}) as lines:
            for line in lines:
                found = json.loads(line)
                if "error" in found:
                    raise _told(200, line.decode())
                yield found

    def tail(
        self, name: str, tables: str = r".*\..*", where: str = "", start: str = "tail"
    ) -> Generator[dict[str, Any]]:
        """Yield changes as they come, as the live tail shows them; without end, but for files.
        `start` "head": with what the log still has.
        Raises CanalError: the console has ended it."""
        path = f"/api/v1{_of(name)}/tail"
        query = {"tables": tables, "where": where, "start": start}
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
            return self._opener.open(request, timeout=self._timeout_s)
        except urllib.error.HTTPError as error:
            with error:
                raise _told(error.code, error.read().decode("utf-8", "replace")) from None


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _of(name: str) -> str:
    return f"/destinations/{_quoted(name)}"


def _client(name: str, client_id: int) -> str:
    return f"{_of(name)}/subscribers/{client_id}"


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
