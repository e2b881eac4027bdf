"""A deployment's parts fit each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ray_canal import config
from ray_canal.errors import ConfigError
from tests.unit.config.minimal import MINIMAL, write


@pytest.mark.parametrize("name", [".", "..", "..."])
def test_dots_alone_name_no_destination(name: str) -> None:
    """C5: what is a path to another folder is no name of a folder."""
    with pytest.raises(ConfigError, match="dots alone are no name"):
        config.load({"instance": [{"destination": name, "source": {"address": "db"}}]})


def test_two_instances_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unique"):
        config.load(write(tmp_path, MINIMAL + MINIMAL))


def test_unknown_destination_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it has orders"):
        config.load(write(tmp_path, MINIMAL)).destination("items")


def test_two_destinations_may_not_share_a_server_id() -> None:
    source = {"address": "127.0.0.1:3306", "server_id": 7}
    two = {"instance": [{"destination": d, "source": source} for d in ("a", "b")]}
    with pytest.raises(ConfigError, match="server_id 7 is given to a and to b"):
        config.load(two)
    two["instance"][1]["source"] = {**source, "server_id": 8}
    config.load(two)
    two["instance"][0]["source"] = two["instance"][1]["source"] = {**source, "server_id": 0}
    config.load(two)


def test_a_zone_that_there_is_not_is_refused(tmp_path: Path) -> None:
    text = MINIMAL.replace('destination = "', 'time_zone = "Mars/Olympus"\ndestination = "', 1)
    assert text != MINIMAL
    with pytest.raises(ConfigError, match="no such zone"):
        config.load(write(tmp_path, text))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"destination": "other"}, "no destination 'other'"),
        ({"type": "mysql"}, "mirror.address"),
        ({"transform": "no function"}, "module:name"),
        ({"name": "b"}, "same client_id 5"),
        ({"mirror": {"table": "one"}}, "table"),
        ({"tables": "("}, "tables"),
    ],
)
def test_a_wrong_sink_is_named(change: dict[str, object], said: str) -> None:
    sink = {"name": "a", "destination": "o", "type": "jsonl", "path": "p", "client_id": 5}
    tree = {"instance": [{"destination": "o", "source": {"address": "db"}}], "sink": [sink]}
    assert config.load(tree).sink_named("a").client_id == 5
    tree["sink"] = [sink, {**sink, **change}] if change == {"name": "b"} else [{**sink, **change}]
    with pytest.raises(ConfigError, match=re.escape(said)):
        config.load(tree)
