"""Message queues: what goes to them, and where they are: [sink.message], [sink.routing],
[sink.kafka], [sink.rabbitmq], [sink.rocketmq]."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ray_canal.config.section import SecretText, Section, TlsConfig

MessageFormat = Literal["flat", "protobuf", "arrow", "debezium", "avro"]
KafkaSender = Literal["auto", "batch", "message"]


ROW_FORMATS = ("debezium", "avro")
"""Formats with a message a row, which has a key."""


class RegistryConfig(Section):
    """A Confluent schema registry, for format "avro". Without `url` each message is an Avro file of
    one record. `token`: a bearer's."""

    url: str = ""
    username: str = ""
    password: SecretText = ""
    token: SecretText = ""
    timeout_s: float = Field(default=30.0, gt=0)


class MessageConfig(Section):
    """Settings of messages. `format`: Canal's "flat" (JSON) and "protobuf", "arrow" (an IPC
    stream), Debezium's change events in JSON ("debezium") or "avro"; left out, it is "flat" in
    queues, and in files of JSON lines rows as `ray-canal decode` prints them.

    `old` is of FlatMessages; `bytes_max` of "arrow"; `schemas` of "debezium": each message has its
    schema; `decimals` and `tombstones` (a message without a value after each delete) of both of
    Debezium's."""

    format: MessageFormat | Literal[""] = ""
    old: Literal["canal", "exact"] = "canal"
    bytes_max: int = Field(default=900_000, ge=1024)
    schemas: bool = False
    decimals: Literal["precise", "string", "double"] = "precise"
    tombstones: bool = True
    registry: RegistryConfig = RegistryConfig()


class RoutingConfig(Section):
    """Which topic and partition a message goes to, in Canal's grammar (`canal.mq.*`). Of Debezium's
    formats, `topic` is the first part of all topics, and the rest is not used.
    `key_changes`: of FlatMessages, an UPDATE that moves a row to another partition goes there, as
    in Canal, or is a DELETE in the one before and an INSERT in the other ("split")."""

    topic: str = "example"
    partition: int = Field(default=0, ge=0)
    partitions: int = Field(default=1, ge=1)
    partition_hash: str = ""
    dynamic_topic: str = ""
    dynamic_topic_partitions: str = ""
    database_hash: bool = True
    key_changes: Literal["canal", "split"] = "canal"


class KafkaConfig(Section):
    """A Kafka cluster. `properties` are librdkafka's. `sender`: "batch" hands messages to
    librdkafka as they lie in a buffer, "message" one by one; "auto" does the first where it can."""

    properties: dict[str, SecretText] = Field(default={})
    sender: KafkaSender = "auto"
    transactional: bool = True
    cursor_topic: str = "canal.cursors"
    timeout_s: float = Field(default=60.0, gt=0)

    @model_validator(mode="after")
    def _own_properties(self) -> KafkaConfig:
        if "transactional.id" in self.properties:
            raise ValueError(
                'kafka.properties."transactional.id": the sink has one of its own, '
                "canal.DESTINATION.SINK, unless kafka.transactional = false: leave it out"
            )
        for key in ("acks", "request.required.acks"):
            if str.__str__(self.properties.get(key, "")) == "0":
                raise ValueError(
                    f"kafka.properties.{key} = 0: nothing would tell which messages the brokers "
                    "have: leave it out"
                )
        return self


class QueueTlsConfig(TlsConfig):
    """TLS where it cannot be offered by the server: it is asked for, or not."""

    mode: Literal["disabled", "required", "verify_ca", "verify_identity"] = "disabled"


class RabbitConfig(Section):
    """A RabbitMQ. Messages go to `exchange` ("": the default one, whose routing keys are queues'
    names) by `routing_key`, in which {topic} and {partition} stand for where Canal's routing sends.
    With `queue`, a durable queue is declared; with `exchange_type` the exchange; with `binding_key`
    one is bound to the other.

    With `stream`, a name in which {topic} and {partition} may stand, messages go to streams by the
    stream protocol, at `stream_address` (left out: port 5552), and nothing else is used."""

    address: str = ""
    virtual_host: str = "/"
    username: str = "guest"
    password: SecretText = "guest"
    tls: QueueTlsConfig = QueueTlsConfig()
    exchange: str = ""
    exchange_type: Literal["", "direct", "topic", "fanout", "headers"] = ""
    routing_key: str = "{topic}"
    queue: str = ""
    queue_type: Literal["classic", "quorum"] = "classic"
    binding_key: str = ""
    stream: str = ""
    stream_address: str = ""
    timeout_s: float = Field(default=60.0, gt=0)


class RocketConfig(Section):
    """A RocketMQ 5, by its gRPC proxy at `address` (several IP addresses: "IP:PORT;IP:PORT").
    `access_key` and `secret_key` sign calls. `fifo`: topics have the type FIFO, and each partition
    of Canal's routing is a message group, whose messages are sent one after the other; of formats
    with a message a row, there are `groups` of them, by key. Without it topics have the type
    NORMAL, and nothing keeps an order. `in_flight`: messages under way at once."""

    address: str = ""
    tls: bool = False
    namespace: str = ""
    access_key: SecretText = ""
    secret_key: SecretText = ""
    tag: str = ""
    fifo: bool = True
    groups: int = Field(default=64, ge=1)
    in_flight: int = Field(default=200, ge=1)
    timeout_s: float = Field(default=10.0, ge=1)
