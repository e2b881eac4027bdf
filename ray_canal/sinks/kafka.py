"""Kafka: Canal's messages (FlatMessage JSON or protobuf) where its routing sends them, or Arrow.

With `transactional` the place goes into a control topic in the transaction of the messages, so a
reader with `isolation.level=read_committed` gets each once. Opening shuts out the predecessor first
(`init_transactions`) and reads the place after, so nobody can write between. Without it, messages
are idempotent within one run, and a crash repeats the last batch.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ray_canal.config import SinkConfig, secret
from ray_canal.filter import FieldFilter
from ray_canal.sinks.port import Changes, Cursor, Guarantee, Kind, SinkError
from ray_canal.views.entry_messages import entry_messages, packets
from ray_canal.views.flat import FlatOptions, flat_messages
from ray_canal.views.routing import Routing

_DEFAULTS = {
    "acks": "all",
    "compression.type": "lz4",
    "linger.ms": "5",
    "batch.size": "1000000",
    "queue.buffering.max.messages": "1000000",
}
_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, 90}  # 90: PRODUCER_FENCED
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}
_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION, KafkaError._INVALID_ARG, KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}  # fmt: skip
_OF_CONNECTION = ("bootstrap.", "security.", "sasl.", "ssl.", "client.", "socket.", "broker.")
_POLL_S = 0.1


class Sent(NamedTuple):
    topic: str
    partition: int
    value: Any


class KafkaSink:
    guarantee: Guarantee

    def __init__(self, config: SinkConfig) -> None:
        kafka = config.kafka
        self._config = kafka
        self._name = f"{config.destination}.{config.name}"
        self._timeout_s = kafka.timeout_s
        self.guarantee = "exactly_once" if kafka.transactional else "at_least_once"
        self._routing = Routing(**config.routing.model_dump())
        self._producer: Any = None
        self._in_transaction = False
        self._failure: KafkaError | None = None

    def open(self) -> Cursor | None:
        own = {name: secret(value) for name, value in self._config.properties.items()}
        settings: dict[str, Any] = {**_DEFAULTS, "enable.idempotence": "true", **own}
        if not self._config.transactional:
            with self._translated():
                self._producer = Producer(settings)
            return None
        settings["transactional.id"] = f"canal.{self._name}"
        with self._translated():
            self._producer = Producer(settings)
            self._make_cursor_topic(own)
            self._producer.init_transactions(self._timeout_s)
            text = self._read_cursor(own)
        return Cursor.from_json(text) if text else None

    def write(self, changes: Changes) -> None:
        with self._translated():
            self._begin()
            for topic, partition, value in self._messages(changes):
                self._produce(topic, value, partition=partition)

    def commit(self, upto: Cursor) -> None:
        with self._translated():
            if self._config.transactional:
                self._begin()
                topic = self._config.cursor_topic
                self._produce(topic, upto.to_json(), partition=0, key=self._name)
                self._producer.commit_transaction(self._timeout_s)
                self._in_transaction = False
            elif self._producer.flush(self._timeout_s):
                raise SinkError(f"Kafka took not all messages in {self._timeout_s} s", "retry")
        self._raise_failure()

    def abort(self) -> None:
        self._failure = None
        with self._translated():
            if self._in_transaction:
                self._producer.abort_transaction(self._timeout_s)
                self._in_transaction = False
            elif self._producer is not None:
                self._producer.flush(self._timeout_s)
                self._failure = None

    def close(self) -> None:
        """A transaction that is open is aborted by the next producer of this name, if it cannot be
        here."""
        producer, self._producer = self._producer, None
        in_transaction, self._in_transaction, self._failure = self._in_transaction, False, None
        if producer is not None and in_transaction:
            with contextlib.suppress(KafkaException):
                producer.abort_transaction(5)
        if producer is not None:
            producer.purge()
            producer.flush(5)

    # --- messages --------------------------------------------------------------------------------

    def _messages(self, changes: Changes) -> Iterator[Sent]:
        if self._config.format == "arrow":
            yield from self._arrow(changes)
            return
        head, part = changes.message.head, changes.part
        options = FlatOptions(
            id=head.id,
            routing=self._routing,
            time_zone=head.time_zone,
            gtid=head.gtid,
            old=self._config.old,
            fields=FieldFilter(head.fields, head.black_fields),
        )
        render = flat_messages if self._config.format == "flat" else entry_messages
        found = render(
            changes.chunk, part.first, part.last, part.mask, options, gtid_set=part.gtid_set
        )
        if self._config.format == "protobuf":
            for topic, partition, packet in packets(found):
                yield Sent(self._topic(topic), partition, packet)
            return
        topics = [self._topic(name) for name in found.topic_names]
        places = zip(found.topics.tolist(), found.partitions.tolist(), strict=True)
        for number, (topic_number, partition) in enumerate(places):
            yield Sent(topics[topic_number], partition, bytes(found[number]))

    def _topic(self, name: str) -> str:
        """Canal's Kafka producer puts _ for the dots of topics that tables name."""
        return name if name == self._routing.topic else name.replace(".", "_")

    def _arrow(self, changes: Changes) -> Iterator[Sent]:
        """An IPC stream for each run of rows of one table version; a long one in halves."""
        for batch in changes.batches:
            waiting = [batch]
            while waiting:
                piece = waiting.pop()
                value = _stream(piece)
                if len(value) > self._config.message_bytes_max and piece.num_rows > 1:
                    middle = piece.num_rows // 2
                    waiting += [piece.slice(middle), piece.slice(0, middle)]
                else:
                    yield Sent(self._routing.topic, self._routing.partition, value)

    def _begin(self) -> None:
        if self._producer is None:
            raise SinkError("Kafka: not connected", "retry")
        if self._config.transactional and not self._in_transaction:
            self._producer.begin_transaction()
            self._in_transaction = True

    def _produce(self, topic: str, value: Any, *, partition: int, key: str | None = None) -> None:
        while True:
            try:
                self._producer.produce(
                    topic, value, key, partition=partition, on_delivery=self._delivered
                )
                break
            except BufferError:  # the client's queue is full: wait for the broker
                self._producer.poll(_POLL_S)
                self._raise_failure()
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and (self._failure is None or error.code() in _TOO_LARGE):
            self._failure = error

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise _error(failure)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """A message that was too large explains why its transaction cannot be committed."""
        try:
            yield
        except KafkaException as error:
            if self._failure is not None and self._failure.code() in _TOO_LARGE:
                self._raise_failure()
            raise _error(error.args[0]) from None

    # --- the cursor ------------------------------------------------------------------------------

    def _make_cursor_topic(self, own: dict[str, str]) -> None:
        topic = self._config.cursor_topic
        admin = AdminClient(_of_connection(own))
        if topic in admin.list_topics(timeout=self._timeout_s).topics:
            return
        new = NewTopic(topic, 1, config={"cleanup.policy": "compact"})
        made = admin.create_topics([new], request_timeout=self._timeout_s)[topic]
        try:
            made.result(self._timeout_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise SinkError(
                    f"Kafka: the topic {topic} for the sink's place cannot be made "
                    f"({error.args[0].str()}); make it with 1 partition and cleanup.policy=compact",
                    _kind(error.args[0]),
                ) from None

    def _read_cursor(self, own: dict[str, str]) -> str:
        """The last committed place of this sink; "" where there is none."""
        consumer = Consumer(
            {
                **_of_connection(own),
                "group.id": f"canal-{uuid.uuid4().hex}",
                "isolation.level": "read_committed",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "auto.offset.reset": "earliest",
            }
        )
        found = ""
        try:
            consumer.assign([TopicPartition(self._config.cursor_topic, 0, 0)])
            while True:
                message = consumer.poll(self._timeout_s)
                if message is None:
                    raise SinkError("Kafka: the topic of places could not be read", "retry")
                error = message.error()
                if error is None:
                    if message.key() == self._name.encode():
                        found = message.value().decode()
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise _error(error)
        finally:
            consumer.close()


def _of_connection(own: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in own.items() if name.startswith(_OF_CONNECTION)}


def _kind(error: KafkaError) -> Kind:
    if error.code() in _FENCED:
        return "fenced"
    if error.code() in _TOO_LARGE:
        return "poison"
    return "fatal" if error.code() in _REFUSED else "retry"


def _error(error: KafkaError) -> SinkError:
    return SinkError(f"Kafka: {error.str()} ({error.name()})", _kind(error))


def _stream(batch: pa.RecordBatch) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(out.getvalue())
