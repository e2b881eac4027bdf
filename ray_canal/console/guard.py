"""Checks that every request passes first: limits of its size, its host, origin and page, and safe
headers.

Plain ASGI, so that streams pass unbuffered.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_BYTES_MAX = 256 << 10
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_CHANGING = {"POST", "PUT", "PATCH", "DELETE"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class _TooLarge(Exception):
    """A body is larger than any that the console takes."""


class Guard:
    """Wraps the application. `hosts`: the names under which it may be called; empty: any. Where no
    password is asked for, other names would let a page of somebody else in (DNS rebinding).
    `requests_max`: so many are in work at a time; others are refused at once."""

    def __init__(
        self, app: ASGIApp, hosts: Iterable[str] = (), requests_max: int = 64
    ) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._requests_max = requests_max
        self._in_work = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refused(scope)
        if refused is not None:
            await refused(scope, receive, send)
            return
        self._in_work += 1
        try:
            await self._pass_on(scope, receive, send)
        finally:
            self._in_work -= 1

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        passed_bytes = 0
        began = False

        async def limited() -> Message:
            nonlocal passed_bytes
            message = await receive()
            passed_bytes += len(message.get("body", b""))
            if passed_bytes > BODY_BYTES_MAX:
                raise _TooLarge
            return message

        async def headed(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self._app(scope, limited, headed)
        except _TooLarge:
            if not began:
                await _answer(413, "the body is too large")(scope, receive, send)

    def _refused(self, scope: Scope) -> PlainTextResponse | None:
        if self._in_work >= self._requests_max:
            return _answer(503, "too many requests are in work (console.requests_max)")
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._hosts and _host_name(host) not in self._hosts:
            return _answer(421, "call the console as localhost, or give it a password")
        if int(headers.get("content-length") or 0) > BODY_BYTES_MAX:
            return _answer(413, "the body is too large")
        if _is_of_another_site(scope, headers, host):
            return _answer(403, "the request comes from a page of another site")
        return None


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # no host, an open bracket say
        return ""


def _is_of_another_site(scope: Scope, headers: Headers, host: str) -> bool:
    """Return whether another site's page asks for what it may not: it may link to our pages, and
    neither change anything nor call what costs the source something (the rows of tables) or holds
    one of few places (a live tail)."""
    origin = headers.get("origin")
    if scope["method"] in _CHANGING and origin is not None:
        return origin.partition("://")[2] != host
    if headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return False
    return headers.get("sec-fetch-mode") != "navigate" or scope["path"].startswith("/api/")


def _answer(status: int, text: str) -> PlainTextResponse:
    return PlainTextResponse(text + "\n", status, headers={"Connection": "close"})
