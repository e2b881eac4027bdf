"""Addresses with and without a port, and what is none."""

from __future__ import annotations

import pytest

from ray_canal import config
from ray_canal.config.section import host_port_of
from ray_canal.errors import ConfigError


@pytest.mark.parametrize(
    ("address", "host_port"),
    [
        ("db", ("db", 3306)),
        ("db.example.com:3307", ("db.example.com", 3307)),
        ("10.0.0.7:3307", ("10.0.0.7", 3307)),
        ("[::1]:3307", ("::1", 3307)),
        ("[::1]", ("::1", 3306)),
        ("::1", ("::1", 3306)),
        ("fe80::1:3306", ("fe80::1:3306", 3306)),
        ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1)),
    ],
)
def test_addresses(address: str, host_port: tuple[str, int]) -> None:
    """D3: with and without a port, also of IPv6."""
    assert config.SourceConfig(address=address).host_port == host_port
    meta = config.MetaConfig(backend="mysql", address=address)
    assert meta.host_port(3306) == host_port


@pytest.mark.parametrize(
    "address", ["db:", ":3306", "db:port", "db:99999", "db:0", "[::1", "a b:1", "1:2:3", "[::1]x"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"expected host:port, or \[IPv6\]:port"):
        host_port_of(address, 3306, "source.address")
