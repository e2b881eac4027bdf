"""[server]: Canal's TCP protocol, and what every port has."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from ray_canal.config.node import NodeText
from ray_canal.config.section import FilePath, SecretText, Section

Right = Literal["read", "ack", "subscribe", "admin"]

_RANGE = re.compile(r"\s*(\d{1,10})\s*(?:-\s*(\d{1,10})\s*)?")


class ServerTlsConfig(Section):
    """TLS on the server's port: PEM files. With `ca`, clients must show a certificate of it."""

    cert: FilePath = ""
    key: FilePath = ""
    ca: FilePath = ""


class RightsConfig(Section):
    """Rights of a user; server/access.py says what each right is.

    `destinations` are names or patterns with `*` and `?`; `client_ids` are numbers and ranges,
    `1001-1099,2000`; empty: any, but none of them is the user's own.
    """

    destinations: tuple[str, ...] = ("*",)
    client_ids: str = ""
    rights: tuple[Right, ...] = ("read", "ack", "subscribe")

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not self.destinations or not self.rights:
            raise ValueError("who has no destinations or rights may do nothing")
        _ = self.client_id_ranges
        return self

    @property
    def client_id_ranges(self) -> tuple[range, ...]:
        """`client_ids`, parsed. Raises ValueError."""
        found = []
        for item in filter(str.strip, self.client_ids.split(",")):
            match = _RANGE.fullmatch(item)
            if match is None:
                raise ValueError(f'client_ids {self.client_ids!r}: expected "1001-1099,2000"')
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                raise ValueError(f"client_ids: {item.strip()!r} is a range without any number")
            found.append(range(first, last + 1))
        return tuple(found)


class UserConfig(RightsConfig):
    """Settings of a `user`: who may come in, and what for."""

    username: str = Field(min_length=1)
    password: SecretText = ""
    password_hash: SecretText = ""

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        if bool(self.password) == bool(self.password_hash):
            raise ValueError(f"user {self.username}: give either `password` or `password_hash`")
        return self


class DoorConfig(Section):
    """Settings of a port, who may come in and how: what [server] and [flight] have in common.

    `host` empty: every address of the machine where clients must say who they are, else its own
    alone."""

    host: str = ""
    username: str = ""
    password: SecretText = ""
    password_hash: SecretText = ""  # in place of `password`: hex of SHA1(SHA1(it)), as canal.passwd
    user: tuple[UserConfig, ...] = ()
    insecure: bool = False
    tls: ServerTlsConfig = ServerTlsConfig()

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        if self.password and self.password_hash:
            raise ValueError("give `password` or `password_hash`, not both")
        if self.username and not (self.password or self.password_hash):
            raise ValueError("a `username` without a password lets everybody in; give a password")
        if (self.tls.key or self.tls.ca) and not self.tls.cert:
            raise ValueError("tls needs `cert`, a PEM file of the server's certificate")
        names = [user.username for user in self.user] + [self.username] * bool(self.username)
        if len(set(names)) != len(names):
            raise ValueError(f"user: a name is given twice, of {', '.join(names)}")
        return self

    @model_validator(mode="after")
    def _closed_or_said_to_be_open(self) -> Self:
        if self.insecure and self.asks_who_comes:
            raise ValueError("insecure = true lets everybody in; leave it out, or the passwords")
        if self.host and not (self.asks_who_comes or self.insecure or _is_local(self.host)):
            raise ValueError(
                f"host {self.host!r} without a password lets everybody who reaches it read all "
                "destinations, and move or remove every cursor: give `password`, `password_hash` "
                "or [[server.user]], or say insecure = true"
            )
        return self

    @property
    def asks_who_comes(self) -> bool:
        """Return whether clients need a password, or a certificate."""
        return bool(self.password or self.password_hash or self.user or self.tls.ca)

    @property
    def listens_on(self) -> str:
        """The address that the port is opened on."""
        if self.host:
            return self.host
        return "0.0.0.0" if self.asks_who_comes or self.insecure else "127.0.0.1"

    @property
    def warning(self) -> str:
        """Return what whoever opens the port should know; "" where there is nothing to say."""
        if self.asks_who_comes:
            return ""
        if _is_local(self.listens_on):
            return (
                f"no password is set, so the port listens on {self.listens_on} alone; programs of "
                "this machine may read everything, and move or remove every cursor "
                "(docs/reference/canal-tcp.md)"
            )
        return (
            f"insecure = true: whoever reaches {self.listens_on} may read everything, and move or "
            "remove every cursor (docs/reference/canal-tcp.md)"
        )


class ServerConfig(DoorConfig):
    """Canal's TCP protocol for all destinations of the cluster. Without this section, no port is
    opened."""

    port: int = Field(11111, ge=0, le=65535)
    replicas: int = Field(1, ge=1, le=64)
    node: NodeText = ""
    login_timeout_s: float = Field(10.0, gt=0)
    idle_timeout_s: float = Field(3600.0, gt=0)
    stall_timeout_s: float = Field(60.0, gt=0)
    connections_max: int = Field(4096, ge=1)
    logins_max: int = Field(1024, ge=1)
    requests_max: int = Field(100, ge=1)
    packet_bytes_max: int = Field(1 << 20, ge=1 << 10)
    buffer_bytes_max: int = Field(256 << 20, ge=1 << 20)


def _is_local(host: str) -> bool:
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None
