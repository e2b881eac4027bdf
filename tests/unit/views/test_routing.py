"""Canal's rules of topics and partitions (MQMessageUtils), one by one."""

from __future__ import annotations

import pytest

from ray_canal.errors import ConfigError
from ray_canal.views.routing import KeyRule, Route, Routing, java_hash, java_partition


def test_hashes_are_javas() -> None:
    assert java_hash("") == 0
    assert java_hash("hello") == 99162322
    assert java_hash("polygenelubricants") == 1 << 31  # Integer.MIN_VALUE
    assert java_hash("中文") == 646394
    assert java_hash("😀") == 1772899
    assert java_partition(1 << 31, 7) == (1 << 31) % 7
    assert java_partition((1 << 32) - 5, 4) == 1


def test_the_first_rule_that_matches_counts() -> None:
    routing = Routing(
        partitions=4, partition=2, partition_hash="shop.orders:id^owner;SHOP.Items,.*\\.log:$pk$"
    )
    assert routing.route("shop", "orders") == Route("example", 4, 0, KeyRule(("id", "owner")))
    assert routing.route("shop", "items").partition == java_hash("items") % 4
    assert routing.route("any", "LOG").rule == KeyRule(None)
    assert routing.route("shop", "other") == Route("example", 4, 0)
    assert Routing(partition=2).route("shop", "other").partition == 2


def test_hashed_columns() -> None:
    names, keys = ["id", "Owner", "b"], [True, False, False]
    assert KeyRule(None).hashed(names, keys, by_entry=False) == keys
    assert KeyRule(("owner", "b")).hashed(names, keys, by_entry=False) == [False, False, True]
    assert KeyRule(("owner", "b")).hashed(names, keys, by_entry=True) == [False, True, True]
    assert KeyRule(("b", "b")).hashed(names, keys, by_entry=False) == [False] * 3


def test_topics() -> None:
    routing = Routing(
        topic="rest",
        dynamic_topic="mine:shop.orders,Shop.Items,all: test\\..* ,lake,wide:w.*",
        dynamic_topic_partitions="all:3,shop.*:6,mine:x",
        partitions=2,
    )
    topics = {
        ("shop", "ORDERS"): "mine",
        ("SHOP", "items"): "shop.items",
        ("test", "a"): "all",
        ("lake", "any"): "lake",
        ("world", "a"): "wide",
        ("shop", "other"): "rest",
        ("shop", ""): "rest",
    }
    assert {name: routing.route(*name).topic for name in topics} == topics
    assert routing.route("test", "a").partitions == 3
    assert routing.route("shop", "items").partitions == 6
    assert routing.route("shop", "orders").partitions == 2


@pytest.mark.parametrize(
    "given",
    [
        {"partitions": 0}, {"partition": -1}, {"partition_hash": "a.[:id"},
        {"dynamic_topic": "t:*("}, {"dynamic_topic_partitions": "t:0"},
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Routing(**given)  # type: ignore[arg-type]
