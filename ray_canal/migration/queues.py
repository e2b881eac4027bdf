"""From `canal.serverMode` and `canal.mq.*` to a [[sink]] for each destination."""

from __future__ import annotations

from typing import Any

from ray_canal.errors import ConfigError
from ray_canal.migration.properties import Properties

Tree = dict[str, Any]
Said = list[tuple[str, str]]
"""Keys, and what has to be known about each."""

KAFKA_MODE = "kafka"
CLIENT_ID = 1001
"""Canal's own, so that `import-meta` takes over the place of its producer."""

_ROUTING = {
    "topic": "canal.mq.topic",
    "partition_hash": "canal.mq.partitionHash",
    "dynamic_topic": "canal.mq.dynamicTopic",
    "dynamic_topic_partitions": "canal.mq.dynamicTopicPartitionNum",
}
_NUMBERS = {"partition": "canal.mq.partition", "partitions": "canal.mq.partitionsNum"}
_SAME = {
    "bootstrap.servers", "acks", "compression.type", "batch.size", "linger.ms", "client.id",
    "security.protocol", "sasl.mechanism", "request.timeout.ms",
}  # fmt: skip
_RENAMED = {"max.request.size": "message.max.bytes"}
_NEEDLESS = {"retries", "max.in.flight.requests.per.connection", "buffer.memory"}
_CLASSES = ("key.serializer", "value.serializer")


def kafka_sink(destination: str, properties: Properties, said: Said) -> Tree:
    """Return the section that does what Canal's Kafka producer does for a destination. What has
    to be known is added to `said`. Raises ConfigError: a value cannot be read."""
    routing: Tree = {
        key: properties.get(canal) for key, canal in _ROUTING.items() if properties.get(canal)
    }
    for key, canal in _NUMBERS.items():
        text = properties.get(canal)
        if text and not text.isdigit():
            raise ConfigError(f"{canal} = {text!r}: expected a whole number")
        if text:
            routing[key] = int(text)
    if properties.get("canal.mq.database.hash").lower() == "false":
        routing["database_hash"] = False
    is_flat = properties.get("canal.mq.flatMessage").lower() != "false"
    kafka: Tree = {"format": "flat" if is_flat else "protobuf"}
    kafka["properties"] = _properties(properties, said)
    text = (
        "messages go in transactions with the place in the topic canal.cursors: readers with "
        "isolation.level=read_committed get each once; kafka.transactional = false goes without"
    )
    said.append(("canal.serverMode", text))
    return {
        "name": f"{destination}-kafka",
        "destination": destination,
        "type": "kafka",
        "client_id": CLIENT_ID,
        "kafka": kafka,
        "routing": routing,
    }


def _properties(properties: Properties, said: Said) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in properties.values:
        prefix = next((p for p in ("kafka.", "canal.mq.properties.") if name.startswith(p)), None)
        value = properties.get(name)
        if prefix is None or not value:
            continue
        key = name.removeprefix(prefix)
        if key in _SAME or key in _RENAMED:
            found[_RENAMED.get(key, key)] = value
        elif key not in _NEEDLESS and key not in _CLASSES and value.lower() != "false":
            text = "not taken over: kafka.properties takes librdkafka's name for it"
            said.append((name, text))
    if not found.get("bootstrap.servers"):
        servers = properties.get("canal.mq.servers")
        if not servers:
            raise ConfigError("canal.serverMode = kafka needs kafka.bootstrap.servers")
        found["bootstrap.servers"] = servers
    return found
