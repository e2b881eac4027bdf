"""`node`: what it may say, which nodes it means, and what cannot follow a destination there."""

from __future__ import annotations

from typing import Any

import pytest

from ray_canal.config import load
from ray_canal.config.node import NodeSelector
from ray_canal.errors import ConfigError

LABELS = {"ray.io/node-group": "stores", "zone": "a"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("any", True),
        ("ray.io/node-group=stores", True),
        ("zone=b", False),
        ("rack=", False),
        ("zone=a, ssd", True),
        ("zone=a,gpu", False),
        ("node:10.0.0.5", False),
        ("ssd", True),
    ],
)
def test_a_node_has_all_that_is_named(text: str, matches: bool) -> None:
    assert NodeSelector.parse(text).matches(LABELS, {"ssd", "CPU"}) is matches


@pytest.mark.parametrize("text", ["head, ssd", "a b", "=x", "zone=a,", "zone==a", ","])
def test_what_names_no_node_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="node "):
        NodeSelector.parse(text)


def config(**sections: Any) -> dict[str, Any]:
    source = {"address": "127.0.0.1:3306"}
    instance = {"destination": "orders", "source": source, **sections.pop("instance", {})}
    return {"instance": [instance], **sections}


MYSQL = {"backend": "mysql", "address": "127.0.0.1:3306"}


def test_a_destination_that_names_none_goes_where_ray_says() -> None:
    def node_of(**sections: Any) -> str:
        return load(config(**sections)).instance[0].node

    assert node_of() == "head"
    assert node_of(ray={"node": "any"}, meta=MYSQL) == "any"
    assert node_of(ray={"node": "any"}, meta=MYSQL, instance={"node": "head"}) == "head"
    files = {"source": {"files": ["mysql-bin.000001"]}}
    assert node_of(ray={"node": "any"}, meta=MYSQL, instance=files) == "head"


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"ray": {"node": "any"}}, "does not have its cursors"),
        ({"instance": {"node": "ssd"}, "meta": {"backend": "memory"}}, "does not have its cursors"),
        (
            {"ray": {"node": "any"}, "meta": MYSQL, "instance": {"tsdb": {"path": "t.db"}}},
            "does not have its schemas",
        ),
        ({"ray": {"node": "an y"}}, "ray.node: node 'an y'"),
    ],
)
def test_records_that_would_stay_behind_are_refused(sections: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(config(**sections))


def test_a_file_that_all_nodes_share_may_have_them() -> None:
    assert load(config(ray={"node": "any"}, meta={"shared": True})).meta.backend == "sqlite"
