"""[console] and [console.proxy]: what is refused, and where the port is opened."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from ray_canal.config import ConsoleConfig

ROLE = {"groups": ["cdc"], "rights": ["read"]}


def test_without_a_password_it_is_of_this_machine_alone() -> None:
    config = ConsoleConfig.model_validate({})
    assert config.listens_on == "127.0.0.1"
    assert "no password" in config.warning


def test_behind_a_proxy_visitors_are_asked() -> None:
    config = ConsoleConfig.model_validate({"proxy": {"addresses": ["10.0.0.7"], "role": [ROLE]}})
    assert config.asks_who_comes
    assert config.listens_on == "0.0.0.0"
    assert config.warning == ""


@pytest.mark.parametrize(
    ("proxy", "problem"),
    [
        ({"role": [ROLE]}, "addresses"),
        ({"addresses": ["10.0.0.0/8"]}, "console.proxy.role"),
        ({"addresses": ["a proxy"], "role": [ROLE]}, "a proxy"),
        ({"addresses": ["::1"], "role": [ROLE], "secret": "in clear"}, "env:NAME or file:PATH"),
        ({"addresses": ["::1"], "role": [{**ROLE, "rights": []}]}, "may do nothing"),
    ],
)
def test_what_is_wrong_is_named(proxy: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ConsoleConfig.model_validate({"proxy": proxy})
