"""Callers over Flight: a name and password with each call, or the token that they gave once.

Flight's clients send `authorization: Basic …` (RFC 7617) with a handshake, get a bearer token back
(RFC 6750), and send that with their calls (pyarrow: `authenticate_basic_token`).
"""

from __future__ import annotations

import base64
import binascii
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyarrow import flight

from ray_canal.canal.scramble import SEED_BYTES, scramble411
from ray_canal.server.access import Access, User

MIDDLEWARE = "login"
_HEADER = "authorization"
_TOKEN_BYTES = 32


class FlightLogins(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Checks each call's header. Tokens are this process's own and end when unused for so long."""

    def __init__(
        self,
        access: Access,
        idle_timeout_s: float,
        tokens_max: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._idle_timeout_s = idle_timeout_s
        self._tokens_max = tokens_max
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens: OrderedDict[str, tuple[User, float]] = OrderedDict()  # least used first

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str]]) -> _Call:
        """Return who calls. Raises FlightUnauthenticatedError: nobody that may come in."""
        given = next((v[0] for k, v in headers.items() if k.lower() == _HEADER and v), "")
        kind, _, text = given.partition(" ")
        if kind.lower() == "bearer":
            return _Call(self._of_token(text), "")
        name, password = _parsed(text) if kind.lower() == "basic" else ("", "")
        seed = secrets.token_bytes(SEED_BYTES)
        answer = scramble411(password, seed).hex().encode() if password else b""
        user = self._access.login(name, seed, answer)
        if user is None:
            raise flight.FlightUnauthenticatedError(
                "log in with a username and password of [flight]: "
                "authorization: Basic, or pyarrow's authenticate_basic_token"
            )
        handshake = info.method == flight.FlightMethod.HANDSHAKE
        return _Call(user, self._new_token(user) if handshake else "")

    def _of_token(self, token: str) -> User:
        now = self._clock()
        with self._lock:
            user, used = self._tokens.pop(token, (None, now))
            if user is None or now - used > self._idle_timeout_s:
                raise flight.FlightUnauthenticatedError("the token has expired; log in again")
            self._tokens[token] = user, now
            return user

    def _new_token(self, user: User) -> str:
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        with self._lock:
            self._tokens[token] = user, self._clock()
            while len(self._tokens) > self._tokens_max:
                self._tokens.popitem(last=False)
        return token


class _Call(flight.ServerMiddleware):  # type: ignore[misc]
    """One call: its user, and the token that a handshake is answered with."""

    def __init__(self, user: User, token: str) -> None:
        self.user = user
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        return {_HEADER: f"Bearer {self._token}"} if self._token else {}


class Handshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Lets handshakes through: the header is what counts."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Nothing is asked here."""

    def is_valid(self, token: bytes) -> bytes:
        """Return no name: `FlightLogins` knows it."""
        return b""


def _parsed(text: str) -> tuple[str, str]:
    """Name and password of a Basic header; empty if it is none."""
    try:
        name, _, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name, password
