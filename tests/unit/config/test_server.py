"""[server]: a port is open to all only where that is said."""

from __future__ import annotations

import pytest

from ray_canal import config
from ray_canal.errors import ConfigError


@pytest.mark.parametrize(
    ("server", "listens_on"),
    [
        ({}, "127.0.0.1"),
        ({"password": "p"}, "0.0.0.0"),
        ({"password_hash": "env:X"}, "0.0.0.0"),
        ({"user": [{"username": "u", "password": "p"}]}, "0.0.0.0"),
        ({"tls": {"cert": "c", "ca": "a"}}, "0.0.0.0"),
        ({"tls": {"cert": "c"}}, "127.0.0.1"),
        ({"insecure": True}, "0.0.0.0"),
        ({"insecure": True, "host": "10.0.0.1"}, "10.0.0.1"),
        ({"password": "p", "host": "::"}, "::"),
        ({"host": "localhost"}, "localhost"),
        ({"host": "127.0.1.1"}, "127.0.1.1"),
        ({"host": "::1"}, "::1"),
    ],
)
def test_where_the_port_listens(server: dict[str, object], listens_on: str) -> None:
    """C1: on all addresses only where clients are asked who they are, or it is said to be open."""
    found = config.ServerConfig.model_validate(server)
    assert found.listens_on == listens_on
    asks = {"password", "password_hash", "user"} & server.keys() or found.tls.ca
    assert bool(found.warning) is not bool(asks)


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ({"host": "0.0.0.0"}, "insecure = true"),
        ({"host": "10.0.0.1"}, "insecure = true"),
        ({"host": "127.evil.example"}, "insecure = true"),
        ({"insecure": True, "password": "p"}, "leave it out"),
        ({"user": [{"username": "u"}]}, "either `password` or"),
        ({"user": [{"username": "u", "password": "p", "rights": ["reed"]}]}, "rights"),
        ({"user": [{"username": "u", "password": "p", "rights": []}]}, "may do nothing"),
        ({"user": [{"username": "u", "password": "p", "client_ids": "a"}]}, "1001-1099"),
        ({"user": [{"username": "u", "password": "p", "client_ids": "9-2"}]}, "without any"),
        ({"user": [{"username": "u", "password": "p"}] * 2}, "twice"),
        (
            {"username": "u", "password": "q", "user": [{"username": "u", "password": "p"}]},
            "twice",
        ),
    ],
)
def test_a_port_that_is_open_by_mistake_is_refused(server: dict[str, object], why: str) -> None:
    """C1: an open port must be said to be one."""
    with pytest.raises(ConfigError, match=why):
        config.load({"instance": [], "server": server})
