"""Kafka: Canal's messages (FlatMessage JSON or protobuf) where its routing sends them, Debezium's
change events by key, or Arrow.

With `transactional` the place goes into a control topic in the transaction of the messages, so a
reader with `isolation.level=read_committed` gets each once. Opening shuts out the predecessor first
(`init_transactions`) and reads the place after, so nobody can write between. Without it, messages
are idempotent within one run, and a crash repeats the last batch.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from concurrent import futures

import numpy as np
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

from ray_canal.config import SinkConfig, secret
from ray_canal.model.arrays import Int64s
from ray_canal.sinks.messages import MessageMaker
from ray_canal.sinks.port import Changes, Cursor, Guarantee, Kind, SinkError
from ray_canal.sinks.queues.kafka_place import NAME_ADVICE, TOPIC, last_value, topic_checks
from ray_canal.sinks.queues.kafka_producer import KafkaProducer, make_producer
from ray_canal.sinks.target_checks import SourceTable
from ray_canal.source.setting_checks import CheckResult
from ray_canal.views.routed import by_place

_RECONNECT = {"reconnect.backoff.ms": "1000"}
"""Where brokers are away, librdkafka would connect twenty times a second, and log each failure."""
_TRANSACTION_MS = "transaction.timeout.ms"
_DEFAULTS = {
    **_RECONNECT,
    "acks": "all",
    "compression.type": "lz4",
    "linger.ms": "5",
    "batch.size": "1000000",
    "queue.buffering.max.messages": "1000000",
    "partitioner": "murmur2_random",  # as Java's clients: of messages with keys
    _TRANSACTION_MS: "60000",
}
_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, 90}  # 90: PRODUCER_FENCED
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}
_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION, KafkaError._INVALID_ARG, KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}  # fmt: skip
_LOOK_S = 15.0
_SOON_S = 2.0
"""How long a commit waits at once for the brokers: the sink may be told to stop."""
_UNTRUSTED, _AUTHORITY = "certificate verify failed", "ssl.ca.location"
_OF_CONNECTION = (
    "bootstrap.", "security.", "sasl.", "ssl.", "client.", "socket.", "broker.", "reconnect.",
)


class KafkaSink:
    guarantee: Guarantee

    def __init__(self, config: SinkConfig) -> None:
        kafka = config.kafka
        self._config = kafka
        self._name = f"{config.destination}.{config.name}"
        self._timeout_s = kafka.timeout_s
        self.guarantee = "exactly_once" if kafka.transactional else "at_least_once"
        self._maker = MessageMaker(config.message, config.routing)
        self._connected: KafkaProducer | None = None
        self._partitions: dict[str, int] = {}
        self._in_transaction = self._is_committing = False
        self._begun_s, self._limit_s = 0.0, math.inf  # of a transaction
        self._due: float | None = None  # when a commit that goes on is too late

    def open(self) -> Cursor | None:
        own = {name: secret(value) for name, value in self._config.properties.items()}
        settings = _of_producer(own)
        if self._config.transactional:
            settings["transactional.id"] = f"canal.{self._name}"
            self._limit_s = int(settings[_TRANSACTION_MS]) / 1000
        self._partitions.clear()
        with self._translated():
            self._connected = make_producer(settings, self._config.sender)
            if not self._config.transactional:
                return None
            self._make_cursor_topic(own)
            self._connected.init_transactions(self._timeout_s)
            text = last_value(
                _of_connection(own), self._config.cursor_topic, self._name, self._timeout_s
            )
        return Cursor.from_json(text) if text else None

    def check(self, tables: Sequence[SourceTable]) -> Iterator[CheckResult]:
        """Log in, and look for the topics that the tables' messages go to. Raises SinkError."""
        own = {name: secret(value) for name, value in self._config.properties.items()}
        with self._translated():
            make_producer(_of_producer(own), self._config.sender).close()  # wrong settings raise
            _, cluster = _cluster(_of_connection(own), min(self._timeout_s, _LOOK_S))
        yield CheckResult("connection", True, f"{len(cluster.brokers)} brokers")
        wanted = self._maker.topics([(each.schema, each.table) for each in tables])
        counts = {name: len(found.partitions) for name, found in cluster.topics.items()}
        yield from topic_checks(wanted, counts)

    def write(self, changes: Changes) -> None:
        with self._translated():
            producer, found = self._begin(), self._maker.make(changes)
            bounds = _bounds(found.offsets)
            keys = None if found.keys is None else (found.keys[0], _bounds(found.keys[1]))
            for topic_number, partition, chosen in by_place(found):
                topic = self._maker.topic(found.topic_names[topic_number])
                self._check(producer, topic, partition)
                own = None if keys is None else (keys[0], keys[1][chosen])
                producer.send(topic, partition, found.buffer, bounds[chosen], own)

    def commit(self, upto: Cursor) -> None:
        """Raises SinkError "wait" where the brokers have not taken all messages soon."""
        now = time.monotonic()
        due, self._due = self._due or now + self._timeout_s, None
        with self._translated():
            producer = self._begin()
            is_done = self._is_committed(producer, upto)
        if not is_done and now < due:
            self._due = due
            raise SinkError("Kafka has not taken all messages yet", "wait")
        if not is_done:
            raise SinkError(f"Kafka took not all messages in {self._timeout_s:g} s", "retry")
        failure = producer.take_failure()
        if failure is not None:
            raise self._error(failure)

    def _is_committed(self, producer: KafkaProducer, upto: Cursor) -> bool:
        """Return whether all is delivered soon; if not, the call is repeated."""
        soon_s = min(_SOON_S, self._timeout_s)
        if not self._config.transactional:
            return not producer.flush(soon_s)
        if not self._is_committing:
            topic, value = self._config.cursor_topic, upto.to_json().encode()
            producer.send_one(topic, 0, value, self._name.encode())
            self._is_committing = True
        try:
            producer.commit_transaction(soon_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TIMED_OUT:
                raise
            return False
        self._in_transaction = self._is_committing = False
        return True

    def abort(self) -> None:
        producer = self._connected
        self._is_committing, self._due = False, None
        with self._translated():
            if producer is not None and self._in_transaction:
                producer.abort_transaction(self._timeout_s)
                self._in_transaction = False
            elif producer is not None:
                producer.flush(self._timeout_s)
        if producer is not None:
            producer.take_failure()

    def close(self) -> None:
        """Abort an open transaction and close. What cannot be aborted here is by the next producer
        of this name."""
        producer, self._connected = self._connected, None
        in_transaction, self._in_transaction = self._in_transaction, False
        self._is_committing, self._due = False, None
        if producer is not None and in_transaction:
            with contextlib.suppress(KafkaException):
                producer.abort_transaction(5)
        if producer is not None:
            producer.close()

    def _begin(self) -> KafkaProducer:
        if self._connected is None:
            raise SinkError("Kafka: not connected", "retry")
        if self._config.transactional and not self._in_transaction:
            self._connected.begin_transaction()
            self._in_transaction, self._begun_s = True, _now_s()
        return self._connected

    def _check(self, producer: KafkaProducer, topic: str, partition: int) -> None:
        """Raise SinkError: the topic has no such partition, or no topic can have this name."""
        count = self._partitions.get(topic, 0)
        if not count and not TOPIC.fullmatch(topic):
            text = f"Kafka: no topic can be named {topic!r}: {NAME_ADVICE}"
            raise SinkError(text, "poison")
        if max(partition, 0) >= count:
            count = self._partitions[topic] = producer.partition_count(topic, self._timeout_s)
        if count == 0:
            raise SinkError(f"Kafka: there is no topic {topic}, and the brokers make none", "retry")
        if partition >= count:
            raise SinkError(
                f"Kafka: the topic {topic} has {count} partitions, and a message goes to partition "
                f"{partition}: give it more, or correct routing.partitions"
            )

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._error(self._cause(error.args[0])) from None

    def _error(self, error: KafkaError) -> SinkError:
        """Return what a call failed with. A coordinator that ends a transaction because it was open
        too long shuts out its producer, as an heir does (KIP-588)."""
        found = _error(error)
        open_s = _now_s() - self._begun_s
        if found.kind != "fenced" or not self._in_transaction or open_s < self._limit_s:
            return found
        return SinkError(
            f"{found}: its transaction was open for {open_s:.0f} s, so the brokers may have ended "
            f"it ({_TRANSACTION_MS}: {self._limit_s * 1000:.0f})",
            "expired",
        )

    def _cause(self, error: KafkaError) -> KafkaError:
        """Return why a call failed. A message that the broker refused ends its transaction: calls
        after it know of the wrong state alone, but one that may not be made in a transaction is
        told why."""
        producer = self._connected
        failure = producer.take_failure() if producer is not None else None
        if failure is not None and failure.code() in _TOO_LARGE:
            return failure
        if producer is not None and self._in_transaction and error.code() == KafkaError._STATE:
            try:
                producer.begin_transaction()
            except KafkaException as told:
                return told.args[0]
        return error

    # --- the cursor ------------------------------------------------------------------------------

    def _make_cursor_topic(self, own: dict[str, str]) -> None:
        topic = self._config.cursor_topic
        admin, cluster = _cluster(_of_connection(own), min(self._timeout_s, _LOOK_S))
        if topic in cluster.topics:
            return
        new = NewTopic(topic, 1, config={"cleanup.policy": "compact"})
        made = admin.create_topics([new], request_timeout=self._timeout_s)[topic]
        try:
            made.result(self._timeout_s + _SOON_S)  # librdkafka ends it before, and says why
        except (KafkaException, futures.TimeoutError) as error:
            known = isinstance(error, KafkaException)
            cause = error.args[0] if known else KafkaError(KafkaError._TIMED_OUT)
            if cause.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise SinkError(
                    f"Kafka: the topic {topic} for the sink's place cannot be made "
                    f"({cause.str()}); make it with 1 partition and cleanup.policy=compact",
                    _kind(cause),
                ) from None


def _now_s() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _bounds(offsets: Int64s) -> Int64s:
    found: Int64s = np.stack([offsets[:-1], offsets[1:]], axis=1)
    return found


def _of_producer(own: dict[str, str]) -> dict[str, str]:
    return {**_DEFAULTS, "enable.idempotence": "true", **own}


def _of_connection(own: dict[str, str]) -> dict[str, str]:
    named = {name: value for name, value in own.items() if name.startswith(_OF_CONNECTION)}
    return {**_RECONNECT, **named}


def _cluster(connection: dict[str, str], timeout_s: float) -> tuple[AdminClient, ClusterMetadata]:
    """Return an admin client and the cluster's metadata. Raises SinkError: none answers."""
    causes: list[KafkaError] = []
    admin = AdminClient({**connection, "error_cb": causes.append})
    try:
        return admin, admin.list_topics(timeout=timeout_s)
    except KafkaException as error:
        admin.poll(0)  # now the causes come
        found = _error(error.args[0])
        text = "; ".join([str(found), *(cause.str() for cause in causes[:1])])
        if _UNTRUSTED in text and _AUTHORITY not in text:  # librdkafka does not always say it
            text += f"; {_AUTHORITY} must name the authority that signed the broker's certificate"
        raise SinkError(text, found.kind) from None


def _kind(error: KafkaError) -> Kind:
    if error.code() in _FENCED:
        return "fenced"
    if error.code() in _TOO_LARGE:
        return "poison"
    return "fatal" if error.code() in _REFUSED else "retry"


def _error(error: KafkaError) -> SinkError:
    return SinkError(f"Kafka: {error.str()} ({error.name()})", _kind(error))
