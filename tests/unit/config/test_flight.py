"""[flight]: a port like that of [server], as closed as that one."""

from __future__ import annotations

import pytest

from ray_canal import config
from ray_canal.errors import ConfigError


def test_it_is_closed_as_the_other_port_is() -> None:
    section = config.load({"instance": [], "flight": {}}).flight
    assert section is not None
    assert section.listens_on == "127.0.0.1"
    with pytest.raises(ConfigError, match="insecure = true"):
        config.load({"instance": [], "flight": {"host": "0.0.0.0"}})


def test_settings_of_canals_protocol_are_not_its_own() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'flight\.packet_bytes_max'"):
        config.load({"instance": [], "flight": {"packet_bytes_max": 4096}})
