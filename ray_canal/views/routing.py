"""Choose the topic and partition of a message, by Canal's rules (`canal.mq.*`).

    partitionHash  rule(,rule)*: schema.table or a pattern, and behind a colon what chooses: columns
                   (`id^name`) or `$pk$`, row by row; without a colon the table's name alone. The
                   first rule that matches counts; all else goes to partition 0.
    dynamicTopic   item(,item)*: [topic:] and a schema, schema.table or pattern. The first item that
                   matches `schema.table`, else the first that matches `schema`, gives its topic,
                   or the name that it matched in lower case.
    dynamicTopicPartitionNum  topic:number(,topic:number)*; a topic or a pattern.

Rules are separated by commas or semicolons. Hashes are those of Java's strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ray_canal.errors import ConfigError
from ray_canal.patterns import compiled

PRIMARY_KEY = "$pk$"
KEY_CHANGES_CANAL, KEY_CHANGES_SPLIT = "canal", "split"
_PATTERN = re.compile(r"[*?+|(){}\[\]\\$^]")
_KNOWN = 4096

Matcher = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class KeyRule:
    """Columns that choose a row's partition; None: the primary key."""

    columns: tuple[str, ...] | None

    def hashed(self, names: Sequence[str], keys: Sequence[bool], *, by_entry: bool) -> list[bool]:
        """Return which of a table's columns are hashed. A name that is given twice is its own
        inverse in a FlatMessage; in entries (`by_entry`) letters' case does not count."""
        if self.columns is None:
            return list(keys)
        if by_entry:
            wanted = {name.lower() for name in self.columns}
            return [name.lower() in wanted for name in names]
        return [self.columns.count(name) % 2 == 1 for name in names]


@dataclass(frozen=True, slots=True)
class Route:
    """Topic and partition of a table's messages. `rule` None: all to `partition`; else each row by
    its key."""

    topic: str
    partitions: int
    partition: int
    rule: KeyRule | None = None


@dataclass(frozen=True, kw_only=True)
class Routing:
    """Canal's `canal.mq.topic`, `partition`, `partitionsNum`, `partitionHash`, `dynamicTopic`,
    `dynamicTopicPartitionNum` and `database.hash`. Raises ConfigError: a rule is wrong.

    `key_changes`: an UPDATE that moves a row to another partition goes there, as in Canal
    (`canal`), or is a DELETE in the one before and an INSERT in the other (`split`)."""

    topic: str = "example"
    partition: int = 0
    partitions: int = 1
    partition_hash: str = ""
    dynamic_topic: str = ""
    dynamic_topic_partitions: str = ""
    database_hash: bool = True
    key_changes: str = KEY_CHANGES_CANAL
    _routes: dict[tuple[str, str], Route] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.partitions < 1 or self.partition < 0:
            raise ConfigError(
                f"{self.partitions} partitions and partition {self.partition}: at least 1, and not "
                "below 0"
            )
        if self.key_changes not in (KEY_CHANGES_CANAL, KEY_CHANGES_SPLIT):
            raise ConfigError(f"key_changes is 'canal' or 'split', not {self.key_changes!r}")
        _hash_rules(self.partition_hash)
        _topic_rules(self.dynamic_topic)
        _number_rules(self.dynamic_topic_partitions)

    def route(self, schema: str, table: str) -> Route:
        """Return the route of a table's messages; both names are empty for a statement of none."""
        found = self._routes.get((schema, table))
        if found is None:
            if len(self._routes) >= _KNOWN:
                self._routes.clear()
            found = self._routes[schema, table] = self._route(schema, table)
        return found

    def _route(self, schema: str, table: str) -> Route:
        topic = self._topic(schema, table)
        partitions = self.partitions_of(topic)
        if not self.partition_hash:
            return Route(topic, partitions, self.partition)
        for matches, rule in _hash_rules(self.partition_hash):
            if matches(f"{schema}.{table}"):
                if rule is None:
                    return Route(topic, partitions, java_partition(java_hash(table), partitions))
                return Route(topic, partitions, 0, rule)
        return Route(topic, partitions, 0)

    def _topic(self, schema: str, table: str) -> str:
        if not self.dynamic_topic or not schema or not table:
            return self.topic
        for name in (f"{schema}.{table}", schema):
            for matches, topic in _topic_rules(self.dynamic_topic):
                if matches(name):
                    return name.lower() if topic is None else topic
        return self.topic

    def partitions_of(self, topic: str) -> int:
        """Return how many partitions a topic has. Canal's producers look it up by the name that
        they send to, with _ for dots; a rule that is written with dots counts here, too."""
        sent_to = topic.replace(".", "_")
        for matches, number in _number_rules(self.dynamic_topic_partitions):
            if matches(topic) or matches(sent_to):
                return self.partitions if number is None else number
        return self.partitions

    def hash_seed(self, schema: str) -> int:
        """Return the value that the hash of a row's key starts from: the schema name's hash with
        `database_hash`, else 0."""
        return java_hash(schema) if self.database_hash else 0


