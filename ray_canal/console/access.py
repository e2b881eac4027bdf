"""Visitors of the console: known by a session's cookie, a header with name and password, a proxy's
headers (proxy.py), or nobody asked.

Users and rights are those of the TCP port (server/access.py). On the pages they are roles:
viewer (right read), operator (right subscribe), admin.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ray_canal.canal.scramble import SEED_BYTES, scramble411
from ray_canal.config import ConsoleConfig, Right
from ray_canal.console.proxy import Proxy
from ray_canal.errors import AccessDenied
from ray_canal.server.access import Access, User

_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Visitor:
    """The visitor of a request. `csrf` must come with what changes something, unless
    `by_header`."""

    user: User
    csrf: str
    token: str = ""
    by_header: bool = False

    @property
    def role(self) -> str:
        """The strongest of viewer, operator, admin."""
        if self.user.may("admin"):
            return "admin"
        return "operator" if self.user.may("subscribe") else "viewer"

    @property
    def name(self) -> str:
        """The user's name; who has come without one is "anybody"."""
        return self.user.name or "anybody"

    def sees(self, destination: str) -> bool:
        """Return whether the destination is one of the user's."""
        return self.user.may("read") and any(
            fnmatchcase(destination, each) for each in self.user.destinations
        )

    def refuse_without(self, right: Right, destination: str = "*") -> None:
        """Raises AccessDenied: the user has not this right there. "*": for the deployment."""
        if destination == "*":
            there, what = "*" in self.user.destinations, "the deployment"
        else:
            there, what = self.sees(destination), f"destination {destination}"
        if not (there and self.user.may(right)):
            raise AccessDenied(
                f"{self.name} ({self.role}) has not the right {right!r} for {what} "
                "(rights of its [[console.user]] section)"
            )

    def proves(self, csrf: str) -> bool:
        """Return whether a form or call comes from a page that was made for this visitor."""
        return self.by_header or hmac.compare_digest(csrf.encode(), self.csrf.encode())


class ConsoleLogins:
    """The sessions of this process; they end with it."""

    def __init__(
        self, config: ConsoleConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises ConfigError: a secret cannot be read."""
        self._access = Access(config)
        self._idle_timeout_s = config.idle_timeout_s
        self._sessions_max = config.logins_max
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, tuple[User, float]] = OrderedDict()  # least used first
        self._key = secrets.token_bytes(_TOKEN_BYTES)
        self.by_password = bool(config.password or config.password_hash or config.user)
        self._proxy = Proxy(config.proxy) if config.proxy else None
        self._anybody = self._checked("", "")

    @property
    def asks(self) -> bool:
        """Return whether visitors have to log in."""
        return self._anybody is None

    def login(self, name: str, password: str) -> str | None:
        """Return a new session's token; None: name and password do not fit."""
        user = self._checked(name, password)
        if user is None:
            return None
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        with self._lock:
            self._sessions[token] = user, self._clock()
            while len(self._sessions) > self._sessions_max:
                self._sessions.popitem(last=False)
        return token

    def logout(self, token: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(token, None)

    def visitor(self, peer: str, headers: Mapping[str, str], token: str) -> Visitor | None:
        """Return who asks, by the peer's address, headers and cookie; None: somebody who has to
        log in. Raises AccessDenied: the proxy names somebody without a role."""
        proxied = self._proxy.user(peer, headers) if self._proxy else None
        if proxied is not None:
            return Visitor(proxied, self._csrf(f"proxy:{proxied.name}"))
        authorization = headers.get("authorization", "")
        if authorization:
            user = self._by_header(authorization)
            return None if user is None else Visitor(user, "", by_header=True)
        if self._anybody is not None:
            return Visitor(self._anybody, self._csrf(""))
        now = self._clock()
        with self._lock:
            known, used = self._sessions.pop(token, (None, now))
            if known is None or now - used > self._idle_timeout_s:
                return None
            self._sessions[token] = known, now
        return Visitor(known, self._csrf(token), token)

    def _by_header(self, authorization: str) -> User | None:
        kind, _, text = authorization.partition(" ")
        if kind.lower() == "bearer":
            return self._checked("", text.strip())
        if kind.lower() != "basic":
            return None
        try:
            name, _, password = base64.b64decode(text, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        return self._checked(name, password)

    def _checked(self, name: str, password: str) -> User | None:
        if self._proxy is not None and not self.by_password:
            return None
        seed = secrets.token_bytes(SEED_BYTES)
        answer = scramble411(password, seed).hex().encode() if password else b""
        return self._access.login(name, seed, answer)

    def _csrf(self, token: str) -> str:
        return hmac.new(self._key, token.encode(), "sha256").hexdigest()
