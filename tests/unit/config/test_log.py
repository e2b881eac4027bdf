"""[log]: without it Ray's settings count; levels and formats are named, others refused."""

from __future__ import annotations

import pytest

from ray_canal import config
from ray_canal.errors import ConfigError


def test_it_is_off_until_it_is_there() -> None:
    assert config.load({"instance": []}).log is None
    found = config.load({"instance": [], "log": {}}).log
    assert found is not None
    assert (found.format, found.level) == ("text", "info")


@pytest.mark.parametrize(("key", "value"), [("level", "loud"), ("format", "xml"), ("file", "f")])
def test_what_is_no_setting_of_a_log_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"log\.{key}"):
        config.load({"instance": [], "log": {key: value}})