def java_hash(text: str) -> int:
    """Return `String.hashCode()`, as an unsigned number of 32 bits."""
    found = 0
    units = text.encode("utf-16-le", "surrogatepass")
    for at in range(0, len(units), 2):
        found = (31 * found + (units[at] | units[at + 1] << 8)) & 0xFFFFFFFF
    return found


def java_partition(code: int, partitions: int) -> int:
    """Return Canal's `Math.abs(Math.abs(hashCode) % partitionsNum)`."""
    return abs(code - (1 << 32) if code >> 31 else code) % partitions


def topic_order(topic: str) -> bytes:
    """Return the sort key of topics: Java's order of strings. (Canal sends a batch's topics in
    parallel, in no given order.)"""
    return topic.encode("utf-16-be", "surrogatepass")


def _items(text: str) -> list[str]:
    return [item for item in re.split("[,;]", text) if item]


def _is_pattern(text: str) -> bool:
    return _PATTERN.search(text) is not None


def _name_matcher(text: str) -> Matcher:
    lowered = text.lower()
    return lambda name: name.lower() == lowered


def _matcher(text: str) -> Matcher:
    if not _is_pattern(text):
        return _name_matcher(text)
    pattern = compiled(text)
    return lambda name: pattern.matches(name.lower())


@lru_cache(maxsize=64)
def _hash_rules(text: str) -> list[tuple[Matcher, KeyRule | None]]:
    """Parse the rules of partitionHash; None: the table's name chooses."""
    rules: list[tuple[Matcher, KeyRule | None]] = []
    for item in _items(text):
        name, colon, keys = item.rpartition(":")
        if not colon or not name:
            rules.append((_matcher(item), None))
        elif keys.lower() == PRIMARY_KEY:
            rules.append((_matcher(name), KeyRule(None)))
        else:
            rules.append((_matcher(name), KeyRule(tuple(k for k in keys.split("^") if k))))
    return rules


@lru_cache(maxsize=64)
def _topic_rules(text: str) -> list[tuple[Matcher, str | None]]:
    """Parse the rules of dynamicTopic; None: the topic is called as what was matched."""
    rules: list[tuple[Matcher, str | None]] = []
    for item in _items(text):
        topic, colon, name = item.partition(":")
        if colon:
            rules.append((_topic_matcher(name.strip()), topic.strip()))
        else:
            rules.append((_topic_matcher(item), None))
    return rules


def _topic_matcher(text: str) -> Matcher:
    r"""A pattern with `\.` is for `schema.table` alone, one without for `schema` alone."""
    if not text:
        return lambda name: False
    matches = _matcher(text)
    if not _is_pattern(text):
        return matches
    of_tables = r"\." in text
    return lambda name: ("." in name) == of_tables and matches(name)


@lru_cache(maxsize=64)
def _number_rules(text: str) -> list[tuple[Matcher, int | None]]:
    """Parse the rules of dynamicTopicPartitionNum; None: no number is given."""
    rules: list[tuple[Matcher, int | None]] = []
    for item in _items(text):
        name, colon, number = item.rpartition(":")
        if not colon or not name:
            continue
        given = int(number) if number.isascii() and number.isdigit() else None
        if given == 0:
            raise ConfigError(f"dynamicTopicPartitionNum: {item!r} gives a topic no partition")
        rules.append((_matcher(name), given))
    return rules
