"""Canal's rules of topics and partitions (MQMessageUtils), one by one."""

from __future__ import annotations

import random
import re

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


def canals_topic(default: str, rules: str, schema: str, table: str) -> str:
    """`messageTopics`, written again from Canal's source."""

    def fits(name: str, rule: str) -> bool:
        if not re.search(r"[*?+|(){}\[\]\\$^]", rule):
            return bool(rule) and rule.lower() == name.lower()
        if ("." in name) != ("\\." in rule):
            return False
        return re.fullmatch(rule, name.lower(), re.IGNORECASE) is not None

    if not rules or not schema or not table:
        return default
    for name in (f"{schema}.{table}", schema):
        for item in filter(None, rules.replace(",", ";").split(";")):
            topic, colon, rule = item.partition(":")
            if fits(name, rule.strip() if colon else item):
                return topic.strip() if colon else name.lower()
    return default


def canals_partition(rules: str, schema: str, table: str, count: int, seed: bool,
                     row: dict[str, str | None], keys: list[str]) -> int:  # fmt: skip
    """`messagePartition` of one row, written again; numbers as Java's int."""

    def as_int(number: int) -> int:
        return (number + (1 << 31)) % (1 << 32) - (1 << 31)

    def code_of(text: str) -> int:
        found = 0
        for letter in text.encode("utf-16-be").hex(" ", 2).split():
            found = as_int(31 * found + int(letter, 16))
        return found

    def place(code: int) -> int:
        magnitude = as_int(abs(code))  # Integer.MIN_VALUE has none
        remainder = abs(magnitude) % count
        return abs(remainder if magnitude >= 0 else -remainder)

    for item in filter(None, rules.replace(",", ";").split(";")):
        at = item.rfind(":")
        rule, chosen = (item[:at], item[at + 1 :]) if at > 0 else (item, None)
        name = f"{schema}.{table}"
        if re.search(r"[*?+|(){}\[\]\\$^]", rule):
            if not re.fullmatch(rule, name.lower(), re.IGNORECASE):
                continue
        elif rule.lower() != name.lower():
            continue
        if chosen is None:
            return place(code_of(table))
        code = code_of(schema) if seed else 0
        names = keys if chosen.lower() == "$pk$" else [n for n in chosen.split("^") if n]
        for each in names:
            code = as_int(code ^ code_of(row.get(each) or ""))
        return place(code)
    return 0


def test_random_rules_are_as_canals_source_has_them() -> None:
    generator = random.Random(26)
    names = ["shop", "Shop2", "log_a", "库"]
    tables = ["orders", "Orders_1", "polygenelubricants", "表", "t"]
    patterns = [
        r".*\..*", r"shop\..*", "shop.*", ".*", r".*\.orders.*", r"log_[a-c]\.t|x", "shop.orders",
        "SHOP2.t", "库.表", "shop", "库", r"(shop|log_a)\.(t|orders)", r".*\.[^t]+", "", "log.a",
    ]  # fmt: skip
    suffixes = ["", ":$pk$", ":$PK$", ":id", ":id^name", ":id^id", ":^name^", ":none", ":"]
    values = [None, "", "1", "polygenelubricants", "中文😀", "x" * 40]
    compared = 0
    for _ in range(3000):
        rules = generator.choice(",;").join(
            generator.choice(patterns) + generator.choice(suffixes) for _ in range(3)
        )
        topics = generator.choice(",;").join(
            generator.choice(["", "one:", " two :", "a.b:"]) + generator.choice(patterns)
            for _ in range(3)
        )
        schema, table = generator.choice(names), generator.choice(tables)
        count, seed = generator.choice([1, 2, 7, 16, 1000]), generator.random() < 0.5
        routing = Routing(
            topic="rest", partitions=count, partition_hash=rules, dynamic_topic=topics,
            database_hash=seed,
        )  # fmt: skip
        route = routing.route(schema, table)
        assert route.topic == canals_topic("rest", topics, schema, table), (topics, schema, table)
        row = {name: generator.choice(values) for name in ("id", "name", "more")}
        keys = generator.choice([["id"], ["id", "more"], []])
        found = route.partition
        if route.rule is not None:
            flags = route.rule.hashed(list(row), [n in keys for n in row], by_entry=False)
            code = routing.hash_seed(schema)
            for value, is_hashed in zip(row.values(), flags, strict=True):
                code ^= java_hash(value or "") if is_hashed else 0
            found = java_partition(code, count)
            compared += 1
        expected = canals_partition(rules, schema, table, count, seed, row, keys)
        assert found == expected, (rules, schema, table, row, keys)
    assert compared > 500


def test_partition_numbers_go_by_the_name_that_is_sent_to() -> None:
    routing = Routing(
        dynamic_topic=r".*\..*", dynamic_topic_partitions="shop_orders:5,shop.items:4,lake_.*:3"
    )
    found = [routing.route(*name.split(".")).partitions
             for name in ("shop.orders", "shop.items", "lake.a", "shop.other")]  # fmt: skip
    assert found == [5, 4, 3, 1]


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
