"""[notify]: secrets are references, for the actor that has them is kept by Ray's head."""

from __future__ import annotations

import pytest

from ray_canal.config import load
from ray_canal.config.notify import NotifyConfig
from ray_canal.errors import ConfigError


def test_an_address_with_a_key_in_it_is_not_written_out() -> None:
    with pytest.raises(ConfigError, match="env:NAME or file:PATH") as told:
        load({"instance": [], "notify": {"url": "https://hooks.example/key-4711"}})
    assert "4711" not in str(told.value)
    assert str(NotifyConfig(url="env:HOOK", secret="file:/s").url) == "env:HOOK"


@pytest.mark.parametrize("change", [{"every_s": 0}, {"timeout_s": 0}, {"lag_seconds": -1}])
def test_what_would_never_watch_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=rf"notify\.{next(iter(change))}"):
        load({"instance": [], "notify": change})
