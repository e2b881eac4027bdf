"""From `canal.serverMode` and `canal.mq.*` to a [[sink]] for each destination."""

from __future__ import annotations

from typing import Any

from ray_canal.errors import ConfigError
from ray_canal.migration.properties import Properties

Tree = dict[str, Any]
Said = list[tuple[str, str]]
"""Keys, and what has to be known about each."""

KAFKA_MODE, RABBIT_MODE, ROCKET_MODE = "kafka", "rabbitmq", "rocketmq"
MODES = (KAFKA_MODE, RABBIT_MODE, ROCKET_MODE)
RABBIT_PASSWORD = "env:RABBITMQ_PASSWORD"
_RABBIT = {
    "address": "host", "virtual_host": "virtual.host", "username": "username",
    "exchange": "exchange", "exchange_type": "deliveryMode", "queue": "queue",
    "binding_key": "routingKey",
}  # fmt: skip
_ROCKET = ("namespace", "tag")
_ROCKET_PORT = 8081
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


def queue_sink(mode: str, destination: str, properties: Properties, said: Said) -> Tree:
    """Return the section that does what Canal's producer of a mode, one of MODES, does for a
    destination. What has to be known is added to `said`. Raises ConfigError: a value cannot be
    read."""
    is_flat = properties.get("canal.mq.flatMessage").lower() != "false"
    return {
        "name": f"{destination}-{mode}",
        "destination": destination,
        "type": mode,
        "client_id": CLIENT_ID,
        mode: _SECTIONS[mode](properties, said),
        "message": {"format": "flat" if is_flat else "protobuf"},
        "routing": _routing(mode, properties, said),
    }


def _routing(mode: str, properties: Properties, said: Said) -> Tree:
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
    if mode == RABBIT_MODE and routing.pop("partition_hash", ""):
        said.append(("canal.mq.partitionHash", "RabbitMQ has no partitions; Canal ignores it, too"))
    return routing


def _kafka(properties: Properties, said: Said) -> Tree:
    text = (
        "messages go in transactions with the place in the topic canal.cursors: readers with "
        "isolation.level=read_committed get each once; kafka.transactional = false goes without"
    )
    said.append(("canal.serverMode", text))
    return {"properties": _properties(properties, said)}


def _rabbitmq(properties: Properties, said: Said) -> Tree:
    found: Tree = {
        key: properties.get(f"rabbitmq.{canal}")
        for key, canal in _RABBIT.items()
        if properties.get(f"rabbitmq.{canal}")
    }
    found.setdefault("address", properties.get("canal.mq.servers"))
    if not found["address"]:
        raise ConfigError("canal.serverMode = rabbitMQ needs rabbitmq.host")
    if properties.get("rabbitmq.password"):
        found["password"] = RABBIT_PASSWORD
        said.append(("rabbitmq.password", f"give it as {RABBIT_PASSWORD}"))
    text = (
        "each message is confirmed by the broker before the log is acknowledged; one that no queue "
        "takes comes back and the sink waits (Canal loses it)"
    )
    said.append(("canal.serverMode", text))
    return found


def _rocketmq(properties: Properties, said: Said) -> Tree:
    servers = properties.get("rocketmq.namesrv.addr") or properties.get("canal.mq.servers")
    if not servers:
        raise ConfigError("canal.serverMode = rocketMQ needs rocketmq.namesrv.addr")
    found: Tree = {"address": f"{servers.split(';')[0].rpartition(':')[0]}:{_ROCKET_PORT}"}
    text = (
        "messages go by the gRPC proxy of RocketMQ 5, whose address the name server does not tell: "
        "correct rocketmq.address if it is elsewhere; topics are made with +message.type=FIFO"
    )
    said.append(("rocketmq.namesrv.addr", text))
    for key in _ROCKET:
        if properties.get(f"rocketmq.{key}"):
            found[key] = properties.get(f"rocketmq.{key}")
    return found


_SECTIONS = {KAFKA_MODE: _kafka, RABBIT_MODE: _rabbitmq, ROCKET_MODE: _rocketmq}


def _properties(properties: Properties, said: Said) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in properties.values:
        prefix = next((p for p in ("kafka.", "canal.mq.properties.") if name.startswith(p)), None)
        if prefix is None or not (value := properties.get(name)):
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
