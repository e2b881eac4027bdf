"""A visitor's identity by a proxy: OIDC's user and groups in headers, and their role here."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from ray_canal.config import secret
from ray_canal.config.console import ProxyConfig, ProxyRoleConfig
from ray_canal.errors import AccessDenied
from ray_canal.server.access import User

_NAME_CHARS_MAX = 256


class Proxy:
    """The proxy that is believed."""

    def __init__(self, config: ProxyConfig) -> None:
        """Raises ConfigError: its secret cannot be read."""
        self._config = config
        self._networks = [ipaddress.ip_network(each, strict=False) for each in config.addresses]
        self._secret = secret(config.secret).encode() if config.secret else b""

    def user(self, peer: str, headers: Mapping[str, str]) -> User | None:
        """Return who a request comes from, by its peer's address and its headers; None: the proxy
        does not say it, or it is not the proxy. Raises AccessDenied: nobody's role fits."""
        name = headers.get(self._config.user_header, "").strip()[:_NAME_CHARS_MAX]
        if not name or not self._is_proxy(peer, headers):
            return None
        groups = headers.get(self._config.groups_header, "").split(",")
        groups = [group for group in map(str.strip, groups) if group]
        for role in self._config.role:
            if _fits(role, name, groups):
                owned = role.client_id_ranges or None
                return User(name, frozenset(role.rights), role.destinations, owned)
        told = ", ".join(groups) or "none"
        raise AccessDenied(f"{name} (groups: {told}) has no role here ([[console.proxy.role]])")

    def _is_proxy(self, peer: str, headers: Mapping[str, str]) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:  # not of the internet
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        if not any(address in network for network in self._networks):
            return False
        given = headers.get(self._config.secret_header, "").encode()
        return not self._secret or hmac.compare_digest(given, self._secret)


def _fits(role: ProxyRoleConfig, name: str, groups: Iterable[str]) -> bool:
    by_name = not role.users or any(fnmatchcase(name, each) for each in role.users)
    by_group = not role.groups or any(
        fnmatchcase(group, each) for group in groups for each in role.groups
    )
    return by_name and by_group
