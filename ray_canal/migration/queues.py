"""From `canal.serverMode` and `canal.mq.*` to a [[sink]] for each destination."""

from __future__ import annotations

from typing import Any

from ray_canal.errors import ConfigError
from ray_canal.migration.keys import OF_KAFKA_1_1_4, OF_RABBITMQ_1_1_4
from ray_canal.migration.properties import Properties, flag

Tree = dict[str, Any]
Said = list[tuple[str, str]]
"""Keys, and what has to be known about each."""

KAFKA_MODE, RABBIT_MODE, ROCKET_MODE = "kafka", "rabbitmq", "rocketmq"
MODES = (KAFKA_MODE, RABBIT_MODE, ROCKET_MODE)
_SERVERS = "canal.mq.servers"
_RABBIT_PASSWORD = "RABBITMQ_PASSWORD"
_ROCKET_KEYS = {
    "access_key": ("canal.aliyun.accessKey", "ROCKETMQ_ACCESS_KEY"),
    "secret_key": ("canal.aliyun.secretKey", "ROCKETMQ_SECRET_KEY"),
}
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
_ALL_ACKS = ("all", "-1")
_NEEDLESS = {"retries", "max.in.flight.requests.per.connection", "buffer.memory"}
_CLASSES = ("key.serializer", "value.serializer")


def queue_sink(mode: str, destination: str, properties: Properties, said: Said) -> Tree:
    """Return the section that does what Canal's producer of a mode, one of MODES, does for a
    destination. What has to be known is added to `said`. Raises ConfigError: a value cannot be
    read."""
    is_flat = flag(properties, "canal.mq.flatMessage", "true")
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
    if not flag(properties, "canal.mq.database.hash", "true"):
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
    found: Tree = {}
    for key, name in _RABBIT.items():
        value = properties.get(f"rabbitmq.{name}") or _old(properties, OF_RABBITMQ_1_1_4, name)
        if value:
            found[key] = value
    address = properties.get(_SERVERS) or found.get("address", "")
    if not address:
        raise ConfigError("canal.serverMode = rabbitMQ needs rabbitmq.host")
    found["address"] = address
    for name in ("rabbitmq.password", "canal.mq.password"):
        if properties.get(name):
            found["password"] = _secret(name, _RABBIT_PASSWORD, said)
            break
    text = (
        "each message is confirmed by the broker before the log is acknowledged; one that no queue "
        "takes comes back and the sink waits (Canal loses it)"
    )
    said.append(("canal.serverMode", text))
    return found


def _rocketmq(properties: Properties, said: Said) -> Tree:
    servers = properties.get(_SERVERS) or properties.get("rocketmq.namesrv.addr")
    if not servers:
        raise ConfigError("canal.serverMode = rocketMQ needs rocketmq.namesrv.addr")
    found: Tree = {"address": f"{servers.split(';')[0].rpartition(':')[0]}:{_ROCKET_PORT}"}
    text = (
        "messages go by the gRPC proxy of RocketMQ 5, whose address the name server does not tell: "
        "correct rocketmq.address if it is elsewhere; topics are made with +message.type=FIFO"
    )
    said.append(("rocketmq.namesrv.addr", text))
    for key in _ROCKET:
        value = properties.get(f"canal.mq.{key}") or properties.get(f"rocketmq.{key}")
        if value:
            found[key] = value
    for key, (name, variable) in _ROCKET_KEYS.items():
        if properties.get(name):
            found[key] = _secret(name, variable, said)
    return found


_SECTIONS = {KAFKA_MODE: _kafka, RABBIT_MODE: _rabbitmq, ROCKET_MODE: _rocketmq}


def _properties(properties: Properties, said: Said) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, key in _kafka_keys(properties):
        value = properties.get(name)
        if not value or key.startswith("kerberos."):
            continue
        if key == "acks" and value not in _ALL_ACKS:
            said.append((name, f"{value}: left out, idempotent producers have acks=all"))
        elif key in _SAME or key in _RENAMED:
            found[_RENAMED.get(key, key)] = value
        elif key not in _NEEDLESS and key not in _CLASSES and value.lower() != "false":
            text = "not taken over: kafka.properties takes librdkafka's name for it"
            said.append((name, text))
    servers = properties.get(_SERVERS) or found.get("bootstrap.servers", "")
    if not servers:
        raise ConfigError("canal.serverMode = kafka needs kafka.bootstrap.servers")
    found["bootstrap.servers"] = servers
    return found


def _kafka_keys(properties: Properties) -> list[tuple[str, str]]:
    """Return Canal's keys and Kafka's; those of 1.1.4 come last, and so before others."""
    found = [
        (name, name.removeprefix(prefix))
        for prefix in ("kafka.", "canal.mq.properties.")
        for name in properties.values
        if name.startswith(prefix)
    ]
    return found + [(f"canal.mq.{old}", key) for old, key in OF_KAFKA_1_1_4.items()]


def _old(properties: Properties, old_keys: dict[str, str], name: str) -> str:
    """Return the value of the key that stood for `name` in Canal 1.1.4."""
    return next(
        (properties.get(f"canal.mq.{old}") for old, key in old_keys.items() if key == name), ""
    )


def _secret(name: str, variable: str, said: Said) -> str:
    said.append((name, f"not written in clear: put it into the variable {variable}"))
    return f"env:{variable}"
