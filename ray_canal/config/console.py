"""[console]: the web page, the REST API and the console's own metrics."""

from __future__ import annotations

import ipaddress

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from ray_canal.config.section import FilePath, SecretReference, Section
from ray_canal.config.server import DoorConfig, RightsConfig


class ProxyRoleConfig(RightsConfig):
    """Roles of visitors of whom the proxy says these names or groups (patterns with `*` and
    `?`; empty: any)."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class ProxyConfig(Section):
    """A proxy that logs visitors in (by OIDC, say) and tells who they are in headers.

    What comes from its `addresses` (addresses or networks), with the `secret` in `secret_header` if
    there is one, is believed; the same headers from elsewhere are not read. Of the roles the first
    that fits counts; who has none is refused.
    """

    addresses: tuple[str, ...] = ()
    secret: SecretReference = ""
    secret_header: str = "X-Ray-Canal-Proxy"
    user_header: str = "X-Forwarded-User"
    groups_header: str = "X-Forwarded-Groups"
    role: tuple[ProxyRoleConfig, ...] = ()

    @field_validator("addresses")
    @classmethod
    def _are_addresses(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for each in addresses:
            ipaddress.ip_network(each, strict=False)
        return addresses

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.addresses:
            raise ValueError("give `addresses`, from which the proxy's headers are believed")
        if not self.role:
            raise ValueError("give [[console.proxy.role]]: without a role no user may come in")
        return self


class ConsoleConfig(DoorConfig):
    """The console of a deployment. Without a password or proxy it listens on this machine alone.

    `hidden_columns` are patterns over `schema.table.column` with `*` and `?`: the live tail shows
    no value of theirs. `canal_metric_names` adds the names that Canal's own server exports.
    `requests_max` requests are in work at a time, live tails among them; others are refused.
    `sources_folder` is where the form of a new source writes its file.
    """

    port: int = Field(11116, ge=0, le=65535)
    refresh_s: float = Field(2.0, ge=0.2)
    idle_timeout_s: float = Field(28800.0, gt=0)
    logins_max: int = Field(1024, ge=1)
    connections_max: int = Field(256, ge=4)
    requests_max: int = Field(64, ge=4)
    tails_max: int = Field(8, ge=0)
    hidden_columns: tuple[str, ...] = ()
    canal_metric_names: bool = False
    sources_folder: FilePath = ""
    audit_log: FilePath = ""
    proxy: ProxyConfig | None = None

    @property
    def asks_who_comes(self) -> bool:
        """Return whether visitors need a password or certificate, or come by the proxy."""
        return self.proxy is not None or super().asks_who_comes
