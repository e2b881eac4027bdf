"""A configuration's text: paths by its folder, its sinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_canal.console.deployments import listed_sinks, parsed
from ray_canal.errors import ConfigError
from tests.unit.console.test_rest_deployment import TOML


def test_paths_are_of_the_folder(tmp_path: Path) -> None:
    config = parsed(TOML, tmp_path)
    assert config.instance[0].source.files == (str(tmp_path / "log/bin.000001"),)
    assert listed_sinks(config) == [
        {"name": "lines", "destination": "orders", "type": "jsonl", "guarantee": "at_least_once"}
    ]


def test_an_unknown_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sorce"):
        parsed(TOML.replace("source", "sorce"), tmp_path)
